"""Slots follow from the memory given to key-value caches, the weights of players from device and precision."""

from types import SimpleNamespace

import pytest
import torch

from agentprm_core.policy.runner import cache_bytes
from tasks.frame import compute
from tasks.frame.compute import load_player, playing_dtype, slots
from tasks.frame.stage import StageError
from tests.model import toy


def stage(cache_mb):
    return SimpleNamespace(params=SimpleNamespace(compute=SimpleNamespace(cache_mb=cache_mb)))


def test_as_many_slots_as_asked_for_or_as_fit():
    policy = toy.policy()
    of_one = cache_bytes(policy.model, 512) / 2**20
    assert slots(stage(1000 * of_one), policy, 128, 512) == 128
    assert slots(stage(10 * of_one), policy, 128, 512) == 10
    assert slots(stage(10 * of_one), policy, 128, 512, caches=2) == 5


def test_every_process_has_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    threads = torch.get_num_threads()
    compute.use(SimpleNamespace(device="cuda", processes=2, threads=threads))
    compute.use(SimpleNamespace(device="cpu", processes=3, threads=threads))
    with pytest.raises(StageError, match=r"compute.processes is 3, and torch sees 2 GPU here"):
        compute.use(SimpleNamespace(device="cuda", processes=3, threads=threads))


def test_a_budget_without_a_slot_is_named():
    with pytest.raises(
        StageError, match=r"compute.cache_mb is 0.001: a cache of 0.001 MiB holds no slot of 512 tokens"
    ):
        slots(stage(0.001), toy.policy(), 128, 512)


@pytest.mark.parametrize(
    ("device", "precision", "dtype"),
    [
        ("cuda", "bfloat16", torch.bfloat16),
        ("cuda:1", "bfloat16", torch.bfloat16),
        ("cuda", "float32", torch.float32),
        ("cpu", "bfloat16", torch.float32),
        ("cpu", "float32", torch.float32),
    ],
)
def test_players_are_in_bfloat16_on_a_gpu_alone(device, precision, dtype):
    assert playing_dtype(SimpleNamespace(device=device, precision=precision)) == dtype


def test_both_kinds_of_player_are_loaded_so(checkpoints, monkeypatch):
    monkeypatch.setattr(compute, "playing_dtype", lambda where: torch.bfloat16)
    for kind in ("policy", "prm"):
        model = load_player(checkpoints / kind, SimpleNamespace(device="cpu", precision="bfloat16"), kind).model
        assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
