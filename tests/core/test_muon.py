"""The joint optimizer is its two parts, learns, and continues from a saved state."""

import copy

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from agentprm_core.training.muon import MuonWithAdamW


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
