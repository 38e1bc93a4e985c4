"""Slots follow from the memory given to key-value caches."""

from types import SimpleNamespace

import pytest

from agentprm_core.policy.runner import cache_bytes
from tasks.compute import slots
from tasks.stage import StageError
from tests.model import toy


def stage(cache_mb):
    return SimpleNamespace(params=SimpleNamespace(compute=SimpleNamespace(cache_mb=cache_mb)))


def test_as_many_slots_as_asked_for_or_as_fit():
    policy = toy.policy()
    of_one = cache_bytes(policy.model, 512) / 2**20
    assert slots(stage(1000 * of_one), policy, 128, 512) == 128
    assert slots(stage(10 * of_one), policy, 128, 512) == 10
    assert slots(stage(10 * of_one), policy, 128, 512, caches=2) == 5


def test_a_budget_without_a_slot_is_named():
    with pytest.raises(
        StageError, match=r"compute.cache_mb is 0.001: a cache of 0.001 MiB holds no slot of 512 tokens"
    ):
        slots(stage(0.001), toy.policy(), 128, 512)
