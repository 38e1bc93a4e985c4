"""The campaign as one page: the figures that MLflow has too, as tables and pictures in one file.

Its seconds are of this machine, as those of the Markdown reports beside it.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from agentprm_core.comparing import choosing, crowned, deciding, prm_adds
from agentprm_core.datasets import atomic_write
from agentprm_core.evaluate import wilson
from agentprm_core.policy.models import checkpoint_digest
from tasks.frame import layout
from tasks.frame.clock import read_timing
from tasks.frame.gates import GATES
from tasks.frame.order import ONCE, all_stages, stages_of
from tasks.frame.sections import Params
from tasks.frame.stage import read_json
from tasks.frame.tracking import campaign_id, flatten, git_commit
from tasks.report.added import UNKNOWN, sentences
from tasks.report.campaign import followed, refused
from tasks.report.figures import success_over_seeds
from tasks.report.gallery import PAGES
from tasks.report.pages import percent, render
from tasks.report.text import BUDGET, BUDGET_WORDS, P_VALUES, refused_lines

PAGE = "campaign.html"

Cell = str | float | int | None
"""A number is sorted as one; None is an empty cell."""


def report_page(
    params: Params,
    rows: Sequence[dict],
    outcomes: pa.Table,
    *,
    out: Path = layout.REPORTS / PAGE,
    seeds: Sequence[Mapping] = (),
) -> None:
    """``rows``: of :func:`tasks.report.campaign.table`; ``outcomes``: game by game. Pictures, gallery: those on disk.
    ``seeds``: rows of :func:`tasks.commands.report_seeds.together`, where other campaigns are shown beside this one."""
    stages = {slug: read_json(layout.metrics(slug)) for slug in _slugs(params) if layout.metrics(slug).exists()}
    prms = {int(i): stages[f"prm-{i}"] for i in params.iterations if f"prm-{i}" in stages}
    way = params.evaluate.decoding[0]
    decide = deciding(rows, way)
    flips, counts = _flips(outcomes, decide)
    cost, gains = costs(params, stages), searches(rows)
    added = prm_adds(outcomes)
    verdicts = [*(f"{line}." for line in refused_lines(rows)), *(sentences(added, params) or [UNKNOWN])]
    gained = ["search_gain"] if gains["body"] else []
    hacked = ["scores", *(["hacking"] if followed(params) else [])]
    gallery = Path(os.path.relpath(layout.GALLERY, out.parent))
    pages = {game: (gallery / name).as_posix() for game, name in read_json(layout.GALLERY / PAGES).items()}
    page = render(
        "campaign",
        params=params,
        champion=crowned(*choosing(outcomes, way)),
        sections=[
            _section("Success", "climb", ["success"], climb(rows), note=BUDGET_WORDS),
            *([_over_seeds(seeds, way)] if seeds else []),
            _section("By kind of task", "kinds", ["kinds"], by_kind(decide)),
            _section("Games gained and lost", "games", [], counts),
            _section("What the PRM adds", "adds", [], adds(added, params), verdicts=verdicts),
            _section("What the search adds", "search", gained, gains, note="" if gained else NO_SEARCH),
            _section("How well PRMs rank", "prm", ["calibration", "scores_by_turn"], rankings(prms)),
            _section("Is the PRM hacked?", "hacking", hacked, None, note="" if "hacking" in hacked else NO_UPDATE),
            _section("Cost", "cost", [], cost, note="" if _has_watts(cost) else NO_WATTS),
            _section("Data gates", "gates", [], gates()),
            _section("Lineage", "lineage", [], lineage(params)),
        ],
        flips=flips,
        said=WORDS if seeds else {**WORDS, "climb": f"{WORDS['climb']} {ONE_SEED}"},
        pages=pages,
        gallery=(gallery / "index.html").as_posix(),
        values=[(name, str(value)) for name, value in flatten(params.as_dict())],
        commit=git_commit().get("git_commit", ""),
    )
    with atomic_write(out) as aside:
        aside.write_text(page)


WORDS = {
    "climb": "Share of held-out games won, with its 95 % Wilson interval, and the mean reward of an episode, which "
    "is another number where a world pays for a part of a task, or less for a longer way. Each policy is "
    "compared with the one before on the same games: McNemar's exact test.",
    "seeds": "Campaigns with the same parameters and other seeds. Each seed's share of games won has the 95 % Wilson "
    "interval of its own games. The mean's interval is Student's t over the seeds: it holds for other seeds, and is "
    "wide where there are few. The black line of the picture is the mean.",
    "kinds": "Success of each kind of task, in the way of playing that decides the champion.",
    "games": "Games that a policy won and the one before lost, and the other way round.",
    "adds": "A search in which the PRM chooses against the same search in which another scorer does, in points of "
    f"success; split all: on the games of all splits together. {P_VALUES}",
    "search": "A search against the policy's own play on the same games, in points of success: what drawing several "
    "actions and choosing among them wins together, whoever chooses.",
    "prm": "Ranking: at held-out states with several tried actions, how often the PRM orders two of them as plays from "
    "them came out. Ceiling: what a PRM that knew the true values would reach, given that plays are noisy. Gain: what "
    "its choice adds to a play's reward there. AUC and calibration are of turns of held-out games.",
    "hacking": "A PRM is hacked where its score rises and success does not.",
    "cost": "Seconds are wall-clock on the machine that made this page; empty where a stage's outs came from a cache. "
    "Watts are means over the stage's work, of the whole machine: its processor packages, and the GPUs of the stage.",
    "gates": "What Great Expectations checked before data was used, on this machine.",
    "lineage": "Digests of weights, configuration and tokenizer, and what each was made of.",
}
SHOWS = {
    "success": "Share of games won, and its 95 % interval, by iteration. A panel a split, a line a way of playing.",
    "success_over_seeds": "Share of games won by iteration: a line a seed with its 95 % interval, and their mean in "
    "black.",
    "kinds": "Share of games won, and its 95 % interval, by iteration. A panel a kind of task.",
    "search_gain": "Points of success that a search adds to the policy's own play, and their 95 % interval, by "
    "iteration. Above 0 the search wins more.",
    "calibration": "How the games went after actions of about the same score. On the dashed line a PRM's scores are "
    "right; below it they are too high. The larger a point, the more turns it stands for.",
    "scores_by_turn": "Above: the PRM's mean score in games that were won and in games that were lost, by turn. The "
    "further apart, the better it tells them apart. Below: how far the score moves from one turn to the next.",
    "scores": "Share of games won against the mean score of the actions in them; the numbers are policies. A policy to "
    "the lower right of the one before is liked better by the PRM and wins less.",
    "hacking": "Mean score of the policy's actions during an update, the further it goes from the policy before. The "
    "filled point is the update's end.",
}
"""What each picture shows."""
ONE_SEED = (
    "All of it is of one seed: agentprm report --seeds DIR DIR, with the folders of campaigns of other seeds, writes "
    "this page with all of them, their mean and its interval over seeds."
)
NO_SEARCH = "No search was evaluated beside the policy's own play."
NO_UPDATE = "No update followed a PRM's score, so there is no picture of that score against the distance gone."
NO_WATTS = (
    "No watts: neither RAPL (/sys/class/powercap/intel-rapl*, which root alone may read unless it is allowed) nor NVML "
    "could be read while these stages ran."
)


def climb(rows: Sequence[Mapping]) -> dict:
    """The table of iterations."""
    head = ("policy", "split", "playing", "games", "success", "low", "high", "mean reward", "v. before", "won", "lost",
            "p", "actions", "tokens read", "world steps", *BUDGET)  # fmt: skip
    body = []
    for row in rows:
        paired = row["paired"] or {}
        points = 100 * paired["difference"] if paired else None
        tokens = row["policy_read"] + row["prm_read"]
        body.append([
            row["iteration"], row["split"], row["decoding"], row["games"], percent(row["success"]),
            percent(row["ci_low"]), percent(row["ci_high"]), f"{row['mean_reward']:.3f}", points and f"{points:+.1f}",
            paired.get("gained"), paired.get("lost"), _rounded(paired.get("p_value"), 3), f"{row['mean_actions']:.1f}",
            f"{tokens:.0f}", f"{row['world_steps']:.1f}", row["episodes_played"], row["tokens_trained"],
            None if row["seconds"] is None else round(row["seconds"]),
        ])  # fmt: skip
    return _table(head, body)


def climb_over_seeds(seeds: Sequence[Mapping]) -> dict:
    """A row a policy, split and way of playing; a column a seed."""
    numbers = list(seeds[0]["by_seed"])
    head = ("policy", "split", "playing", "games", *(f"seed {seed}" for seed in numbers), "mean", "low", "high")
    body = []
    for row in seeds:
        each = [row["by_seed"][seed] for seed in numbers]
        games = ", ".join(dict.fromkeys(str(of["games"]) for of in each))
        told = [None if row[name] is None else percent(row[name]) for name in ("mean", "ci_low", "ci_high")]
        shares = [f"{of['success']:.1%} {_interval(of)}" for of in each]
        body.append([row["iteration"], row["split"], row["decoding"], games, *shares, *told])
    return _table(head, body)


def by_kind(deciding: Sequence[Mapping]) -> dict:
    kinds = sorted({kind for row in deciding for kind in row["by_kind"]})
    body = []
    for kind in kinds:
        line: list[Cell] = [kind.replace("_", " "), deciding[0]["by_kind"].get(kind, {"games": 0})["games"]]
        for row in deciding:
            of = row["by_kind"].get(kind)
            line.append(of and f"{of['success']:.1%} {_interval(of)}")
        body.append(line)
    return _table(("kind", "games", *(f"policy {row['iteration']}" for row in deciding)), body)


def adds(added: Sequence[Mapping], params: Params) -> dict:
    """``added``: rows of :func:`agentprm_core.comparing.prm_adds`."""
    head = ("policy", "PRM", "search", "in its place", "split", "games", "the PRM adds, points", "low", "high", "won",
            "lost", "p", "p Holm")  # fmt: skip
    body = []
    for row in added:
        played = (row["iteration"], params.policies[str(row["iteration"])].prm, row["decoding"], row["control"])
        points = (f"{100 * row[name]:+.1f}" for name in ("difference", "ci_low", "ci_high"))
        tested = (_rounded(row[name], 3) for name in ("p_value", "p_holm"))
        body.append([*played, row["split"], row["games"], *points, row["gained"], row["lost"], *tested])
    return _table(head, body)


def searches(rows: Sequence[Mapping]) -> dict:
    head = ("policy", "split", "search", "over", "success", "adds, points", "low", "high", "won", "lost", "p",
            "times the tokens")  # fmt: skip
    alone = {(row["iteration"], row["split"], row["decoding"]): row for row in rows}
    body = []
    for row in rows:
        if (over := row["over_policy"]) is None:
            continue
        plain = alone[row["iteration"], row["split"], row["policy_decoding"]]
        times = (row["policy_read"] + row["prm_read"]) / max(1.0, plain["policy_read"] + plain["prm_read"])
        points = [f"{100 * over[name]:+.1f}" for name in ("difference", "ci_low", "ci_high")]
        body.append([
            row["iteration"], row["split"], row["decoding"], row["policy_decoding"], percent(row["success"]), *points,
            over["gained"], over["lost"], _rounded(over["p_value"], 3), f"{times:.1f}",
        ])  # fmt: skip
    return _table(head, body)


def rankings(prms: Mapping[int, Mapping]) -> dict:
    """A row a PRM on validation games, in places of training, and one on guard games, in new places; figures that its
    critic does not have are empty."""
    head = ("PRM", "places", "ranking", "low", "high", "pairs", "by likelihood", "v. likelihood", "low", "high",
            "half the plays", "ceiling", "gain of choosing", "low", "high", "headroom", "AUC",
            "calibration error", "turns")  # fmt: skip
    body = []
    measured = [(number, "known", of) for number, of in prms.items()]
    measured += [(number, "new", of["guard"]) for number, of in prms.items() if "guard" in of]
    for number, places, figures in sorted(measured):
        ranking, choosing = figures.get("ranking") or {}, figures.get("choosing") or {}
        valid, over = figures.get("validation") or {}, figures.get("ranking_over_likelihood") or {}
        body.append([
            number,
            places,
            *(_rounded(ranking.get(name), 3) for name in ("accuracy", "accuracy_low", "accuracy_high")),
            ranking.get("pairs"),
            _rounded((figures.get("ranking_by_likelihood") or {}).get("accuracy"), 3),
            *(_rounded(over.get(name), 3) for name in ("difference", "difference_low", "difference_high")),
            *(_rounded(ranking.get(name), 3) for name in ("half_accuracy", "ceiling")),
            *(_rounded(choosing.get(name), 3) for name in ("gain", "gain_low", "gain_high", "headroom")),
            *(_rounded(valid.get(name), 3) for name in ("auc", "ece")),
            valid.get("actions"),
        ])  # fmt: skip
    return _table(head, body)


def costs(params: Params, stages: Mapping[str, Mapping]) -> dict:
    """A row a stage: seconds, those of orchestration, watts, games, turns, tokens trained on."""
    names = [*ONCE, *(name for i in params.policies for name in stages_of(int(i)) if name not in ONCE)]
    timings = {name: read_timing(name, campaign_id(params.as_dict())) or {} for name in names}
    body: list[list[Cell]] = []
    totals = [0.0, 0.0, 0, 0]
    for name, timing in timings.items():
        figures = stages.get(name.replace("@", "-"), {})
        turns, tokens = figures.get("turns_played", figures.get("turns")), figures.get("tokens_trained")
        if name.startswith("evaluate"):
            turns = sum(round(row["mean_actions"] * row["games"]) for ways in _ways(figures) for row in ways)
        seconds, spent = timing.get("seconds"), timing.get("orchestration")
        totals = [a + (b or 0) for a, b in zip(totals, (seconds, spent, turns, tokens), strict=True)]
        body.append([name, seconds and round(seconds, 1), spent and round(spent, 1), *_watts([timing]), turns, tokens])
    whole = [round(totals[0], 1), round(totals[1], 1), *_watts(timings.values()), int(totals[2]), int(totals[3])]
    head = ("stage", "seconds", "of these orchestration", *WATTS.values(), "turns played", "tokens trained on")
    return _table(head, body, [["all", *whole]])


WATTS = {"cpu_watts": "CPU watts", "gpu_watts": "GPU watts"}


def _watts(timings: Collection[Mapping[str, float]]) -> list[Cell]:
    """Of processors and GPUs: the mean over the seconds of those stages that have any."""
    found: list[Cell] = []
    for name in WATTS:
        known = [timing for timing in timings if name in timing]
        seconds = sum(timing["seconds"] for timing in known)
        joules = sum(timing[name] * timing["seconds"] for timing in known)
        found.append(round(joules / seconds, 1) if known else None)
    return found


def _has_watts(cost: Mapping) -> bool:
    columns = [cost["head"].index(name) for name in WATTS.values()]
    return any(line[column] != "" for line in cost["body"] for column in columns)


def gates() -> dict:
    body: list[list[Cell]] = []
    for path in sorted(GATES.glob("*.json")):
        results = json.loads(path.read_text())
        failed = [f"{result['why']}: {result['observed']}" for result in results if not result["success"]]
        body.append([path.stem, len(results), len(results) - len(failed), "; ".join(failed) or "none"])
    return _table(("stage", "expectations", "passed", "failed"), body)


def lineage(params: Params) -> dict:
    """A row a policy: its digest, and those of the policy before and the PRM that taught it, or that was refused."""
    body: list[list[Cell]] = []
    for number in map(int, params.policies):
        made = f"source {params.model.source}"
        if number:
            prev, prm = params.iterations[str(number)].prev, "refused PRM" if refused(number) else "PRM"
            before, taught = checkpoint_digest(layout.policy(prev)), checkpoint_digest(layout.prm(number))
            made = f"policy {prev} {before}, {prm} {number} {taught}"
        body.append([f"policy {number}", checkpoint_digest(layout.policy(number)), made])
    return _table(("what", "digest", "made of"), body)


def _flips(outcomes: pa.Table, deciding: Sequence[Mapping]) -> tuple[dict, dict]:
    """Games that not all policies end alike, a column a policy; and how many each gained and lost."""
    where = {"split": deciding[0]["split"], "decoding": deciding[0]["decoding"]}
    won: dict[str, dict[int, bool]] = {}
    kinds: dict[str, str] = {}
    for row in outcomes.select(["iteration", "split", "decoding", "game_id", "kind", "won"]).to_pylist():
        if all(row[name] == value for name, value in where.items()):
            won.setdefault(row["game_id"], {})[row["iteration"]] = row["won"]
            kinds[row["game_id"]] = row["kind"]
    numbers = [row["iteration"] for row in deciding]
    body: list[list[Cell]] = [
        [game, kinds[game].replace("_", " "), *("won" if of.get(i) else "lost" for i in numbers)]
        for game, of in sorted(won.items())
        if len({of.get(i) for i in numbers}) > 1
    ]
    counts: list[list[Cell]] = []
    for before, after in pairwise(deciding):
        gained = sum(of[after["iteration"]] and not of[before["iteration"]] for of in won.values())
        lost = sum(of[before["iteration"]] and not of[after["iteration"]] for of in won.values())
        counts.append([f"{before['iteration']} to {after['iteration']}", gained, lost, gained - lost, len(won)])
    policies = [f"policy {i}" for i in numbers]
    return _table(("game", "kind", *policies), body), _table(("policies", "gained", "lost", "net", "games"), counts)


def _over_seeds(seeds: Sequence[Mapping], way: str) -> dict:
    """The section of several seeds; its picture is of the way of playing that decides the champion."""
    section = _section("Success over seeds", "seeds", [], climb_over_seeds(seeds))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "success_over_seeds.png"
        success_over_seeds([row for row in seeds if row["decoding"] == way], path)
        section["pictures"] = [_picture(path, "Drawn by agentprm report --seeds.")]
    return section


def _section(
    title: str, key: str, pictures: Sequence[str], table: dict | None, note: str = "", verdicts: Sequence[str] = ()
) -> dict:
    """``note`` stands below the table, ``verdicts`` above it, a paragraph each."""
    paths = [layout.PLOTS / f"{name}.png" for name in pictures]
    return {
        "title": title,
        "key": key,
        "table": table if table and table["body"] else None,
        "note": note,
        "verdicts": verdicts,
        "pictures": [_picture(path, f"{path.as_posix()}, drawn by dvc repro compare.") for path in paths],
    }


def _picture(path: Path, drawn: str) -> dict:
    data = "data:image/png;base64," + b64encode(path.read_bytes()).decode()
    return {"name": path.stem, "data": data, "shows": SHOWS[path.stem], "drawn": drawn}


def _table(head: Sequence[str], body: Sequence[Sequence[Cell]], foot: Sequence[Sequence[Cell]] = ()) -> dict:
    """``foot``: lines that stay below when the table is sorted."""
    return {"head": head, "body": _filled(body), "foot": _filled(foot)}


def _filled(lines: Sequence[Sequence[Cell]]) -> list[list]:
    return [["" if cell is None else cell for cell in line] for line in lines]


def _interval(of: Mapping) -> str:
    low, high = wilson(round(of["success"] * of["games"]), of["games"])
    return f"[{low:.0%}, {high:.0%}]"


def _rounded(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}g}"


def _ways(figures: Mapping) -> Iterator[list[Mapping]]:
    """Rows of an evaluation's figures, split by split."""
    for split in figures.values():
        rows = [row for row in split.values() if isinstance(row, Mapping) and "mean_actions" in row]
        if rows:
            yield rows


def _slugs(params: Params) -> list[str]:
    return [name.replace("@", "-") for name in all_stages(params)]
