"""One unattended run on a GPU: how fast it plays and trains, and what compilation, kernels and graphs would gain.

    python -m benchmarks.gpu --out gpu            # at most ten minutes; gpu/gpu.json and gpu/gpu.md
    python -m benchmarks.gpu --out gpu --small    # on a CPU in two minutes, to see that it runs

It needs torch, transformers, numpy and pyarrow. The parts that play need alfworld too. A part that fails is written
down with its error, and the next one runs. What was measured is written after each part, so a run that is stopped
leaves its results.

- ``rollouts``: turns a second of the sampler, by episodes at once and by processes that share the GPU, and
  the time that 70,000 episodes would take.
- ``campaign_rollouts``: 70,000 episodes by 16 processes.
- ``training``: FLOP utilisation of 100 million and 1 billion parameters in bfloat16, with layers as they are and
  compiled: 6 operations a weight and token, and attention, over the rate of the device's data sheet, or of its own
  large products where it is not listed.
- ``attention``, ``graph``: how many times as fast packed attention is with other kernels, and a decoding step as a CUDA
  graph.

``--parts training,graph`` measures these alone.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from agentprm_core.arguments import OneLineParser, above_zero, listed
from benchmarks import gpu_gains, gpu_rates

PARTS: dict[str, Callable[[str, bool], dict]] = {
    "products": gpu_rates.products,
    "rollouts": gpu_rates.rollouts,
    "campaign_rollouts": gpu_rates.campaign_rollouts,
    "training": gpu_rates.training,
    "attention": gpu_gains.attention_kernels,
    "graph": gpu_gains.decoding_graph,
}
"""By name, in the order that they run: (device, small) → figures."""


def measure(out: Path, device: str, small: bool, minutes: float, parts: Sequence[str] | None = None) -> dict:
    """Run ``parts``, or all, one after another and write what is known after each."""
    started = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    report: dict = {"machine": machine(device), "small": small}
    for name in parts or PARTS:
        begun = time.perf_counter()
        if begun - started > 60 * minutes:
            report[name] = {"skipped": f"{minutes:g} minutes are over"}
        else:
            report[name] = attempted(PARTS[name], device, small)
            report[name]["seconds"] = round(time.perf_counter() - begun, 1)
        (out / "gpu.json").write_text(json.dumps(report, indent=2) + "\n")
        (out / "gpu.md").write_text(table(report))
        print(f"{name}: {json.dumps(report[name])}", flush=True)
    return report


def attempted(part: Callable[[str, bool], dict], device: str, small: bool) -> dict:
    """The figures of a part, or its error: nobody is there to start it again. On a GPU each part has a process of its
    own: a failed kernel leaves a process that can use the GPU for nothing more."""
    try:
        if device == "cpu":
            return part(device, small)
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
            return process.submit(part, device, small).result()
    except Exception as error:
        traceback.print_exc()
        return gpu_rates.failed(error)


def machine(device: str) -> dict:
    """What it was measured on."""
    name = torch.cuda.get_device_name(0) if device == "cuda" else platform.processor() or platform.machine()
    return {"device": name, "torch": torch.__version__, "threads": torch.get_num_threads()}


def table(report: dict) -> str:
    """The report for people, in Markdown."""
    lines = [f"# {report['machine']['device']}, torch {report['machine']['torch']}", "", "| part | figure | value |"]
    lines.append("|---|---|---|")
    for part in PARTS:
        lines += [f"| {part} | {name} | {value} |" for name, value in _flat(report.get(part, {}))]
    return "\n".join(lines) + "\n"


def _flat(figures: dict, before: str = "") -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for name, value in figures.items():
        found += _flat(value, f"{before}{name} ") if isinstance(value, dict) else [(f"{before}{name}", value)]
    return found


def _part(name: str) -> str:
    if name not in PARTS:
        raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(PARTS)}")
    return name


def main() -> None:
    """Measure, write, and print one JSON object as the last line."""
    parser = OneLineParser(prog="python -m benchmarks.gpu", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of gpu.json and gpu.md")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="(default: the GPU, where there is one)")
    parser.add_argument("--small", action="store_true", help="small sizes, in two minutes on a CPU")
    parser.add_argument("--minutes", type=above_zero, default=9.0, help="no part is begun after so many (default 9)")
    parser.add_argument("--parts", type=listed(_part), default=PARTS, help=f"some of them (default {','.join(PARTS)})")
    asked = parser.parse_args()
    device = asked.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda" and not torch.cuda.is_available():
        parser.error("--device: cuda is not allowed: torch sees no GPU here")
    print(json.dumps(measure(asked.out, device, asked.small, asked.minutes, asked.parts)))


if __name__ == "__main__":
    main()
