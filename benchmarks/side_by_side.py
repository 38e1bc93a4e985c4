"""Campaigns side by side: success of every policy in each of them, what three iterations gain, what the PRM adds.

    python -m benchmarks.side_by_side textcraft=../textcraft arithmetic=../arithmetic --out docs/worlds.png --json

Each argument is NAME=FOLDER, the folder in which a campaign's stages ran. Held-out games of both splits count together;
``--split unseen`` has one of them. Several campaigns of one name are seeds of it: a row each. The gain is that of the
last policy over the first by the first way of playing, paired by game, with McNemar's exact p. What the PRM adds is of
the first policy: Best-of-N under its PRM over the same search by the policy's own likelihood, where the campaign played
both. ``--out`` draws the climbs, a panel a name. The last line is one JSON object with a row for each campaign.

``--over NAME`` also holds every policy of the other campaigns against the same iteration's of campaign NAME with the
same seed, on the same games (``over`` in the JSON object): what a method adds to another one, or to a control.
Where there are several seeds, ``over_seeds`` has each iteration's mean of them, once with the seeds as the sample
(Student's t: holds for other seeds) and once with all their games as the sample (McNemar: holds for these policies).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from agentprm_core.arguments import repeated
from agentprm_core.comparing import over_seeds
from agentprm_core.errors import EXPECTED, DataError
from agentprm_core.evaluate import paired_counts, paired_test, pooled, pooled_wins
from tasks.report.text import markdown

CONTROL = "_by_untrained_likelihood"
_SUBSCRIPTS = "₀₁₂₃₄₅₆₇₈₉"


def row_of(name: str, folder: Path, split: str | None) -> dict:
    """``name``, ``world``, ``seed``, ``games``, ``decoding`` (ways of playing, the deciding one first), ``policies``
    ({iteration: {way of playing: figures of :func:`agentprm_core.evaluate.summary`}}), ``gain``
    (:class:`agentprm_core.evaluate.Paired`, or None where there is one policy) and ``adds`` ({search: Paired} of those
    played both ways).

    Raises DataError for a folder without evaluated policies.
    """
    outcomes = {iteration: _of(table, split) for iteration, table in _outcomes(name, folder).items()}
    params = _params(folder)
    ways = params["evaluate"]["decoding"]
    first, last = outcomes[min(outcomes)], outcomes[max(outcomes)]
    searches = [way for way in ways if f"{way}{CONTROL}" in ways]
    return {
        "name": name,
        "world": params["env"]["world"],
        "seed": params["seed"],
        "games": len(_won(first, ways[0])),
        "decoding": ways,
        "policies": {i: {row["decoding"]: row for row in pooled(table)} for i, table in outcomes.items()},
        "gain": asdict(paired_test(_won(first, ways[0]), _won(last, ways[0]))) if len(outcomes) > 1 else None,
        "adds": {
            way: asdict(paired_test(_won(first, f"{way}{CONTROL}"), _won(first, way))) for way in searches
        },
    }  # fmt: skip


def over(campaigns: Sequence[tuple[str, Path]], name: str, split: str | None) -> list[dict]:
    """A row for each policy of the campaigns that are not called ``name``: ``name``, ``seed``, ``iteration``,
    ``decoding`` (the deciding way of playing) and ``test``, the :class:`agentprm_core.evaluate.Paired` of its success
    minus that of the same iteration in the campaign ``name`` with the same seed.

    Raises DataError where there is no such campaign, or one of other games.
    """
    others = {_params(folder)["seed"]: folder for called, folder in campaigns if called == name}
    if not others:
        raise DataError(f"--over: {name!r} is not one of {', '.join(dict.fromkeys(called for called, _ in campaigns))}")
    rows = []
    for called, folder in campaigns:
        if called == name:
            continue
        params = _params(folder)
        other = others.get(params["seed"])
        if other is None:
            raise DataError(f"{called}: no campaign {name} has its seed, {params['seed']}")
        if unlike := [key for key in ("env", "games") if params[key] != _params(other)[key]]:
            raise DataError(
                f"{called} and {name} with seed {params['seed']} play other games: {', '.join(unlike)} differ"
            )
        way, own, theirs = params["evaluate"]["decoding"][0], _outcomes(called, folder), _outcomes(name, other)
        for iteration in sorted(own.keys() & theirs.keys()):
            won, before = (_won(_of(of[iteration], split), way) for of in (own, theirs))
            if not before:
                raise DataError(f"{name}: {way} was not played, by which {called} is measured")
            test = asdict(paired_test(before, won))
            rows.append({"name": called, "seed": params["seed"], "iteration": iteration, "decoding": way, "test": test})
    return rows


def all_seeds(rows: Sequence[Mapping]) -> list[dict]:
    """Of :func:`over`'s rows those of several seeds together, a row each campaign name and iteration: ``name``,
    ``iteration``, ``seeds``, what :func:`agentprm_core.comparing.over_seeds` says of the seeds' ``differences``, and
    ``games``, the :class:`agentprm_core.evaluate.Paired` of all games of all seeds."""
    together = []
    for called, iteration in dict.fromkeys((row["name"], row["iteration"]) for row in rows):
        tests = {row["seed"]: row["test"] for row in rows if (row["name"], row["iteration"]) == (called, iteration)}
        if len(tests) < 2:
            continue
        counts = (sum(test[key] for test in tests.values()) for key in ("games", "gained", "lost"))
        differences = [test["difference"] for test in tests.values()]
        told = {"differences": differences, **over_seeds(differences)}
        named = {"name": called, "iteration": iteration, "seeds": list(tests)}
        together.append({**named, **told, "games": asdict(paired_counts(*counts))})
    return together


def over_table(rows: Sequence[Mapping], name: str) -> str:
    """Markdown: a row a campaign, a column an iteration; and two rows for all seeds of a name, where it has several."""
    iterations = sorted({row["iteration"] for row in rows})
    head = ["campaign", "seed", *(f"π{_SUBSCRIPTS[i]} over {name}'s, points" for i in iterations)]
    tests = {(row["name"], row["seed"], row["iteration"]): _points(row["test"]) for row in rows}
    body = [
        [called, str(seed), *(tests.get((called, seed, i), "") for i in iterations)]
        for called, seed in dict.fromkeys((row["name"], row["seed"]) for row in rows)
    ]
    together = {(row["name"], row["iteration"]): row for row in all_seeds(rows)}
    for called in dict.fromkeys(called for called, _ in together):
        found = {i: together[called, i] for i in iterations if (called, i) in together}
        means = [f"{_mean(found[i])} ({len(found[i]['seeds'])} seeds)" if i in found else "" for i in iterations]
        body.append([called, "mean over seeds", *means])
        games = [_points(found[i]["games"]) if i in found else "" for i in iterations]
        body.append([called, "all their games", *games])
    return "\n".join(markdown(head, body))


def _params(folder: Path) -> dict:
    return yaml.safe_load((folder / "params.yaml").read_text())


def _outcomes(name: str, folder: Path) -> dict[int, pa.Table]:
    """What was played, by iteration. Raises DataError for a folder without evaluated policies."""
    paths = {int(path.parent.name): path for path in folder.glob("data/evaluations/*/outcomes.parquet")}
    if not paths:
        raise DataError(f"{name}: no evaluations in {folder}/data/evaluations")
    return {iteration: pq.read_table(paths[iteration]) for iteration in sorted(paths)}


def _of(outcomes: pa.Table, split: str | None) -> pa.Table:
    kept = outcomes if split is None else outcomes.filter(pc.field("split") == split)
    if not len(kept):
        raise DataError(f"--split: {split!r} is not one of {', '.join(sorted(set(outcomes['split'].to_pylist())))}")
    return kept


def _won(outcomes: pa.Table, way: str) -> dict[str, bool]:
    return pooled_wins(outcomes.filter(pc.field("decoding") == way))


def table(rows: Sequence[Mapping]) -> str:
    """Markdown: a row a campaign."""
    policies = sorted({iteration for row in rows for iteration in row["policies"]})
    head = ["campaign", "seed", "games", *(f"π{_SUBSCRIPTS[i]}" for i in policies), "gain, points"]
    head += ["searches of the first policy", "its PRM adds, points"]
    body = []
    for row in rows:
        way = row["decoding"][0]
        cells = [row["name"], str(row["seed"]), str(row["games"])]
        cells += [_share(row["policies"][i][way]) if i in row["policies"] else "" for i in policies]
        searches = [w for w in row["decoding"] if w.startswith(("best_of", "beam")) and CONTROL not in w]
        first = row["policies"][min(row["policies"])]
        cells += [
            _points(row["gain"]) if row["gain"] else "",
            ", ".join(f"{w} {first[w]['success']:.1%}" for w in searches),
        ]
        cells += ["; ".join(f"{w} {_points(test)}" for w, test in row["adds"].items())]
        body.append(cells)
    return "\n".join(markdown(head, body)).replace("%", " %")


def _share(figures: Mapping) -> str:
    return f"{figures['success']:.1%} [{100 * figures['ci_low']:.1f}, {100 * figures['ci_high']:.1f}]"


def _points(test: Mapping) -> str:
    low, high = 100 * test["ci_low"], 100 * test["ci_high"]
    return f"{100 * test['difference']:+.1f} [{low:+.1f}, {high:+.1f}], p {test['p_value']:.1g}"


def _mean(told: Mapping) -> str:
    test = {"difference": told["mean"], **told}
    return f"{100 * told['mean']:+.1f}" if told["p_value"] is None else _points(test)


def picture(rows: Sequence[Mapping], path: Path) -> None:
    """Success by iteration, a panel a name, a line a seed and way of playing."""
    from tasks.report.figures import climbs  # matplotlib takes its time

    lines = [
        {"name": row["name"], "seed": row["seed"], "decoding": way, "iteration": i, **of[way]}
        for row in rows
        for way in row["decoding"]
        for i, of in row["policies"].items()
        if CONTROL not in way and way in of
    ]
    climbs(lines, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaigns", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--split", help="only this one (default: all together)")
    parser.add_argument("--over", metavar="NAME", help="hold the others against this one, on the same games")
    parser.add_argument("--out", type=Path, help="a picture of the climbs")
    parser.add_argument("--json", action="store_true", help="only the JSON line")
    args = parser.parse_args()
    named = [one.partition("=") for one in args.campaigns]
    if not all(name and folder for name, _, folder in named):
        parser.error("campaigns are given as NAME=FOLDER")
    if (place := repeated(args.campaigns)) is not None:
        parser.error(f"{args.campaigns[place]!r} is there twice: each campaign is given once")
    if args.out and args.out.suffix not in (".png", ".svg"):
        parser.error(f"--out: {args.out} is no picture: it must end in .png or .svg")
    try:
        campaigns = [(name, Path(folder)) for name, _, folder in named]
        rows = [row_of(name, folder, args.split) for name, folder in campaigns]
        held = {"over": over(campaigns, args.over, args.split)} if args.over else {}
        held |= {"over_seeds": all_seeds(held["over"])} if held else {}
    except EXPECTED as error:
        sys.exit(f"side_by_side: {error}")
    if args.out:
        picture(rows, args.out)
    if not args.json:
        print(table(rows))
        print("\n" + over_table(held["over"], args.over) if held else "")
    print(json.dumps({"rows": rows, **held}))


if __name__ == "__main__":
    main()
