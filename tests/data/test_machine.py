"""Slots follow from the memory given to key-value caches, weights of players from the precision, processes from
the GPUs there are."""

import os
import subprocess
import sys
import warnings
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from agentprm_core.errors import DataError
from agentprm_core.policy.models import save_checkpoint
from agentprm_core.policy.runner import cache_bytes
from agentprm_core.prm.model import new_prm
from agentprm_core.search.decoding_config import decoding
from agentprm_core.search.playing import Search
from tasks.frame.machine import hardware, use
from tasks.frame.params import validate
from tasks.frame.quiet import quiet
from tasks.frame.sections import Parallel
from tasks.frame.stage import StageError
from tests.core.given import HARDWARE, PLAY, given
from tests.data.project import raw_params
from tests.model import toy


def play(cache_mb: float):
    return replace(PLAY, cache_mb=cache_mb, slots=128)


def test_as_many_slots_as_asked_for_or_as_fit():
    policy = toy.policy()
    of_one = cache_bytes(policy.model, 512) / 2**20
    assert play(1000 * of_one).fitting(policy) == 128
    assert play(10 * of_one).fitting(policy) == 10
    assert play(10 * of_one).fitting(policy, caches=2) == 5
    slots = [Search(decoding(name), play(10 * of_one), 1.0).slots(policy) for name in ("greedy", "best_of_4")]
    assert slots == [10, 5]


def test_nobody_hears_that_peft_uses_an_old_name():
    model = toy.policy().model
    with pytest.warns(FutureWarning, match="is_gradient_checkpointing"):
        assert not model.is_gradient_checkpointing
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        quiet()
        assert not model.is_gradient_checkpointing
    assert heard == []


def test_few_kernels_are_kept_where_shapes_change(monkeypatch):
    names = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
    compute = {"device": "cpu", "parallel": None, "threads": torch.get_num_threads()}
    for name in names:
        monkeypatch.setenv(name, "")  # so that it is unset again afterwards
        monkeypatch.delenv(name)
    use(SimpleNamespace(**compute, precision="float32"))
    assert not any(name in os.environ for name in names)
    monkeypatch.setenv(names[0], "200")
    use(SimpleNamespace(**compute, precision="bfloat16"))
    assert [os.environ[name] for name in names] == ["200", "64"]


@pytest.mark.parametrize("first", ["pass", "import transformers"])
def test_no_bars_where_nobody_watches(first):
    """Whether transformers is there before or comes later."""
    code = (
        f"{first}; from tasks.frame.quiet import quiet; quiet();"
        "from transformers.utils import logging; print(logging.is_progress_bar_enabled())"
    )
    # tests before this one may have silenced this process
    env = {name: value for name, value in os.environ.items() if name != "HF_HUB_DISABLE_PROGRESS_BARS"}
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env).stdout
    assert said.strip() == "False"


def test_every_process_has_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    compute = {"device": "cuda", "parallel": None, "threads": torch.get_num_threads(), "precision": "float32"}
    use(SimpleNamespace(**compute))
    use(SimpleNamespace(**compute | {"parallel": Parallel(2, "none")}))
    use(SimpleNamespace(**compute | {"parallel": Parallel(3, "none"), "device": "cpu"}))
    with pytest.raises(StageError, match=r"compute.parallel.processes is 3, and torch sees 2 GPU here"):
        use(SimpleNamespace(**compute | {"parallel": Parallel(3, "none")}))


def test_a_device_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(StageError, match=r"compute.device is 'cuda', and torch sees no GPU here"):
        use(SimpleNamespace(device="cuda", parallel=None, threads=torch.get_num_threads()))


def test_a_budget_without_a_slot_is_named():
    said = r"compute.cache_mb is 0.001: a cache of 0.001 MiB holds no slot of 512 tokens"
    with pytest.raises(DataError, match=said):
        play(0.001).fitting(toy.policy())


def test_a_cache_too_small_for_the_beam_is_named():
    policy = toy.policy()
    small = play(2 * 3.5 * cache_bytes(policy.model, 512) / 2**20)
    assert Search(decoding("best_of_4"), small, 1.0).slots(policy) == 3
    with pytest.raises(DataError, match=r"compute.cache_mb is .*: 2 caches of 3 slots of 512 tokens .*width 4 needs 4"):
        Search(decoding("beam_4x4"), small, 1.0).slots(policy)


def test_players_are_in_bfloat16_and_the_trainee_is_not(tmp_path):
    policy, data = toy.policy(), given(tmp_path)
    data = replace(data, hardware=replace(data.hardware, precision="bfloat16"))
    save_checkpoint(policy.model, policy.tokenizer, data.folders.policy)
    save_checkpoint(new_prm(policy.model), policy.tokenizer, data.folders.prm, kind="prm")
    for player in (data.policy, data.prm):
        assert {weight.dtype for weight in player.model.parameters()} == {torch.bfloat16}
    assert {weight.dtype for weight in data.trainee.model.parameters()} == {torch.float32}


def test_how_it_trains_is_what_params_say():
    several = {"parallel": {"processes": 2, "sharding": "fsdp2"}, "pass_tokens": 512, "save_every": 7}
    params = validate(raw_params(compute=several, model={"optimizer": "adamw"}), "params.yaml")
    assert hardware(params) == replace(HARDWARE, pass_tokens=512, save_every=7, processes=2, sharding="fsdp2")
    assert hardware(validate(raw_params(), "params.yaml")).processes == 1
    published = validate(raw_params("llama3b"), "params.yaml")
    assert hardware(published).gradient_checkpointing
