"""KL to π_{i−1}: the closed form at each token of an action, bounded where the drawn tokens' ratios are not."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, kl_divergence

from agentprm_core.improve import kl
from agentprm_core.improve.pairs import Choice
from agentprm_core.improve.policy_gradient import RowWriter, gradient_objective
from agentprm_core.improve.preferences import choice_row, dpo_objective, soft_objective
from agentprm_core.improve.proposals import Proposal
from agentprm_core.improve.reference import Reference
from agentprm_core.policy.models import Checkpoint
from agentprm_core.training.attention import packed_attention
from agentprm_core.training.packing import pack
from tests.model import text_world


@pytest.fixture
def policy():
    renderer = text_world.renderer()
    return Checkpoint(text_world.small_model(renderer, seed=3).eval(), renderer.tokenizer, renderer, "")


def moved(policy):
    """π_{i−1}, after which the policy has moved on."""
    before = copy.deepcopy(policy.model)
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return before


def plain_kl(policy, before, history, tokens):
    """Σ over the action's tokens, of the row read on its own."""
    ids = torch.tensor([[*history, *tokens]])
    now, then = (m(input_ids=ids).logits[0, len(history) - 1 : -1] for m in (policy.model, before))
    return kl_divergence(Categorical(logits=now), Categorical(logits=then)).sum().item()


def two_actions(policy, episode):
    """Both ways out of every turn, as trees and as (history, tokens)."""
    rendered, choices, plain = policy.renderer.episode(episode.turns), [], []
    for turn in range(episode.length):
        tokens = [
            (*policy.renderer.action_text(a), policy.renderer.stop_token) for a in ("take mug", "go to cabinet 1")
        ]
        proposals = tuple(Proposal(str(t), "", t, 0.0) for t in tokens)
        choices.append(Choice(turn, proposals, (0.9, 0.1)))
        plain += [(rendered.input_ids[: rendered.action_starts[turn]], t) for t in tokens]
    return choice_row(rendered, choices), plain


def test_token_kl_is_the_closed_form_and_zero_for_the_same():
    a, b = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(0)) * 3
    expected = kl_divergence(Categorical(logits=a), Categorical(logits=b))
    torch.testing.assert_close(kl.token_kl(a, b), expected)
    torch.testing.assert_close(kl.token_kl(a, a + 4.0), torch.zeros(5), atol=1e-5, rtol=0)


@pytest.mark.parametrize("objective", [dpo_objective, soft_objective])
def test_preferences_log_the_kl_of_plain_rows(policy, objective):
    before, episode = moved(policy), text_world.play(0, 0, skill=0.3)
    row, plain = two_actions(policy, episode)
    batch = pack([row])
    batch = Reference(before).refer(batch, batch.branch >= 0)
    with packed_attention(policy.model):
        total, actions = objective(policy.model, batch, 0.1).metrics["kl"]
    assert actions == len(plain)
    assert total.item() == pytest.approx(sum(plain_kl(policy, before, *row) for row in plain), rel=1e-4)


def test_the_policy_gradients_kl_is_that_of_plain_rows_and_pulls_back(policy):
    before, episode = moved(policy), text_world.play(0, 0, skill=0.3)
    batch = pack([RowWriter(policy).row(episode, np.zeros(episode.length))])
    batch = Reference(before).refer(batch, batch.columns.decided > 0)
    with packed_attention(policy.model):
        losses = gradient_objective(policy.model, batch, beta=2.0, clip=0.2)
    rendered = policy.renderer.episode(episode.turns)
    spans = zip(rendered.action_starts, rendered.action_ends)
    expected = sum(plain_kl(policy, before, rendered.input_ids[:a], rendered.input_ids[a : z + 1]) for a, z in spans)
    assert losses.metrics["kl"][0].item() == pytest.approx(expected, rel=1e-4)
    assert losses.total.item() == pytest.approx(2 * expected, rel=1e-4)
    losses.total.backward()
    assert max(p.grad.abs().max() for p in policy.model.parameters()) > 0


def test_an_action_that_became_improbable_does_not_explode():
    """π avoids what π_{i−1} said half of the time: r − 1 − log r of that token is e^20, the KL is log 2."""
    reference, logits = torch.zeros(1, 2), torch.tensor([[20.0, 0.0]])
    log_ratio = logits.log_softmax(-1)[0, 1] - reference.log_softmax(-1)[0, 1]
    assert torch.expm1(-log_ratio) + log_ratio > 1e8
    assert kl.token_kl(logits, reference).item() == pytest.approx(np.log(2), rel=1e-4)


def test_a_large_vocabulary_is_measured_at_a_sample_of_the_tokens(monkeypatch):
    monkeypatch.setattr(kl, "LOGITS_KEPT", 4000)
    at = kl.measured(1000, 10)
    assert len(at) == len(set(at.tolist())) == 400
    assert len(kl.measured(300, 10)) == 300
    logits, reference = torch.randn(2, 1000, 10, generator=torch.Generator().manual_seed(1))
    batch = SimpleNamespace(measured=at, reference_logits=reference[at])
    exact = kl.token_kl(logits, reference).sum().item()
    assert kl.kl_sum(logits, batch).item() == pytest.approx(exact, rel=0.1)
