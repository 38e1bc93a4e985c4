"""A campaign on a GPU that is lent for minutes: many rollouts, a policy of 30 million parameters, rooms that are new.

    python -m benchmarks.gpu_campaign --published DIR --tables tables     # where the package alfworld is installed
    python -m benchmarks.gpu_campaign --games tables --out gpu            # on the lent machine, nine minutes
    python -m benchmarks.gpu_campaign --out gpu --small                   # on a CPU, to see that it runs

The stages are the pipeline's, ``python -m tasks.STAGE``, with params.yaml, the profiles ``alfworld_rooms`` and ``gpu``,
and the sizes of :data:`LARGE`. Words at the end change more: ``method.steps=800``. So nothing is done in another way
than in any campaign. Where Great Expectations is not installed the stages decide the gates themselves, and where MLflow
is not, their figures stay in files.

1. The policy imitates the expert. It then plays some games, to measure the time of an episode.
2. So many rollouts are asked for as fit into :data:`SHARE` of the time that is left, at most those of the parameters.
   With ``--as-asked`` these are played, and no time goes into measuring.
3. Each iteration is rollout, label, prm, collect, policy, and an evaluation. Another one is begun where the longest so
   far would fit. What runs when the minutes are over is ended, and what was evaluated until then is the result.

After each step ``--out`` has ``campaign.json`` and ``campaign.md``: the learning curve with 95 % intervals, and the
seconds and rates of each stage. Beside them are ``campaign.png`` where matplotlib is installed, what the stages printed
(``stages.log``), and their figures (``figures.tar.gz``). The same command goes on with what ``--folder`` has.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml

from agentprm_core.arguments import above_zero, any_seed, count
from agentprm_core.comparing import prm_figures
from agentprm_core.datasets import games_from_table, read_table
from agentprm_core.draws import share_of
from agentprm_core.errors import DataError
from agentprm_core.evaluate import OUTCOMES, summary
from agentprm_core.plays import Branch, Plays, rollouts
from agentprm_core.policy.models import load_checkpoint, merged, playing_dtype
from agentprm_core.shards.base import HERE
from agentprm_core.suites import games_suite
from agentprm_core.types import GAMES
from agentprm_core.worlds import world_spec
from benchmarks.gpu import machine
from flows.stages_in_order import LOG, attempt, show
from tasks.frame import layout
from tasks.frame.clock import newest_timing
from tasks.frame.gates import run_gate
from tasks.frame.given import play_settings
from tasks.frame.order import LOOP, ONCE
from tasks.frame.params import PARAMS, ParamsError, load_params, read_mapping, validate
from tasks.frame.profile import asked_for, overridden
from tasks.frame.sections import Params
from tasks.frame.shards import SHARDS, shards
from tasks.frame.stage import read_json, write_json
from tasks.report.text import markdown

ROOT = Path(__file__).parents[1]
PROFILES = ("alfworld_rooms", "gpu")
LARGE: dict = {
    "compute": {"threads": 1, "slots": 768, "cache_mb": 6144, "pass_tokens": 32768, "save_every": 100_000},
    "games": {"published": {"root": "alfworld-data", "generated": 3199, "mixed": 10_000}, "train": 16_000},
    "demos": {"games": 6000},
    "model": {"width": 640, "layers": 6, "heads": 10},
    "sft": {"epochs": 6, "batch_tokens": 6144},
    "rollout": {"games": 8750, "episodes_per_game": 8},
    "critic": {"batch_tokens": 16_384},
    "method": {"games": 6000, "steps": 1000, "batch_tokens": 6144},
    "evaluate": {"decoding": ["greedy", "best_of_16", "best_of_16_by_untrained_likelihood", "beam_4x4"]},
}
"""30 million parameters, and up to 70,000 rollouts an iteration. Each player's caches may take 6 GiB of the GPU."""
SMALL: dict = {
    "compute": {"threads": 1, "slots": 16},
    "games": {"train": 1400, "seen": 8, "unseen": 8},
    "demos": {"games": 700},
    "rollout": {"games": 24, "episodes_per_game": 4, "branch": {"validation_states": 4}},
    "method": {"games": 12, "steps": 4},
}
"""Over the profile ``smoke``."""
SHARE = 0.4
"""Of the time that is left after the first policy: rollouts of the first iteration, and the PRM's training on them."""
LEAST = 4
"""Games whose rollouts are played, at least."""
STATE = "campaign-state.json"


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    out: Path
    folder: Path
    small: bool
    minutes: float
    players: int
    fits: bool = True
    """As many rollouts as fit; else those of the parameters, and nothing is measured for it."""


