"""Muon against a slow one in float64 and against PyTorch's; the joint optimizer learns and continues from a state."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.optim import Muon
from torch.optim.lr_scheduler import LambdaLR

from agentprm_core.training.muon import MuonWithAdamW, fast_precision, orthogonalised, step_matrices


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(7, 8), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))


def train(model: nn.Module, optimizer: MuonWithAdamW, steps: int, begin: int = 0) -> float:
    schedule = LambdaLR(optimizer, lambda step: 0.98 ** (begin + step))
    for _ in range(steps):
        loss = ((model(torch.arange(7))[:, 0] - torch.arange(7) / 7) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return float(loss.detach())


def test_each_part_has_its_parameters_and_rate():
    model = net()
    optimizer = MuonWithAdamW(model, 1e-3)
    muon, adamw = optimizer.param_groups
    assert [p.shape for p in muon["params"]] == [(8, 8)], "only the hidden matrix is orthogonalised"
    assert len(adamw["params"]) == 4
    assert muon["lr"] == 10 * adamw["lr"]


def test_it_learns():
    model = net()
    optimizer = MuonWithAdamW(model, 1e-2)
    assert train(model, optimizer, 200) < 1e-3 < train(net(), MuonWithAdamW(net(), 1e-2), 1)


def test_a_loaded_state_goes_on_as_if_never_stopped():
    whole = net()
    optimizer = MuonWithAdamW(whole, 1e-2)
    train(whole, optimizer, 5)
    resumed = copy.deepcopy(whole)
    again = MuonWithAdamW(resumed, 1e-2)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(whole, optimizer, 5)
    train(resumed, again, 5)
    for a, b in zip(whole.parameters(), resumed.parameters()):
        assert torch.equal(a, b)


def slow_step(weight, gradients, rate):
    """Muon's steps by the paper, one matrix at a time, in float64."""
    w, momentum = weight.double(), torch.zeros_like(weight, dtype=torch.float64)
    for gradient in gradients:
        g = gradient.double()
        momentum = 0.95 * momentum + 0.05 * g
        x = 0.05 * g + 0.95 * momentum
        x = x / max(float(x.square().sum().sqrt()), 1e-7)
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        w = w - rate * max(1, w.shape[0] / w.shape[1]) ** 0.5 * x
    return w


def steps(weights, gradients, rate):
    """Of several matrices together."""
    matrices = [nn.Parameter(w.clone()) for w in weights]
    state = {p: {} for p in matrices}
    with torch.no_grad():
        for now in gradients:
            for p, g in zip(matrices, now):
                p.grad = g.clone()
            step_matrices(matrices, state, rate)
    return [p.detach() for p in matrices]


SHAPES = st.lists(st.tuples(st.integers(2, 9), st.integers(2, 9)), min_size=1, max_size=6)


def problem(shapes, seed):
    random = torch.Generator().manual_seed(seed)
    weights = [torch.randn(shape, generator=random) for shape in shapes]
    return weights, [[torch.randn(shape, generator=random) for shape in shapes] for _ in range(3)]


@settings(max_examples=50)
@given(SHAPES, st.integers(0, 9))
def test_matrices_stepped_together_are_those_stepped_slowly_alone(shapes, seed):
    weights, gradients = problem(shapes, seed)
    for number, found in enumerate(steps(weights, gradients, 0.1)):
        slow = slow_step(weights[number], [now[number] for now in gradients], 0.1)
        torch.testing.assert_close(found.double(), slow, atol=1e-4, rtol=1e-4)


def test_the_update_is_pytorchs_up_to_its_precision():
    shapes = [(128, 128), (64, 128), (384, 128), (128, 384), (128, 128)]
    weights, gradients = problem(shapes, 0)
    theirs = [nn.Parameter(w.clone()) for w in weights]
    optimizer = Muon(theirs, lr=0.1, weight_decay=0.0, momentum=0.95)
    for now in gradients:
        for p, g in zip(theirs, now):
            p.grad = g.clone()
        optimizer.step()
    for begin, ours, other in zip(weights, steps(weights, gradients, 0.1), theirs):
        moved = (ours - begin).norm()
        assert (ours - other.detach()).norm() < 0.02 * moved  # it computes in bfloat16


def test_singular_values_come_near_one_and_their_directions_stay():
    u, s, vt = torch.linalg.svd(torch.randn(2, 16, 40, generator=torch.Generator().manual_seed(0)), full_matrices=False)
    found = orthogonalised(u @ torch.diag_embed(s) @ vt)
    through = u.mT @ found @ vt.mT
    torch.testing.assert_close(through, torch.diag_embed(through.diagonal(dim1=1, dim2=2)), atol=1e-4, rtol=0)
    assert ((through.diagonal(dim1=1, dim2=2) - 1).abs() < 0.35).all()


def test_a_gradient_of_nothing_moves_nothing():
    weight = torch.randn(4, 6)
    (found,) = steps([weight], [[torch.zeros(4, 6)]], 0.1)
    assert torch.equal(found, weight)


@pytest.mark.parametrize(("capability", "precision"), [((8, 0), torch.bfloat16), ((7, 5), torch.float32)])
def test_the_device_and_the_trainings_precision_decide(monkeypatch, capability, precision):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert fast_precision(torch.device("cuda", 0)) == precision
    assert fast_precision(torch.device("cpu")) == torch.float32
    assert fast_precision(torch.device("cpu"), "bfloat16") == torch.bfloat16


def test_a_training_in_bfloat16_makes_its_updates_in_it():
    weights, gradients = problem([(32, 48)], 0)
    moved = {}
    for precision in ("float32", "bfloat16"):
        linear = nn.Linear(48, 32)
        linear.weight.data, linear.weight.grad = weights[0].clone(), gradients[0][0].clone()
        MuonWithAdamW(linear, 0.01, precision).step()
        moved[precision] = linear.weight.detach() - weights[0]
    apart = (moved["bfloat16"] - moved["float32"]).norm() / moved["float32"].norm()
    assert 0 < apart < 0.02
