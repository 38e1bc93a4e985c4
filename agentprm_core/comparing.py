"""Policies side by side: each against the one before on the same games, searches against the policy's own play and
against the same search by another scorer than the PRM.

Differences that stand in one table carry ``p_holm`` beside McNemar's exact ``p_value``: corrected for their number
(:func:`agentprm_core.evaluate.correct`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agentprm_core.evaluate import correct, paired_test, summary, wins
from agentprm_core.search.decoding_config import LIKELIHOOD, PRM, DecodingConfig, decoding
from agentprm_core.seeding import unit

PLAIN = ("greedy", "sample")
"""How a policy plays alone, the one that searches are held against first."""


def compared(outcomes: pa.Table) -> list[dict]:
    """Rows of the iterations' table.

    ``paired`` is the test against the iteration before on the same games, or None. For searches ``over_policy`` is the
    test against the policy's own play, ``policy_decoding``: greedy, or sampled where it was not played greedily. Both
    are None for the other rows, and where neither was played.
    """
    rows = summary(outcomes)
    for row in rows:
        same = {name: row[name] for name in ("split", "constrained")}
        won = wins(outcomes, iteration=row["iteration"], decoding=row["decoding"], **same)
        before = wins(outcomes, iteration=row["iteration"] - 1, decoding=row["decoding"], **same)
        row["paired"] = asdict(paired_test(before, won)) if before else None
        row["over_policy"] = row["policy_decoding"] = None
        if row["decoding"] in PLAIN:
            continue
        for plain in PLAIN:
            if alone := wins(outcomes, iteration=row["iteration"], decoding=plain, **same):
                row |= {"over_policy": asdict(paired_test(alone, won)), "policy_decoding": plain}
                break
    for name in ("paired", "over_policy"):
        correct([row[name] for row in rows if row[name]])
    return rows


def prm_adds(outcomes: pa.Table) -> list[dict]:
    """What the PRM adds to a search: its success minus that of the same search by another scorer, on the same games.

    A row for each search that was played both ways (``best_of_16`` and ``best_of_16_by_untrained_likelihood``), each
    policy (``iteration``) and each split, and for all splits together (``split``: ``all``): ``decoding``, ``control``
    (the scorer) and the fields of :class:`agentprm_core.evaluate.Paired` with ``p_holm``.
    """
    ways = [decoding(name) for name in sorted(outcomes["decoding"].unique().to_pylist())]
    controls = [way for way in ways if way.by != PRM and way.under(PRM) in ways]
    rows = []
    for iteration in sorted(outcomes["iteration"].unique().to_pylist()):
        played = outcomes.filter(pc.field("iteration") == iteration)
        for control in controls:
            rows += _added(played, control, {"iteration": iteration})
    correct(rows)
    return rows


def prm_figures(outcomes: pa.Table) -> dict:
    """``{"prm": {"adds": …}}``, the figure of a PRM: what it adds to Best-of-N over the policy's own likelihood in its
    place, over all games and by split, with interval, p and games; empty where that was not played."""
    told = [row for row in prm_adds(outcomes) if _is_figure(row)]
    by_split = {row["split"]: row for row in told if row["decoding"] == told[0]["decoding"]}
    if not by_split:
        return {}
    names = {"adds": "difference", "adds_low": "ci_low", "adds_high": "ci_high", "adds_p": "p_value"}
    names |= {"adds_games": "games"}
    figures = {split: {name: row[field] for name, field in names.items()} for split, row in by_split.items()}
    return {"prm": figures.pop("all") | figures}


def over_seeds(values_S: Sequence[float]) -> dict:
    """``mean``, its 95 % interval (``ci_low``, ``ci_high``) and the two-sided p of a mean of 0 (``p_value``), by
    Student's t over S seeds. A seed is one campaign, and campaigns are the sample: the interval holds for other seeds,
    not for other games alone. Interval and p are None for one seed, and where all values are equal."""
    from scipy import stats  # takes half a second to import

    array_S = np.asarray(values_S, np.float64)
    found = {"mean": float(array_S.mean())}
    if len(array_S) < 2 or np.ptp(array_S) < 1e-9:  # differences of the same two shares differ by rounding
        return found | {"ci_low": None, "ci_high": None, "p_value": None}
    test = stats.ttest_1samp(array_S, 0.0)
    low, high = test.confidence_interval(0.95)
    return found | {"ci_low": float(low), "ci_high": float(high), "p_value": float(np.asarray(test)[1])}


def _is_figure(row: Mapping) -> bool:
    return row["control"] == LIKELIHOOD and decoding(row["decoding"]).method == "best_of_n"


def _added(played: pa.Table, control: DecodingConfig, names: Mapping) -> list[dict]:
    """Rows of :func:`prm_adds` for one policy and one search."""
    search = control.under(PRM)
    sides: list[dict[tuple[str, str], bool]] = []
    for way in (control, search):
        of = played.filter(pc.field("decoding") == way.name)
        splits = sorted(of["split"].unique().to_pylist())
        sides.append({(split, game): won for split in splits for game, won in wins(of, split=split).items()})
    control_won, prm_won = sides
    found = []
    for split in [*sorted({split for split, _ in prm_won}), "all"]:
        before, after = (
            {"/".join(key): won for key, won in side.items() if split in (key[0], "all")}
            for side in (control_won, prm_won)
        )
        named = {"split": split, "decoding": search.name, "control": control.by}
        found.append({**names, **named, **asdict(paired_test(before, after))})
    return found


def deciding(rows: Sequence[dict], decoding: str) -> list[dict]:
    """The rows that policies are reported by: this way of playing, on ``unseen`` where there are such games."""
    splits = {row["split"] for row in rows}
    split = "unseen" if "unseen" in splits else "seen"
    return [row for row in rows if row["split"] == split and row["decoding"] == decoding]


def choosing(outcomes: pa.Table, way: str) -> tuple[list[dict], list[dict]]:
    """(rows that the champion is chosen by, rows that it is reported by), one an iteration, for one way of playing.

    No game is in both: the best of several on some games is a little lucky there. It is chosen on ``seen`` and reported
    on ``unseen``. Where there is only one of the two, half of its games choose, by a hash of the game's id.
    """
    told = outcomes.filter(pc.field("decoding") == way)
    seen, unseen = (told.filter(pc.field("split") == split) for split in ("seen", "unseen"))
    if not (len(seen) and len(unseen)):
        either = seen if len(seen) else unseen
        played = either["game_id"].to_pylist()
        choose = set(sorted(set(played), key=_drawn)[::2])
        seen, unseen = (either.filter([(game in choose) == side for game in played]) for side in (True, False))
    return summary(seen), summary(unseen)


def _drawn(game_id: str) -> float:
    return unit(game_id, 0)


def crowned(chosen: Sequence[dict], told: Sequence[dict]) -> dict:
    """The champion's row, of :func:`choosing`'s: of games that it was not chosen by, where any are left."""
    champion = best(chosen)
    return next(row for row in (*told, *chosen) if row["iteration"] == champion)


def best(rows: Sequence[dict]) -> int:
    """The iteration with the highest success; the earliest of equals."""
    return max(rows, key=lambda row: (row["success"], -row["iteration"]))["iteration"]
