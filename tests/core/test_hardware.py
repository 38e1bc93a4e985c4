"""How a step is cut into passes: none of its tokens is lost, none is too large, and every process has as many."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentprm_core.training.hardware import Hardware

PLAIN = Hardware(optimizer="adamw", precision="float32", pass_tokens=1000, save_every=5)


def passes(batch_tokens: int, alone: bool = False, **changes: object) -> dict:
    how = {"learning_rate": 0.1, "batch_tokens": batch_tokens, "seed": 3, "alone": alone}
    return replace(PLAIN, **changes).settings(**how)


@pytest.mark.parametrize(
    ("tokens", "processes", "cut"),
    [(1000, 1, (1000, 1)), (1001, 1, (500, 2)), (4000, 1, (1000, 4)), (900, 2, (450, 2)), (2400, 2, (600, 4))],
)
def test_a_step_in_passes(tokens, processes, cut):
    found = passes(tokens, processes=processes)
    assert (found["batch_tokens"], found["accumulation"]) == cut


@given(st.integers(64, 10**6), st.integers(16, 10**5), st.integers(1, 8))
def test_the_tokens_of_a_step_are_kept(batch_tokens, pass_tokens, processes):
    found = passes(batch_tokens, pass_tokens=pass_tokens, processes=processes)
    each, count = found["batch_tokens"], found["accumulation"]
    assert 0 < each <= pass_tokens
    assert count % processes == 0
    assert batch_tokens - count < each * count <= batch_tokens
    fewer = count - processes
    assert fewer == 0 or fewer * pass_tokens < batch_tokens, "no more passes than are needed"


def test_alone_it_is_one_process_without_shards():
    several = {"processes": 4, "sharding": "fsdp2"}
    shared, alone = passes(2000, **several), passes(2000, alone=True, **several)
    assert (shared["processes"], shared["sharding"], shared["accumulation"]) == (4, "fsdp2", 4)
    assert (alone["processes"], alone["sharding"], alone["accumulation"]) == (1, "none", 2)


def test_all_else_is_handed_on():
    found = passes(1000, gradient_checkpointing=True)
    assert {**found, "batch_tokens": 0, "accumulation": 0} == {
        "optimizer": "adamw", "learning_rate": 0.1, "batch_tokens": 0, "accumulation": 0, "save_every": 5,
        "precision": "float32", "gradient_checkpointing": True, "seed": 3, "processes": 1, "sharding": "none",
    }  # fmt: skip
