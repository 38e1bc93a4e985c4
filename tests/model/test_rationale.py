"""Reasons written after the fact: those of plain greedy decoding turn by turn, and where they go."""

import dataclasses

import pytest
import torch

from agentprm_core.improve import rationale
from agentprm_core.improve.rationale import rationalised
from agentprm_core.improve.sft import sft_row
from agentprm_core.policy.cache import KeyValueCache
from tasks.frame.params import PARAMS, load_params
from tasks.frame.stage import StageError
from tasks.sft import check_likelihood, with_reasons
from tests.chat import letter_policy
from tests.model import text_world, toy

COMPUTE = load_params(PARAMS).compute


@pytest.fixture(scope="module")
def policy():
    return letter_policy()


def episodes():
    played = text_world.episodes(3, skill=0.5)
    return [dataclasses.replace(played[0], start=1), *played[1:]]


def scripted(tokenizer, texts):
    """The class of a model that answers one question after another by ``texts``, whatever it reads."""
    scripts = [tokenizer.encode(text, add_special_tokens=False) for text in texts]

    class Scripted:
        def __init__(self, model, *, slots, context):
            self.cache = KeyValueCache(
                slots=slots, layers=1, context=context, kv_heads=1, head_dim=1, dtype=torch.float32, device="cpu"
            )
            self._question, self._place = -1, 0

        def extend(self, extensions):
            (extension,) = extensions
            self.cache.lengths[extension.slot] += len(extension.tokens)
            asked = len(extension.tokens) > 1
            self._question, self._place = self._question + asked, 0 if asked else self._place + 1

        def head(self, _):
            logits = torch.zeros(1, len(tokenizer))
            logits[0, scripts[self._question % len(scripts)][self._place]] = 1
            return logits

    return Scripted


def plain_reason(policy, episode, turn, most):
    """One row, no cache: the history up to the observation's text, the question, and the likeliest token each time."""
    renderer, rendered = policy.renderer, policy.renderer.episode(episode.turns)
    ids = rendered.input_ids[: rendered.action_starts[turn] - len(renderer.before_action)]
    text = policy.tokenizer.decode(ids)
    assert text.endswith(episode.turns[turn].admissible[-1])
    ids = [*ids, *renderer.question(episode.turns[turn].action)]
    asked = policy.tokenizer.decode(ids)[len(text) :]
    assert f"The right command here is: {episode.turns[turn].action}\n" in asked
    assert asked.endswith("<|im_end|>\n<|im_start|>assistant\n")
    written = []
    while len(written) < most and renderer.stop_token not in written:
        written.append(policy.model(input_ids=torch.tensor([ids + written])).logits[0, -1].argmax().item())
    return renderer.reason(written)


@pytest.mark.parametrize("slots", [1, 2, 64])
def test_reasons_are_those_of_plain_greedy_decoding(policy, slots):
    found = rationalised(policy, episodes(), max_tokens=6, slots=slots, cache_mb=64)
    for episode, with_reason in zip(episodes(), found, strict=True):
        expected = ["" if t < episode.start else plain_reason(policy, episode, t, 6) for t in range(episode.length)]
        assert [turn.reason for turn in with_reason.turns] == expected
        bare = tuple(turn._replace(reason="") for turn in with_reason.turns)
        assert dataclasses.replace(with_reason, turns=bare) == episode
    assert len({turn.reason for episode in found for turn in episode.turns}) > 2


def test_a_reason_ends_at_the_action_at_the_end_mark_or_at_its_limit(policy, monkeypatch):
    texts = ("REASON:\nThe mug is\nthere.\nACTION:\ngo to", "I saw it.<|im_end|>", "because " * 9)
    monkeypatch.setattr(rationale, "CachedModel", scripted(policy.tokenizer, texts))
    played = next(e for e in text_world.episodes(8, skill=0.2) if e.length >= 3)
    (found,) = rationalised(policy, [played], max_tokens=35, slots=4, cache_mb=64)
    reasons = [turn.reason for turn in found.turns]
    assert reasons[:3] == ["The mug is there.", "I saw it.", "because because because because bec"]
    row = sft_row(found, policy.renderer, policy.model, observation_weight=0.0)
    learnt = policy.tokenizer.decode(row.input_ids[row.columns.loss_weight > 0])
    assert learnt.startswith(
        f"REASON:\nThe mug is there.\nACTION:\n{played.turns[0].action}<|im_end|>REASON:\nI saw it."
    )
    assert "right command" not in policy.tokenizer.decode(row.input_ids)


def test_a_policy_that_writes_no_reasons_is_refused():
    with pytest.raises(ValueError, match="a reason needs a policy that writes reasons"):
        rationalised(toy.policy(), text_world.episodes(1), max_tokens=4, slots=4, cache_mb=64)
    with pytest.raises(StageError, match=r"^params.yaml: model.reason_tokens must be 0: model.source has no chat"):
        with_reasons(toy.policy(), text_world.episodes(1), 4, COMPUTE)


def test_a_likelihood_that_a_policy_does_not_give_is_refused_before_anything_is_played():
    policy = toy.policy()
    check_likelihood(policy, 0.3)
    policy.model.config.tie_word_embeddings = False
    check_likelihood(policy, 0.0)
    with pytest.raises(StageError, match=r"^params.yaml: critic.likelihood: 0.3 is not allowed: 0 with this model.sou"):
        check_likelihood(policy, 0.3)
