"""What other attention kernels and CUDA graphs gain, each alone, for :mod:`benchmarks.gpu`.

The pipeline uses none but the attention kernel for rows of different lengths, on a GPU that has it. A gain is the plain
way's seconds over the other's: above 1 it is worth having.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from agentprm_core.planning.shapes import ModelShape
from agentprm_core.policy.runner import CachedModel, Extension
from agentprm_core.policy.slot_attention import Plan
from agentprm_core.training.attention import Blocks, attend_packed, forward_blocks
from agentprm_core.training.packing import Row, pack
from benchmarks.gpu_rates import cached, failed, seconds_of

_HEADS, _KV_HEADS, _HEAD = 12, 4, 64


def attention_kernels(device: str, small: bool) -> dict:
    """Packed causal attention over rows of episodes' lengths, forward and backward. ``ours`` is what training uses,
    ``padded`` what it uses where the kernel for rows does not run: a gain is that over it."""
    tokens = 1024 if small else 65_536
    rng = np.random.default_rng(0)
    lengths: list[int] = []
    while sum(lengths) < tokens:
        lengths.append(int(rng.integers(80, 420)))
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    qkv = [
        torch.randn(1, heads, sum(lengths), _HEAD, device=device, dtype=dtype, requires_grad=True)
        for heads in (_HEADS, _KV_HEADS, _KV_HEADS)
    ]
    ways = {"padded": _padded, "ours": _ours, "flex": _flex}
    found: dict = {"tokens": sum(lengths), "rows": len(lengths)}
    results: dict[str, torch.Tensor] = {}
    for name, way in ways.items():
        if name == "flex" and device == "cpu":
            found[name] = {"skipped": "on a CPU"}
            continue
        try:
            attend = way(lengths, device)
            results[name] = attend(*qkv).detach().float()
            seconds = seconds_of(lambda attend=attend: attend(*qkv).float().sum().backward(), device, 5)
            found[name] = {"ms": _ms(seconds)}
        except Exception as error:  # a kernel that this version of torch has not
            found[name] = failed(error)
    for name in sorted(set(results) - {"padded"}):
        found[name]["gain"] = round(found["padded"]["ms"] / found[name]["ms"], 2)
        found[name]["difference"] = round(float((results[name] - results["padded"]).abs().max()), 4)
    return found


Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""[1, H, N, D] queries, [1, K, N, D] keys and values → [1, N, H, D]."""


def _padded(lengths: list[int], device: str) -> Attend:
    return _packed(replace(_blocks(lengths, device), rows=None))


def _ours(lengths: list[int], device: str) -> Attend:
    return _packed(_blocks(lengths, device))


def _packed(blocks: Blocks) -> Attend:
    nothing = torch.empty(0)
    return lambda q, k, v: attend_packed(None, q, k, v, nothing, _HEAD**-0.5, blocks)[0]


def _blocks(lengths: list[int], device: str) -> Blocks:
    return forward_blocks(pack([Row(np.zeros(length, np.int32)) for length in lengths]).to(torch.device(device)))


def _flex(lengths: list[int], device: str) -> Attend:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    row = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)).to(device)

    def seen(b, h, q, k):
        return (row[q] == row[k]) & (q >= k)

    mask = create_block_mask(seen, None, None, len(row), len(row), device=device)
    compiled = torch.compile(flex_attention)
    return lambda q, k, v: compiled(q, k, v, block_mask=mask, enable_gqa=True).transpose(1, 2)


def decoding_graph(device: str, small: bool) -> dict:
    """One decoding step of many conversations, plain and replayed as a CUDA graph."""
    shape = ModelShape(4, 128, 384, 4, 2, 32, 2000, True)
    slots = 16 if small else 1024
    runner = cached(shape, device, slots)
    extensions = _open(runner, slots, history=16 if small else 200)
    plain = seconds_of(lambda: _step(runner, extensions), device, 5 if small else 20)
    found = {"conversations": slots, "plain_ms": _ms(plain)}
    if device == "cpu":
        return found | {"skipped": "graphs need a GPU"}
    layers, replay = _captured(runner, extensions)
    eager, graph = seconds_of(layers, device, 20), seconds_of(replay, device, 20)
    return found | {"layers_ms": _ms(eager), "graph_ms": _ms(graph), "gain": round(eager / graph, 2)}


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 3)


def _open(runner: CachedModel, slots: int, history: int) -> list[Extension]:
    opened = [runner.cache.open() for _ in range(slots)]
    runner.extend([Extension(slot, [5 + (slot + n) % 900 for n in range(history)]) for slot in opened])
    return [Extension(slot, [7]) for slot in opened]


def _step(runner: CachedModel, extensions: list[Extension]) -> torch.Tensor:
    hidden = runner.extend(extensions)
    for extension in extensions:  # every step is the same one
        runner.cache.cut(extension.slot, runner.cache.lengths[extension.slot] - 1)
    return runner.head(hidden)


@torch.inference_mode()
def _captured(runner: CachedModel, extensions: list[Extension]) -> tuple[Callable[[], object], Callable[[], None]]:
    """The device's part of a step, layers and head with the arguments that one step had: plain, and as a graph."""
    seen: list[tuple] = []
    trunk = runner._trunk

    def remembered(*arguments: torch.Tensor | Plan) -> torch.Tensor:
        seen.append(arguments)
        return trunk(*arguments)

    runner._trunk = remembered  # type: ignore[assignment]
    _step(runner, extensions)
    runner._trunk = trunk
    arguments, graph = seen[0], torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        runner.head(trunk(*arguments))
    return torch.inference_mode()(lambda: runner.head(trunk(*arguments))), graph.replay