def campaign_params(device: str, small: bool, seed: int, published: Path | None, words: Sequence[str]) -> dict:
    """The campaign's params.yaml as a mapping. Raises ParamsError for words that cannot be used."""
    raw = read_mapping(ROOT / PARAMS)
    profiles, sizes = (("smoke",), SMALL) if small else (PROFILES, LARGE)
    own: dict = {"seed": seed, "compute": {"device": device}}
    if device == "cpu":
        own["compute"]["precision"] = "float32"
    if published is not None:
        given = {"root": str(published.resolve()), **({"generated": 200, "mixed": 0} if small else {})}
        own["games"] = {"published": given}
    for overrides in (*asked_for(profiles, ROOT / "profiles"), sizes, own, *asked_for(words, ROOT / "profiles")):
        overridden(raw, overrides)
    return raw


def take_tables(raw: dict, games: Path, folder: Path) -> None:
    """Copy the tables of ``games`` to where the stages read them, and write their sizes into ``raw``.

    Raises DataError where they are not there, and GateError where they do not pass the gate of the stage ``games``.
    """
    tables = {split: read_table(games / f"{split}.parquet", GAMES) for split in layout.SPLITS}
    sizes = {split: len(table) for split, table in tables.items()}
    raw["games"] |= sizes | {"published": None}
    with chdir(folder):
        run_gate("games", games_suite(tables, sizes, world_spec(raw["env"]["world"])))
    for path in (*(folder / layout.games(split) for split in layout.SPLITS), folder / layout.DEMOS):
        found = games / path.name
        path.parent.mkdir(parents=True, exist_ok=True)
        if found.exists():
            shutil.copy(found, path)


def run(asked: Asked, until: float) -> dict:
    """Run the campaign in the current folder until the clock (``time.monotonic``) says ``until``; the report."""
    state: dict = read_json(Path(STATE)) if Path(STATE).exists() else {"ended": {}, "rollouts": None, "stopped": None}
    state["stopped"] = _stages(asked, state, ["demos", "sft"], until)
    if asked.fits and state["stopped"] is None and state["rollouts"] is None:
        state["rollouts"] = _fitted(load_params(), until - time.monotonic())
        write_json(state, Path(STATE))
        print(f"rollouts: {json.dumps(state['rollouts'])}", flush=True)
    took: list[float] = []
    for number in load_params().iterations:
        if state["stopped"] is not None:
            break
        begun = time.monotonic()
        if took and max(took) > until - begun:
            state["stopped"] = f"rollout@{number}: not begun, {until - begun:.0f} s are left"
            break
        stages = _iteration(number)
        ran = not all(stage in state["ended"] for stage in stages)
        state["stopped"] = _stages(asked, state, stages, until)
        took += [time.monotonic() - begun] if ran else []
    return _report(asked, state)


def _iteration(number: str) -> list[str]:
    """Its stages in the order that they run. The first policy is measured as soon as there is a PRM."""
    before, after = ([f"{name}@{number}" for name in part] for part in (LOOP[:3], LOOP[3:]))
    return [*before, *(["evaluate@0"] if number == "1" else []), *after, f"evaluate@{number}"]


