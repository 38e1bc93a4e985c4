"""Rates of a GPU for :mod:`benchmarks.gpu`: large products, the sampler, and training of two sizes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agentprm_core.improve.sft import SftSettings, train_sft
from agentprm_core.planning.memory import Training
from agentprm_core.planning.shapes import ModelShape
from agentprm_core.planning.work import training_flops
from agentprm_core.policy.models import Checkpoint, new_model
from agentprm_core.policy.prompt import make_renderer
from agentprm_core.policy.runner import CachedModel, cache_bytes
from agentprm_core.policy.tokenizer import train_tokenizer
from agentprm_core.rollout import play, starts
from agentprm_core.shards.processes import Processes
from agentprm_core.training.packing import Row
from agentprm_core.types import Game
from agentprm_core.worlds import make_world
from agentprm_core.worlds.alfworld.expert import play_expert
from agentprm_core.worlds.alfworld.households import generate_games
from benchmarks.shards import SETTINGS, measured
from benchmarks.training_loops import sft_steps

PEAKS = {"H200": 989.0, "H100": 989.0, "A100": 312.0, "L40S": 362.0, "L4": 121.0, "4090": 165.0}
"""TFLOP/s of dense bfloat16 products in the data sheets, by a part of the device's name."""
CAMPAIGN = 70_000
"""Episodes: paper A's."""
ROW = 512
"""Tokens of a row in training."""


@dataclass(frozen=True)
class Size:
    """A model to train."""

    shape: ModelShape
    batch_tokens: int
    steps: int
    passes: int = 1
    """Forward passes of a step, so that one fits into 80 GB."""


SIZES = {
    "100M": Size(ModelShape(12, 768, 2304, 12, 4, 64, 8192, True), 65_536, 12, 1),
    "1B": Size(ModelShape(18, 2048, 6144, 16, 8, 128, 8192, True), 65_536, 6, 4),
}
SMALL = {
    "0.3M": Size(ModelShape(2, 96, 288, 3, 1, 32, 512, True), 2048, 4),
    "1M": Size(ModelShape(3, 160, 480, 5, 1, 32, 512, True), 2048, 4),
}


def seconds_of(function: Callable[[], object], device: str, repeats: int) -> float:
    """Median of ``repeats`` calls after two that warm up; the device is waited for."""
    taken = []
    for number in range(repeats + 2):
        wait_for(device)
        begun = time.perf_counter()
        function()
        wait_for(device)
        if number > 1:
            taken.append(time.perf_counter() - begun)
    return float(np.median(taken))


def wait_for(device: str) -> None:
    """Until all that was asked of it is done."""
    if device == "cuda":
        torch.cuda.synchronize()


def products(device: str, small: bool) -> dict:
    """TFLOP/s of one large product in bfloat16."""
    side = 512 if small else 8192
    square = torch.randn(side, side, device=device, dtype=torch.bfloat16)
    seconds = seconds_of(lambda: square @ square, device, 5 if small else 30)
    return {"side": side, "tflops": round(2 * side**3 / seconds / 1e12, 2)}


