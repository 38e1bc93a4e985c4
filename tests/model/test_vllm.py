"""vLLM itself, where one is installed: adapters that are loaded while it runs play as they do here, with the same
log-probabilities.

It needs an environment of its own (docs/performance.md, Servers). AGENTPRM_VLLM_PYTHON names its interpreter.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from peft import LoraConfig, get_peft_model

from agentprm_core.policy.models import Checkpoint, load_checkpoint, save_checkpoint
from agentprm_core.policy.sampler import Sampler
from agentprm_core.policy.server import ServerPlayer, Servers, served_name
from agentprm_core.rollout import play, starts
from tests.model.served_by_transformers import answers
from tests.model.test_chat_served import SPEC, made
from tests.waiting import free_port, until

VLLM = os.environ.get("AGENTPRM_VLLM_PYTHON")
HOW = {"context": 2048, "max_action_tokens": 64}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not VLLM, reason="AGENTPRM_VLLM_PYTHON names no interpreter of an environment with vLLM"),
]


@contextmanager
def vllm(base: Path) -> Iterator[str]:
    """The address, up to ``/v1``, of a vLLM that serves ``base`` and takes adapters while it runs."""
    port = free_port()
    command = [str(VLLM), "-m", "vllm.entrypoints.openai.api_server", "--model", str(base)]
    command += ["--generation-config", "vllm"]
    command += ["--enable-lora", "--max-lora-rank", "16", "--dtype", "float32", "--max-model-len", "2048"]
    command += ["--no-enable-chunked-prefill", "--max-num-batched-tokens", "4096"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    quiet = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    with (base.parent / "vllm.log").open("w") as log:
        allowed = {**os.environ, **quiet, "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}
        server = subprocess.Popen(command, env=allowed, stdout=log, stderr=log)
    try:
        said = (base.parent / "vllm.log").read_text
        until(lambda: answers(f"http://127.0.0.1:{port}/health"), 600, said, server, every=1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait()


def adapted(base: Path, folder: Path) -> Checkpoint:
    """A policy with a LoRA adapter on ``base`` that changes what it says."""
    model = load_checkpoint(base, prompt=SPEC.prompt)
    config = LoraConfig(
        r=4, target_modules=["q_proj", "down_proj"], base_model_name_or_path=str(base), init_lora_weights=False
    )
    save_checkpoint(get_peft_model(model.model, config), model.tokenizer, folder)
    return load_checkpoint(folder, prompt=SPEC.prompt)


def test_vllm_plays_each_adapter_as_the_sampler_does(tmp_path):
    base, games = made(tmp_path, 150), SPEC.generate(4, 5, "unseen")
    policies = [adapted(base, tmp_path / str(number)) for number in range(3)]
    said = set()
    with vllm(base) as address:
        for policy in policies:
            there = Servers((address,)).endpoint(policy)
            with ServerPlayer(there, seats=4, temperature=0.0, **HOW) as player:
                served = list(play(player, starts(games, 1, 3), world_name="babyai", max_turns=4))
            sampler = Sampler(policy, slots=4, constrained=False, temperature=0.0, **HOW)
            here = list(play(sampler, starts(games, 1, 3), world_name="babyai", max_turns=4))
            by_game = {episode.game_id: episode for episode in served}
            for episode in here:
                theirs = by_game[episode.game_id]
                assert [(t.action, t.reason) for t in episode.turns] == [(t.action, t.reason) for t in theirs.turns]
                assert theirs.extra["log_probs"] == pytest.approx(episode.extra["log_probs"], abs=1e-3)
            with ServerPlayer(there, seats=4, temperature=1.0, **HOW) as player:  # each request has a seed of its own
                assert len(list(play(player, starts(games, 2, 3), world_name="babyai", max_turns=4))) == 8
            said.add(tuple(turn.action for episode in here for turn in episode.turns))
        names = [model["id"] for model in httpx.get(f"{address}/models").json()["data"]]
    assert names == [str(base), *(served_name(policy.digest) for policy in policies[1:])], "the oldest is unloaded"
    assert len(said) == 3, "each adapter says something else"