def _stages(asked: Asked, state: dict, stages: Sequence[str], until: float) -> str | None:
    """Run those that have not ended; why it stopped, or None."""
    for stage in stages:
        if stage in state["ended"] or (stage == "demos" and layout.DEMOS.exists()):
            continue
        begun = time.monotonic()
        code = attempt(stage, until - begun, asked.out / LOG)
        if code != 0:
            return f"{stage}: {'the minutes are over' if code is None else f'failed, its last lines are in {LOG}'}"
        state["ended"][stage] = round(time.monotonic() - begun, 1)
        write_json(state, Path(STATE))
        _report(asked, state)
        print(f"{stage}: {json.dumps(_step(stage, state['ended'][stage]))}", flush=True)
    return None


def _fitted(params: Params, seconds: float) -> dict:
    """Write into params.yaml as many games of rollouts as fit into the share of ``seconds``; what was measured."""
    rate, turns = _probe(params)
    trained, timing = read_json(layout.metrics("sft")), newest_timing("sft")
    assert timing is not None  # the stage has just run
    tokens = trained["tokens_trained"] / timing["seconds"]
    demonstrated = read_json(layout.metrics("demos"))["mean_actions"] if layout.metrics("demos").exists() else turns
    an_episode = turns / rate + turns / demonstrated * trained["tokens"] / trained["rows"] / tokens
    section, each = params.rollout, params.rollout.episodes_per_game
    fit = int(SHARE * seconds / an_episode)
    games = max(LEAST, min(section.games, fit // each))
    raw = read_mapping(PARAMS)
    raw["rollout"]["games"] = games
    _write(raw)
    return {
        "asked": section.games * each, "fit": fit, "played": games * each, "turns_per_s": round(rate),
        "turns_an_episode": round(turns, 1), "tokens_trained_per_s": round(tokens), "seconds_left": round(seconds),
    }  # fmt: skip


def _probe(params: Params) -> tuple[float, float]:
    """(turns a second, turns an episode) of the first policy on training games, in the processes that play rollouts."""
    compute, play = params.compute, play_settings(params)
    how = {"device": compute.device, "dtype": playing_dtype(compute.precision)}
    policy = merged(load_checkpoint(layout.policy(0), plays=True, **how))
    where = shards(compute)
    count = compute.slots * where.players
    train = games_from_table(read_table(layout.games("train"), GAMES))
    games = share_of(train, min(count, len(train)), seed=params.seed, iteration=1)
    plays = Plays(1, params.rollout.temperature, None, Branch(0, 0, 0, 1, 1.0), play, params.seed)
    taken, turns = 0.0, 0
    for number, some in enumerate((games[: max(8, len(games) // 8)], games)):  # the first starts processes
        scratch, begun = layout.SCRATCH / "probe" / str(number), time.perf_counter()
        shutil.rmtree(scratch, ignore_errors=True)
        turns = len(rollouts(plays, policy, some, {}, iteration=1, scratch=scratch, shards=where))
        taken = time.perf_counter() - begun
    if where is not HERE:
        where.close()  # pyright: ignore[reportAttributeAccessIssue]: processes of this machine
    return turns / taken, turns / len(games)


def _report(asked: Asked, state: Mapping) -> dict:
    """Write what is known; the report."""
    params, found = load_params(), []
    for number in params.policies:
        path = layout.outcomes(int(number))
        found += [read_table(path, OUTCOMES)] if path.exists() else []
    curve = summary(pa.concat_tables(found)) if found else []
    sft = layout.metrics("sft")
    order = [*ONCE, *(stage for number in params.iterations for stage in _iteration(number))]
    report = {
        "machine": machine(params.compute.device) | {"players": asked.players},
        "small": asked.small,
        "seed": params.seed,
        "parameters": read_json(sft)["parameters"] if sft.exists() else None,
        "rollouts": state["rollouts"],
        "steps": {stage: _step(stage, state["ended"][stage]) for stage in order if stage in state["ended"]},
        "curve": curve,
        "prm_adds": {str(table["iteration"][0].as_py()): prm_figures(table).get("prm") for table in found},
        "stopped": state["stopped"],
    }
    write_json(report, asked.out / "campaign.json")
    (asked.out / "campaign.md").write_text(text(report))
    show(asked.out)
    if curve and find_spec("matplotlib") is not None:
        from tasks.report.figures import success_by_iteration

        success_by_iteration(curve, asked.out / "campaign.png")
    return report


def _step(stage: str, seconds: float) -> dict:
    """Seconds of a stage, those of its own work, what it played and trained a second of that, and a PRM's refusal."""
    path, timing = layout.metrics(stage.replace("@", "-")), newest_timing(stage)
    figures = read_json(path) if path.exists() else {}
    work = timing["seconds"] - timing["orchestration"] if timing else seconds
    step: dict = {"seconds": seconds, "work_seconds": round(work, 1)}
    for name, figure in (("turns", "turns_played"), ("tokens", "tokens_trained")):
        if figures.get(figure):
            step |= {name: figures[figure], f"{name}_per_s": round(figures[figure] / work)}
    if stage.startswith(("rollout", "collect", "demos")) and "success" in figures:
        step["success"] = figures["success"]
    return step | ({"refused": figures["refused"]} if "refused" in figures else {})


def text(report: Mapping) -> str:
    """The report for people, in Markdown."""
    where, played = report["machine"], report["rollouts"]
    size = "" if report["parameters"] is None else f", a policy of {report['parameters']:,} parameters"
    lines = [f"# A campaign on {where['device']}, torch {where['torch']}", "", f"Seed {report['seed']}{size}.", ""]
    if played is not None:
        few = "" if played["played"] == played["asked"] else ", as many as fit into the time"
        lines += [f"Rollouts an iteration: {played['played']:,} of {played['asked']:,}{few}.", ""]
    if report["stopped"]:
        lines += [f"**Stopped** at {report['stopped']}.", ""]
    curve = [
        (row["iteration"], row["split"], row["decoding"], row["games"], f"{row['success']:.1%}",
         f"{row['ci_low']:.1%} – {row['ci_high']:.1%}", f"{row['mean_actions']:.1f}")
        for row in report["curve"]
    ]  # fmt: skip
    head = ("policy", "split", "way of playing", "games", "success", "95 % interval", "actions")
    lines += [*markdown(head, curve), "", *_adds(report["prm_adds"])]
    columns = ("seconds", "work_seconds", "turns", "turns_per_s", "tokens", "tokens_per_s", "success", "refused")
    steps = [(stage, *(step.get(name, "") for name in columns)) for stage, step in report["steps"].items()]
    return "\n".join([*lines, *markdown(("stage", *columns), steps)]) + "\n"


def _adds(found: Mapping[str, Mapping | None]) -> list[str]:
    said = [
        f"Under the PRM Best-of-N of policy {number} wins {100 * adds['adds']:+.1f} points "
        f"[{100 * adds['adds_low']:.1f}, {100 * adds['adds_high']:.1f}] more than under the policy's own likelihood."
        for number, adds in found.items()
        if adds
    ]
    return [line for one in said for line in (one, "")]


def make_tables(to: Path, asked: Asked) -> None:
    """Games and demonstrations, packed for the way to another machine. Raises DataError where a stage fails."""
    for stage, written in (("games", [layout.games(split) for split in layout.SPLITS]), ("demos", [layout.DEMOS])):
        if attempt(stage, 3600.0, asked.out / LOG) != 0:
            raise DataError(f"{stage} failed: its last lines are in {asked.out / LOG}")
        to.mkdir(parents=True, exist_ok=True)
        for path in written:
            pq.write_table(pq.read_table(path), to / path.name, compression="zstd", compression_level=15)


def _write(raw: dict) -> None:
    """params.yaml of the current folder. Raises ParamsError where it would not be valid."""
    validate(raw, PARAMS.name)
    PARAMS.write_text(yaml.safe_dump(raw, sort_keys=False))


def _begin(folder: Path, raw: dict, games: Path | None) -> None:
    """Make the campaign's folder, or go on in it. Raises DataError for one that has another campaign."""
    folder.mkdir(parents=True, exist_ok=True)
    asked = folder / "asked.json"
    told = json.dumps([raw, str(games)], sort_keys=True)
    if asked.exists():
        if asked.read_text() != told:
            raise DataError(f"--folder: {folder} has a campaign with other parameters: name another folder")
        return
    code = folder / "agentprm_core"
    if not code.exists():
        code.symlink_to(ROOT / "agentprm_core")
    if games is not None:
        take_tables(raw, games, folder)
    with chdir(folder):
        _write(raw)
    asked.write_text(told)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_campaign", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, default=Path("gpu"), help="folder of the report (default gpu)")
    parser.add_argument("--folder", type=Path, default=Path(".scratch/gpu-campaign"), help="where the stages run")
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--games", type=Path, metavar="DIR", help="tables that --tables made")
    given.add_argument("--published", type=Path, metavar="DIR", help="the games that alfworld-download fetched")
    parser.add_argument("--tables", type=Path, metavar="DIR", help="write tables of games and demonstrations, and end")
    parser.add_argument("--small", action="store_true", help="small sizes, in minutes on a CPU")
    parser.add_argument("--minutes", type=above_zero, default=9.0, help="the running stage is then ended (default 9)")
    parser.add_argument("--seed", type=any_seed, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), help="(default: the GPU, where there is one)")
    parser.add_argument("--players", type=count, help="processes that play (default 8, with --small 1)")
    parser.add_argument("--as-asked", action="store_true", help="the parameters' rollouts, whether they fit or not")
    parser.add_argument("words", nargs="*", metavar="NAME or KEY=VALUE", help="of profiles/NAME.yaml, or one key")
    return parser


def main() -> None:
    """Run, write, and print one JSON object as the last line. Exit code 1 where a stage failed."""
    parser = _parser()
    given = parser.parse_args()
    device = given.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda" and not torch.cuda.is_available():
        parser.error("--device: cuda is not allowed: torch sees no GPU here")
    if not given.games and not given.small and not given.published:
        parser.error("--games or --published is needed: the published games")
    if not given.games and find_spec("alfworld") is None:
        parser.error("--games is needed: households are generated from the package alfworld, which is not installed")
    players = given.players or (1 if given.small else 8)
    asked = Asked(given.out.resolve(), given.folder.resolve(), given.small, given.minutes, players, not given.as_asked)
    until = time.monotonic() + 60 * asked.minutes
    asked.out.mkdir(parents=True, exist_ok=True)
    os.environ[SHARDS] = f"local:{asked.players}"
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    tables = given.tables and given.tables.resolve()
    try:
        raw = campaign_params(device, asked.small, given.seed, given.published, given.words)
        _begin(asked.folder, raw, given.games and given.games.resolve())
        with chdir(asked.folder):
            if tables is not None:
                make_tables(tables, asked)
                return
            if given.games is None and (failed := _games(asked, until)):
                sys.exit(failed)
            report = run(asked, until)
    except (ParamsError, DataError, FileNotFoundError) as error:
        sys.exit(str(error))
    print(json.dumps({name: value for name, value in report.items() if name != "curve"}))
    if "failed" in (report["stopped"] or ""):
        sys.exit(report["stopped"])


def _games(asked: Asked, until: float) -> str | None:
    """Make the games here, where they are not there; what went wrong, or None."""
    if all(layout.games(split).exists() for split in layout.SPLITS):
        return None
    return None if attempt("games", until - time.monotonic(), asked.out / LOG) == 0 else f"games: see {asked.out / LOG}"


if __name__ == "__main__":
    main()
