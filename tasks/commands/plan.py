"""Memory and time of each stage of a campaign, from its parameters and the model's configuration, before it starts.

    agentprm plan --profile llama3b --gpus 1
    agentprm plan --profile "chat more_demonstrations" --memory 16 --json rollout.games=600

No weights are loaded. The model's shape comes from its folder, or from a table of public models. Tokens are counted on
demonstrations of a few games; in a world without an expert on episodes of random commands, as long as it lets them be.
Hours need a rate: that of this machine is measured (``--tflops`` gives another's). Where a stage cannot fit, the last
line says which, by how much, and what would make it fit; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from agentprm_core.arguments import OneLineParser, above_zero, count
from agentprm_core.errors import EXPECTED

NO_RATE = "no rate is known: give --tflops, such as 750 for an H100 in bfloat16 (docs/performance.md, One GPU)"
"""Where there is no GPU to measure. 741 to 785 were measured on an H100."""


def table(plan: dict) -> str:
    """For people."""
    names = ("weights", "states", "activations", "cache", "total")
    head = f"{'stage':<10}{'times':>6}{''.join(f'{name:>13}' for name in names)}"
    head += f"{'tokens':>16}{'PFLOP':>12}{'hours each':>12}"
    rows = [
        f"{row['stage']:<10}{row['times']:>6}"
        + "".join(f"{size(row[name]):>13}" for name in names)
        + f"{row['tokens']:>16,}{row['pflop']:>12,.3f}"
        + (f"{row['hours']:>12.3f}" if row["hours"] is not None else f"{'-':>12}")
        for row in plan["stages"]
    ]
    rate = NO_RATE if plan["tflops"] is None else f"at {plan['tflops']:.3g} TFLOP/s of products"
    hours = "hours are not estimated" if plan["hours"] is None else f"{plan['hours']:.2f} hours in all"
    said = [f"{plan['source']} on {plan['device']}: {hours}, {rate}"]
    if plan["memory_assumed"]:
        said.append(
            f"no GPU here: memory was held against {plan['memory_gib']:g} GiB of one GPU, --memory gives another"
        )
    return "\n".join([head, *rows, *said])


def size(gib: float) -> str:
    """Below 1 GiB in MiB; blank for nothing."""
    if gib >= 1 or not gib:
        return f"{gib:.2f} GiB" if gib else ""
    return f"{gib * 1024:.{0 if gib * 1024 >= 10 else 1}f} MiB"


def parser(prog: str) -> argparse.ArgumentParser:
    """Of the command line."""
    found = OneLineParser(prog=prog, description=(__doc__ or "").split("\n")[0])
    name = "NAME or KEY=VALUE"
    found.add_argument("words", nargs="*", metavar=name, help="over params.yaml, as in make run PROFILE=…")
    found.add_argument(
        "--profile", nargs="*", action="extend", default=[], metavar=name, help="the same; those above hold over it"
    )
    found.add_argument("--gpus", type=count, default=1, help="that the campaign may use (default %(default)s)")
    found.add_argument(
        "--memory", type=above_zero, metavar="GIB", help="of a GPU, or of the machine (default: here; without a GPU 80)"
    )
    found.add_argument("--tflops", type=above_zero, help="of large matrix products (default: measured here)")
    found.add_argument("--models", action="store_true", help="list the models whose shape is known, and end")
    found.add_argument("--json", action="store_true", help="the last line is one JSON object")
    return found


def split(given: Sequence[str]) -> list[str]:
    """The words of a command line, also of one that is quoted as a whole (``"chat llama3b seed=2"``). A value in
    brackets stays together."""
    found: list[str] = []
    for word in given:
        inside = 0
        for part in word.split():
            if inside > 0:
                found[-1] += f" {part}"
            else:
                found.append(part)
            inside += sum(map(part.count, "{[")) - sum(map(part.count, "}]"))
    return found


def main(prog: str = "python -m tasks.commands.plan") -> None:
    """Print the plan. Exit code 1 where a stage does not fit, 2 where parameters are wrong."""
    asked = parser(prog).parse_intermixed_args()
    asked.profile = split([*asked.profile, *asked.words])
    if not asked.models and not Path("params.yaml").exists():
        sys.exit("plan: no params.yaml here; run this in a checkout of AgentPRM, or in the folder of a campaign")
    from agentprm_core.planning.shapes import SHAPES  # these load torch, which --help does not wait for
    from tasks.commands.plan_campaign import planned
    from tasks.frame.params import ParamsError

    if asked.models:
        print("\n".join(f"{name}: {shape.parameters / 1e9:.2f} billion parameters" for name, shape in SHAPES.items()))
        return
    try:
        plan = planned(asked)
    except ParamsError as error:
        print(f"plan: {error}", file=sys.stderr)
        sys.exit(2)
    except EXPECTED as error:
        sys.exit(f"plan: {error}")
    print(table(plan))
    if asked.json:
        print(json.dumps(plan))
    if not plan["fits"]:
        sys.exit(f"plan: {plan['said']}")


if __name__ == "__main__":
    main()
