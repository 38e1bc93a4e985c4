"""GAE targets: closed forms, the definition as a double loop, padding, gradients, bad input."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentprm_core.credit.gae import gae_targets


def batch(seed, rows=5, longest=7):
    rng = torch.Generator().manual_seed(seed)
    values = torch.rand(rows, longest, generator=rng, dtype=torch.float64)
    lengths = torch.randint(1, longest + 1, (rows,), generator=rng)
    outcomes = torch.randint(0, 2, (rows,), generator=rng).double()
    return values, lengths, outcomes


def by_definition(m, r, gamma, gae_lambda):
    """One episode: the sums as the paper writes them."""
    last = len(m) - 1
    before = [0.0, *m[:-1]]
    delta = [(r if t == last else gamma * m[t]) - before[t] for t in range(last + 1)]
    advantage = [sum((gamma * gae_lambda) ** k * delta[t + k] for k in range(last + 1 - t)) for t in range(last + 1)]
    return [a + b for a, b in zip(advantage, before)], advantage


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    gamma=st.floats(0.1, 1.0),
    gae_lambda=st.floats(0.0, 1.0),
)
def test_equals_the_double_loop(seed, gamma, gae_lambda):
    values, lengths, outcomes = batch(seed)
    got = gae_targets(values, lengths, outcomes, gamma=gamma, gae_lambda=gae_lambda)
    for b, n in enumerate(lengths.tolist()):
        q, advantage = by_definition(values[b, :n].tolist(), outcomes[b].item(), gamma, gae_lambda)
        torch.testing.assert_close(got.q_BT[b, :n].tolist(), q, rtol=0, atol=1e-12)
        torch.testing.assert_close(got.advantage_BT[b, :n].tolist(), advantage, rtol=0, atol=1e-12)
        assert got.mask_BT[b].tolist() == [True] * n + [False] * (values.shape[1] - n)
    assert not got.q_BT[~got.mask_BT].any() and not got.advantage_BT[~got.mask_BT].any()
    torch.testing.assert_close(got.q_BT, (got.advantage_BT + got.before_BT) * got.mask_BT)


def test_closed_forms():
    values, lengths, outcomes = batch(1)
    whole = gae_targets(values, lengths, outcomes, gamma=1, gae_lambda=1)
    torch.testing.assert_close(whole.q_BT, outcomes[:, None] * whole.mask_BT)
    torch.testing.assert_close(whole.advantage_BT, (outcomes[:, None] - whole.before_BT) * whole.mask_BT)

    one_step = gae_targets(values, lengths, outcomes, gamma=0.9, gae_lambda=0)
    last = torch.arange(values.shape[1]) == lengths[:, None] - 1
    by_hand = torch.where(last, outcomes[:, None], 0.9 * values) * one_step.mask_BT
    torch.testing.assert_close(one_step.q_BT, by_hand)

    gamma, gae_lambda, m, r = 0.9, 0.8, values[0], outcomes[0]
    between = gae_targets(m[None], torch.tensor([7]), r[None], gamma=gamma, gae_lambda=gae_lambda)
    for t in range(7):
        mixed = sum((1 - gae_lambda) * gamma * (gamma * gae_lambda) ** k * m[t + k] for k in range(6 - t))
        torch.testing.assert_close(between.q_BT[0, t], mixed + (gamma * gae_lambda) ** (6 - t) * r)


def test_what_lies_in_the_padding_does_not_matter():
    values, lengths, outcomes = batch(2)
    outside = torch.arange(values.shape[1]) >= lengths[:, None]
    a = gae_targets(values, lengths, outcomes, gamma=0.95, gae_lambda=0.95)
    b = gae_targets(values.masked_fill(outside, 1e6), lengths, outcomes, gamma=0.95, gae_lambda=0.95)
    torch.testing.assert_close(a.q_BT, b.q_BT)
    torch.testing.assert_close(a.advantage_BT, b.advantage_BT)


def test_targets_carry_no_gradient_and_keep_the_dtype():
    values, lengths, outcomes = batch(3)
    got = gae_targets(values.float().requires_grad_(), lengths, outcomes, gamma=1, gae_lambda=0.95)
    assert not got.q_BT.requires_grad and got.q_BT.dtype == torch.float32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gamma": 1.5}, r"gamma 1.5 is not in \(0, 1\]"),
        ({"gae_lambda": -0.1}, r"gae_lambda -0.1 is not in \[0, 1\]"),
        ({"lengths_B": torch.tensor([0, 7, 1, 1, 1])}, "lengths must lie in 1 … 7"),
        ({"lengths_B": torch.tensor([8, 7, 1, 1, 1])}, "lengths must lie in 1 … 7"),
        ({"outcomes_B": torch.ones(4)}, r"outcomes must be \[5\], one an episode, not \[4\]"),
        ({"values_BT": torch.ones(5)}, r"values must be \[episodes, turns\] and not empty, not \(5,\)"),
    ],
)
def test_bad_input(changes, message):
    values, lengths, outcomes = batch(4)
    given_ = dict(values_BT=values, lengths_B=lengths, outcomes_B=outcomes, gamma=1.0, gae_lambda=0.95)
    with pytest.raises(ValueError, match=message):
        gae_targets(**given_ | changes)
