"""What an update reads is what play drew by: probabilities among the admissible commands."""

import copy
import dataclasses
import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Categorical, kl_divergence

from agentprm_core.improve.choices import Choices
from agentprm_core.improve.decided import with_old
from agentprm_core.improve.implicit import implicit_objective, played_rows, step_rewards
from agentprm_core.improve.kl import token_kl
from agentprm_core.improve.policy_gradient import Experience, RowWriter
from agentprm_core.policy.decoding import Constrained
from agentprm_core.policy.drawing import AllBut
from agentprm_core.policy.models import Checkpoint
from agentprm_core.policy.sampler import Sampler
from agentprm_core.rollout import play, starts
from agentprm_core.training.attention import packed_attention
from agentprm_core.training.packing import pack
from agentprm_core.types import Turn
from tests.model import text_world, toy


def nothing_of(episodes):
    return Experience(episodes, [np.zeros(episode.length) for episode in episodes])


@pytest.mark.parametrize("level", ["turn", "token"])
def test_the_old_policy_says_what_play_drew_by(toy_engine, level):
    policy = toy.policy()
    player = Sampler(policy, slots=8, context=512, temperature=1.0, constrained=True, max_action_tokens=8)
    episodes = list(play(player, starts([toy.game(n) for n in range(6)], 2, 3), world_name=toy_engine, max_turns=6))
    writer = RowWriter(policy, level, Constrained(policy, 8))
    rows = with_old(policy.model, writer.rows(nothing_of(episodes)), 512, writer.choices.logits)
    for row, episode in zip(rows, episodes, strict=True):
        columns = row.columns
        total_L = np.cumsum(columns.old.astype(np.float64))
        said_T = np.diff(total_L[columns.is_end > 0], prepend=0.0)
        assert said_T == pytest.approx(episode.extra["log_probs"], abs=1e-3)
        assert columns.loss_weight.sum() == (columns.is_end if level == "turn" else columns.decided).sum()
        assert not columns.old[columns.decided == 0].any(), "tokens without an alternative say nothing"


def test_free_play_draws_from_the_whole_vocabulary():
    renderer = text_world.renderer()
    policy = Checkpoint(text_world.small_model(renderer), renderer.tokenizer, renderer, "")
    episodes = text_world.episodes(2)
    for row in RowWriter(policy).rows(nothing_of(episodes)):
        assert not row.columns.among.any()
    strayed = Turn("a room", "take mug", ("go to cabinet 1", "go to cabinet 2"), True, "s")
    tokens = [*renderer.action(strayed.action)]
    assert Choices().of(strayed, tokens, Constrained(policy, 8)).tolist() == [0] * len(tokens)


def test_what_cannot_be_drawn_has_no_gradient_and_no_part_in_the_kl():
    choices = Choices([AllBut(()), (1, 3), AllBut((0,))])
    logits_PV, other_PV = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    number_P = torch.tensor([1.0, 2.0, 0.0])
    logits_PV.requires_grad_()
    masked_PV, masked_other_PV = choices.among(logits_PV, number_P), choices.among(other_PV, number_P)
    found_P = -F.cross_entropy(masked_PV, torch.tensor([3, 1, 0]), reduction="none")
    kl_P = token_kl(masked_PV, masked_other_PV)
    for row, kept in enumerate(([1, 3], [1, 2, 3, 4], [0, 1, 2, 3, 4])):
        ours, others = Categorical(logits=logits_PV[row, kept]), Categorical(logits=other_PV[row, kept])
        assert found_P[row].item() == pytest.approx(ours.logits[kept.index((3, 1, 0)[row])].item(), abs=1e-6)
        assert kl_P[row].item() == pytest.approx(kl_divergence(ours, others).item(), abs=1e-6)
    (found_P + kl_P).sum().backward()
    assert logits_PV.grad is not None
    assert logits_PV.grad.isfinite().all()
    assert not logits_PV.grad[0, [0, 2, 4]].any() and not logits_PV.grad[1, 0].any()


def drawn_among(renderer, episode):
    """Of each decided turn's each token: where it stands, and the tokens by which an admissible command goes on there.
    Read off the commands, written out."""
    rendered = renderer.episode(episode.turns)
    for turn in range(episode.start, episode.length):
        start, end = rendered.action_starts[turn], rendered.action_ends[turn]
        said = rendered.input_ids[start : end + 1]
        commands = [[*renderer.action(command)] for command in episode.turns[turn].admissible]
        yield [
            (start + k, sorted({command[k] for command in commands if command[:k] == said[:k]}))
            for k in range(len(said))
        ]


def said_among(model, renderer, episode):
    """log π(a|s) of each decided turn among the admissible commands, by a plain pass."""
    ids = torch.tensor([renderer.episode(episode.turns).input_ids])
    with torch.no_grad():
        logits_LV = model(input_ids=ids).logits[0].double()
    return [
        sum(float(logits_LV[at - 1, ids[0, at]] - logits_LV[at - 1, allowed].logsumexp(-1)) for at, allowed in turn)
        for turn in drawn_among(renderer, episode)
    ]


@pytest.fixture
def implicit():
    """A policy that played, episodes of it, their rows, and a model that has moved away from it."""
    renderer = text_world.renderer()
    policy = Checkpoint(text_world.small_model(renderer).eval(), renderer.tokenizer, renderer, "")
    first, second = text_world.episodes(2, skill=0.2)
    episodes = [dataclasses.replace(first, start=1), second]
    moved, rng = copy.deepcopy(policy.model), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in moved.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=rng))
    return policy, episodes, played_rows(episodes, policy, Constrained(policy, 8), 512), moved


def test_an_implicit_reward_is_a_log_ratio_of_what_play_draws_by(implicit):
    policy, episodes, played, moved = implicit
    for episode, reward_T in zip(episodes, step_rewards(moved, played, episodes, 0.5, 512), strict=True):
        now, before = (said_among(model, policy.renderer, episode) for model in (moved, policy.model))
        expected = [0.5 * (a - b) for a, b in zip(now, before, strict=True)]
        assert reward_T == pytest.approx([*[0.0] * episode.start, *expected], abs=1e-4)
        assert np.abs(expected).max() > 0.01


def test_an_implicit_preference_moves_no_command_that_is_not_admissible(implicit):
    policy, episodes, played, moved = implicit
    read = []

    def remember(module, given, logits):
        logits.retain_grad()
        read.append(logits)

    moved.lm_head.register_forward_hook(remember)
    with packed_attention(moved):
        implicit_objective(moved, pack(played.rows), 0.5, played.choices).total.backward()
    gradient_PV = read[0].grad[0]
    turns = [turn for episode in episodes for turn in drawn_among(policy.renderer, episode)]
    allowed_P = [allowed for turn in turns for _, allowed in turn if len(allowed) > 1]
    assert len(gradient_PV) == len(allowed_P) > 4
    for gradient_V, allowed in zip(gradient_PV, allowed_P, strict=True):
        assert gradient_V.nonzero()[:, 0].tolist() == allowed


def test_sets_are_told_to_another_process():
    choices = Choices([AllBut(()), (1, 3), AllBut((0, 2))])
    again = Choices.from_json(json.loads(json.dumps(choices.to_json())))
    logits_PV, number_P = torch.zeros(3, 4), torch.arange(3.0)
    assert torch.equal(again.among(logits_PV, number_P), choices.among(logits_PV, number_P))
