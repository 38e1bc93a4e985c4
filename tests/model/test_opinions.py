"""What models say of the actions of an episode agrees with what they said while it was played."""

import dataclasses
import math

import pytest
import torch

from agentprm_core import opinions as module
from agentprm_core.opinions import _allowed, opinions, probabilities
from agentprm_core.policy.models import Checkpoint
from agentprm_core.policy.sampler import Sampler
from agentprm_core.policy.trie import TEXT, build_trie, spelling
from agentprm_core.prm.model import new_prm
from agentprm_core.prm.score import score_episodes
from agentprm_core.rollout import play, starts
from tests.model import toy

GAMES = [toy.game(n) for n in range(4)]


def played(engine, **changes):
    how = {"slots": 4, "context": 512, "temperature": 1.0, "constrained": True, "max_action_tokens": 8}
    sampler = Sampler(toy.policy(), **{**how, **changes})
    return sorted(play(sampler, starts(GAMES, 1, 3), world_name=engine, max_turns=6), key=lambda e: e.game_id)


@pytest.fixture(scope="module")
def prms():
    made = []
    for seed, likelihood in ((1, 0.0), (2, 0.5)):
        policy = toy.policy(seed=seed)
        model = new_prm(policy.model, likelihood)
        torch.manual_seed(seed)
        with torch.no_grad():
            model.score.weight.normal_(std=0.5)
        made.append(Checkpoint(model.eval(), policy.tokenizer, policy.renderer, f"prm {seed}"))
    return made


@pytest.mark.parametrize("tokens", [module.BRANCH_TOKENS, 1])
def test_the_probability_of_what_was_drawn_is_the_samplers(toy_engine, monkeypatch, tokens):
    monkeypatch.setattr(module, "BRANCH_TOKENS", tokens)
    for episode in played(toy_engine):
        told = opinions(toy.policy(), [], episode, constrained=True)
        taken = [next(c for c in candidates if c.taken) for candidates in told]
        found = [math.log(candidate.probability) for candidate in taken]
        assert found == pytest.approx(episode.extra["log_probs"], abs=1e-4)
        assert [sum(c.probability for c in candidates) for candidates in told] == pytest.approx([1.0] * len(told))
        assert [sorted(c.action for c in candidates) for candidates in told] == [[*t.admissible] for t in episode.turns]


def test_free_probabilities_are_of_the_whole_vocabulary(toy_engine):
    policy, episode = toy.policy(), played(toy_engine)[0]
    spoken = [[turn.action, "look"] for turn in episode.turns]
    found = probabilities(policy, episode, spoken, constrained=False)
    for t, turn in enumerate(episode.turns):
        for action, probability in zip(spoken[t], found[t]):
            whole = policy.renderer.episode((*episode.turns[:t], turn._replace(action=action)))
            first, end = whole.action_starts[t], whole.action_ends[t]
            ids = torch.tensor([whole.input_ids[: end + 1]])
            log_p = policy.model(ids).logits.log_softmax(-1)[0, first - 1 : end]
            plain = log_p.gather(1, ids[0, first : end + 1, None]).sum().exp().item()
            assert probability == pytest.approx(plain, rel=1e-3)


def test_scores_are_those_of_the_episode(toy_engine, prms):
    episode = played(toy_engine)[0]
    told = opinions(None, prms, episode, constrained=True)
    taken = [next(c for c in candidates if c.taken) for candidates in told]
    for number, prm in enumerate(prms):
        (q_T,) = score_episodes(prm.model, prm.renderer, [episode], 4096)
        assert [c.scores[number] for c in taken] == pytest.approx(q_T.tolist(), abs=1e-5)
    assert all(math.isnan(c.probability) for candidates in told for c in candidates)


def test_what_nobody_admits_is_never_drawn_and_still_scored(toy_engine, prms):
    episode = played(toy_engine)[0]
    more = [("take mug 1 from cabinet 99",), *[()] * (episode.length - 1)]
    told = opinions(toy.policy(), prms, episode, constrained=True, more=more)
    (stray,) = [c for c in told[0] if c.action == more[0][0]]
    assert (stray.probability, stray.taken, len(stray.scores)) == (0.0, False, 2)


def test_only_the_likeliest_are_scored_and_what_was_asked_for(toy_engine, prms):
    episode = played(toy_engine)[0]
    whole = opinions(toy.policy(), prms, episode, constrained=True)
    few = opinions(toy.policy(), prms, episode, constrained=True, scored=2)
    for everything, two in zip(whole, few):
        assert {c.action for c in everything[:2]} <= {c.action for c in two}
        assert len(two) <= 3 and any(c.taken for c in two)
        assert [c.probability for c in two] == sorted((c.probability for c in two), reverse=True)


def test_an_action_with_an_unknown_word_is_never_drawn(toy_engine):
    episode = played(toy_engine)[0]
    turn = episode.turns[0]._replace(admissible=(*episode.turns[0].admissible, "sing ☃"))
    odd = dataclasses.replace(episode, turns=(turn, *episode.turns[1:]))
    told = {c.action: c.probability for c in opinions(toy.policy(), [], odd, constrained=True)[0]}
    assert told["sing ☃"] == 0.0 and sum(told.values()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("tokens", "allowed"),
    [
        ((1, 2, 9), [[1, 4], [2, 3], [9]]),
        ((4, 7, 7, 5, 9), [[1, 4], None, None, None, [9]]),
        ((4, 6, 9), [[1, 4], None, [9]]),
        ((8, 2, 9), [[1, 4], [], []]),
        ((1, 7, 9), [[1, 4], [2, 3], []]),
        ((1, 2, 9, 9), [[1, 4], [2, 3], [9], []]),
    ],
)
def test_what_may_be_drawn_beside_a_template_is_what_the_sampler_may_draw(tokens, allowed):
    """9 ends a command; after 4 stands 6, or free text until a 5."""
    root = build_trie([spelling(s, str(s)) for s in ((1, 2, 9), (1, 3, 9), (4, 6, 9), (4, TEXT, 5, 9))])
    found = [choice and sorted(choice) for choice in _allowed(root, tokens)]
    assert found == [choice and sorted(choice) for choice in allowed]
    assert list(_allowed(None, tokens)) == [[]] * len(tokens)
