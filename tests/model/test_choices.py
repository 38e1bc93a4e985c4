"""What an update reads is what play drew by: probabilities among the admissible commands."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Categorical, kl_divergence

from agentprm_core.improve.choices import Choices
from agentprm_core.improve.decided import with_old
from agentprm_core.improve.kl import token_kl
from agentprm_core.improve.policy_gradient import Experience, RowWriter
from agentprm_core.policy.decoding import Constrained
from agentprm_core.policy.drawing import AllBut
from agentprm_core.policy.models import Checkpoint
from agentprm_core.policy.sampler import Sampler
from agentprm_core.rollout import play, starts
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


def test_sets_are_told_to_another_process():
    choices = Choices([AllBut(()), (1, 3), AllBut((0, 2))])
    again = Choices.from_json(json.loads(json.dumps(choices.to_json())))
    logits_PV, number_P = torch.zeros(3, 4), torch.arange(3.0)
    assert torch.equal(again.among(logits_PV, number_P), choices.among(logits_PV, number_P))