def rollouts(device: str, small: bool) -> dict:
    """Turns a second by episodes at once, then by processes that share the device, and the minutes that
    :data:`CAMPAIGN` episodes would take."""
    slots_tried = (8, 16) if small else (512, 1024, 2048, 4096)
    policy = trained_policy(device, *((24, 6) if small else (600, 150)))
    games = generate_games(8 if small else 512, 1, "unseen")
    figures: dict = {}
    for slots in slots_tried:
        begun = starts(games, max(1, 2 * slots // len(games)), 1)
        at = time.perf_counter()
        episodes = list(play(SETTINGS.sampler(policy, 1.0, slots), begun, **SETTINGS.worlds))
        wait_for(device)
        turns = sum(episode.length for episode in episodes)
        figures[f"{slots} at once"] = {
            **_rate(turns / (time.perf_counter() - at), turns / len(episodes)),
            "turns_an_episode": round(turns / len(episodes), 1),
            "cache_mb": round(slots * cache_bytes(policy.model, SETTINGS.context) / 2**20),
        }
    for count in (2,) if small else (4, 8, 16):
        rate = players(policy, games, slots_tried[0], count)
        figures[f"{count} players of {slots_tried[0]}"] = _rate(rate, turns / len(episodes))
    return figures


def players(policy: Checkpoint, games: list[Game], slots: int, count: int) -> float:
    """Turns a second of ``count`` processes that play on one device, ``slots`` episodes at once each."""
    size = 2 * slots
    begun = starts(games, -(-3 * size * count // len(games)), 2)
    portions = [(begun[at : at + size],) for at in range(0, len(begun), size)]
    pool = Processes(count, threads=1, device=policy.model.device.type)
    try:
        measured(pool, policy, portions[:count], slots)  # wakes them up
        return measured(pool, policy, portions, slots)[0]
    finally:
        pool.close()


def _rate(turns_per_s: float, turns_an_episode: float) -> dict:
    minutes = CAMPAIGN * turns_an_episode / turns_per_s / 60
    return {"turns_per_s": round(turns_per_s), "minutes_for_70000": round(minutes, 2)}


def trained_policy(device: str, demos: int, steps: int) -> Checkpoint:
    """A policy of the default size that has seen ``demos`` demonstrations for ``steps`` steps, to play."""
    world = make_world("alfworld")
    played = [
        play_expert(world, game, SETTINGS.max_turns, n) for n, game in enumerate(generate_games(demos, 0, "train"))
    ]
    won = [episode for episode in played if episode.won]
    texts = {text for episode in won for turn in episode.turns for text in (turn.observation, *turn.admissible)}
    tokenizer = train_tokenizer(sorted(texts), SETTINGS.context)
    model = new_model(tokenizer, width=128, layers=4, heads=4, kv_heads=2, context=SETTINGS.context, seed=0)
    model.to(device)
    settings = SftSettings(1e-3, 2048, 0, steps=steps, optimizer="muon")
    with tempfile.TemporaryDirectory() as scratch:
        train_sft(won, make_renderer(tokenizer), model, settings, Path(scratch))
    model.to(torch.bfloat16)
    return Checkpoint(model.eval(), tokenizer, make_renderer(tokenizer), "")


def campaign_rollouts(device: str, small: bool) -> dict:
    """Turns a second and minutes of :data:`CAMPAIGN` episodes that many processes play on one device, from the first
    portion's beginning to the last one's end."""
    count, slots, episodes = (2, 8, 64) if small else (16, 1024, CAMPAIGN)
    policy = trained_policy(device, *((24, 6) if small else (600, 150)))
    games = generate_games(8 if small else 512, 1, "unseen")
    begun = starts(games, -(-episodes // len(games)), 3)[:episodes]
    size = -(-len(begun) // count)
    portions = [(begun[at : at + size],) for at in range(0, len(begun), size)]
    pool = Processes(count, threads=1, device=device)
    try:
        measured(pool, policy, [(begun[:slots],)] * count, slots)  # wakes them up
        at = time.perf_counter()
        rate = measured(pool, policy, portions, slots)[0]
        minutes = (time.perf_counter() - at) / 60
    finally:
        pool.close()
    figures = {"players": count, "slots": slots, "episodes": len(begun)}
    return figures | {"turns_per_s": round(rate), "minutes": round(minutes, 2)}


def training(device: str, small: bool) -> dict:
    """Utilisation of each size, with layers as they are and compiled, and how much memory it took."""
    ways = ((name, size, compiled) for name, size in (SMALL if small else SIZES).items() for compiled in (False, True))
    return {
        name + " compiled" * compiled: _tried(device, size, compiled)
        for name, size, compiled in ways
        if device != "cpu" or not compiled  # for which a CPU takes minutes
    }


def _tried(device: str, size: Size, compiled: bool) -> dict:
    """What the other sizes show is not lost with one that fails."""
    try:
        return _utilisation(device, size, compiled)
    except Exception as error:
        return failed(error)


def failed(error: Exception) -> dict:
    """What a report has in place of figures."""
    return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}


def _utilisation(device: str, size: Size, compiled: bool) -> dict:
    shape, per_step = size.shape, size.batch_tokens // ROW
    rng = np.random.default_rng(0)
    rows = [Row(rng.integers(5, shape.vocabulary, ROW).astype(np.int32)) for _ in range(4 * per_step)]
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    found = sft_steps(
        lambda: model_of(shape, device),
        rows,
        size.batch_tokens,
        "bfloat16",
        size.steps,
        optimizer="adamw",
        passes=size.passes,
        compiled=compiled,
    )
    how = Training("bfloat16", "adamw", size.batch_tokens)
    flops = training_flops(shape, how, size.batch_tokens, ROW, size.batch_tokens)
    tflops, peak = flops * found["sft_steps_per_s"] / 1e12, peak_tflops(device)
    memory = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else None
    return {
        "parameters": shape.parameters,
        "tokens_per_s": round(size.batch_tokens * found["sft_steps_per_s"]),
        "tflops": round(tflops, 3),
        "utilisation": round(tflops / peak, 3),
        "of_tflops": round(peak, 1),
        "optimizer_share": round(found["optimizer_share"], 3),
        "peak_memory_gib": memory and round(memory, 1),
    }


def model_of(shape: ModelShape, device: str) -> LlamaForCausalLM:
    """Random weights of this shape, on the device."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head,
        max_position_embeddings=4096,
        tie_word_embeddings=shape.tied,
    )
    with torch.device(device):
        return LlamaForCausalLM(config)


def peak_tflops(device: str) -> float:
    """Of the data sheet; of the device's own large products where it is not listed."""
    name = torch.cuda.get_device_name(0) if device == "cuda" else ""
    listed = [tflops for part, tflops in PEAKS.items() if part in name]
    return listed[0] if listed else max(products(device, device == "cpu")["tflops"], 1e-3)


def cached(shape: ModelShape, device: str, slots: int) -> CachedModel:
    """A model of this shape with its cache, for steps of decoding."""
    model = model_of(shape, device).to(torch.bfloat16).eval()
    return CachedModel(model, slots=slots, context=SETTINGS.context)
