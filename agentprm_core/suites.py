"""What is expected of games, rollouts, labels and of what methods collect: frames, and the expectations of each.

A suite turns a dataset into narrow frames (keys and derived numbers, no text) and says what must hold, so that a gate
costs little beside the data it guards.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from agentprm_core.expectations import (
    Check,
    Expectation,
    between,
    known,
    mean_between,
    one_of,
    unique,
    unique_together,
)
from agentprm_core.worlds.base import GOAL_WORDS, Between, OneOf, WorldSpec

TURN = ("game_id", "episode", "turn")
MIN_VALID = 0.5
"""Floor under the share of admissible actions in rollouts, and under that of filled templates that the world takes."""
MIN_STD = 0.001
"""Floor under the standard deviation of labels."""
LEAST_CHANCE = 1e-4
"""Two draws of games whose shares of demonstrated ones differ by more than is so likely were not drawn apart."""
_MIXED = "some episodes are won and some are lost (raise rollout.temperature or rollout.games)"
_WON = "some episodes are won (raise method.games, or a wider method.search)"
_ALIKE = "some episodes of one game end otherwise than others (raise rollout.episodes_per_game or rollout.games)"
_TIES = "not all are ties (lower method.margin, or raise method.samples or method.temperature)"


def games_suite(tables: Mapping[str, pa.Table], wanted: Mapping[str, int], spec: WorldSpec) -> list[Check]:
    """``tables`` and the number of games ``wanted``, both by split, of the world ``spec``. No game is in two splits."""
    games = pl.concat([pl.DataFrame(table).with_columns(part=pl.lit(part)) for part, table in tables.items()])
    attributes = [json.loads(text) for text in games["attributes"]]
    frame = games.select(
        "game_id",
        "part",
        "world",
        "kind",
        words=pl.col("goal").str.split(" ").list.len(),
        payload=pl.col("payload").hash().cast(pl.String),
        **{name: pl.Series(name, [of.get(name) for of in attributes]) for name in spec.attributes},
    )
    counts = games.group_by("part").len().sort("part")
    by_part = {part: 0 for part in wanted} | dict(counts.iter_rows())
    return [
        Check(
            "games",
            frame.to_arrow(),
            ("game_id",),
            (
                unique("game_id", "every game has an id of its own"),
                unique("payload", "no game twice, in one split or in two"),
                one_of("kind", spec.kinds, f"the kinds of {spec.name}"),
                between("words", GOAL_WORDS, None, "a goal of words"),
                *(_attribute(name, expected) for name, expected in spec.attributes.items()),
            ),
        ),
        *_places(games.select("game_id", "part"), attributes, spec),
        *_members(tables, spec),
        Check(
            "games by split",
            pa.table({"split": list(wanted), "missing": [wanted[part] - by_part[part] for part in wanted]}),
            ("split",),
            (one_of("missing", [0], "as many games as params.yaml asks for"),),
        ),
    ]


def _places(games: pl.DataFrame, attributes: Sequence[Mapping], spec: WorldSpec) -> list[Check]:
    """That the places of ``unseen`` and of guard games are new, in a world that keeps some for them. Published games
    have their own new places, so what counts is which games there are, not which places the generator keeps."""
    if spec.place is None or not spec.new_places:
        return []
    frame = games.with_columns(place=pl.Series([str(of.get(spec.place)) for of in attributes], dtype=pl.String))
    is_new = pl.col("part").is_in(["unseen", "guard"])
    new = frame.filter(is_new)["place"].unique()
    known = frame.filter(~is_new).with_columns(leaks=pl.col("place").is_in(new.implode()))
    why = f"no {spec.place} of unseen in train or seen: unseen, and guard games, are to measure new ones"
    return [Check("games by place", known.to_arrow(), ("game_id", "part", "place"), (one_of("leaks", [False], why),))]


def _members(tables: Mapping[str, pa.Table], spec: WorldSpec) -> list[Check]:
    """Of a mixture, what each world expects of its own games."""
    checks = []
    for name, member in spec.members.items():
        own = {split: table.filter(pc.field("world") == name) for split, table in tables.items()}
        *found, _ = games_suite(own, {split: table.num_rows for split, table in own.items()}, member)
        checks += [replace(check, name=f"{check.name} of {name}") for check in found]
    return checks


def _attribute(name: str, expected: Between | OneOf) -> Expectation:
    if isinstance(expected, Between):
        return between(name, expected.low, expected.high, expected.why)
    return one_of(name, expected.values, expected.why)


def rollouts_suite(rollouts: pa.Table, *, policy: str, episodes_per_game: int, searched: bool = False) -> list[Check]:
    """Rollouts of the checkpoint with digest ``policy``, ``episodes_per_game`` a game, or what it ``searched``: of that
    the won episodes alone are of use."""
    name = "search" if searched else "rollout"
    turns = _turns(rollouts)
    episodes = turns.group_by("game_id", "episode", maintain_order=True).agg(
        won=pl.col("won").any().cast(pl.Float64), dones=pl.col("done").sum(), ended=pl.col("done").last()
    )
    games = episodes.group_by("game_id", maintain_order=True).agg(episodes=pl.len())
    return [
        Check(f"{name} turns", _narrow(turns, policy), TURN, _turn_expectations(policy)),
        *_filled(rollouts, name),
        Check(
            f"{name} episodes",
            episodes.to_arrow(),
            ("game_id", "episode"),
            (
                one_of("dones", [1], "an episode ends once"),
                one_of("ended", [True], "an episode ends at its last turn"),
                mean_between("won", 0, None if searched else 1, _WON if searched else _MIXED, strict=True),
            ),
        ),
        Check(
            f"{name} games",
            games.to_arrow(),
            ("game_id",),
            (one_of("episodes", [episodes_per_game], "as many episodes of every game as params.yaml asks for"),),
        ),
    ]


def chosen_suite(episodes: pa.Table, policy: str) -> list[Check]:
    """Episodes chosen among the rollouts of the checkpoint with digest ``policy``, to be imitated."""
    turns = _turns(episodes)
    return [Check("chosen turns", _narrow(turns, policy), TURN, _turn_expectations(policy))]


def demonstrated_suite(
    demonstrated: Collection[str], pairs: Sequence[tuple[str, Collection[str], Collection[str]]]
) -> Check:
    """Of each pair (name, games, other games, none in both): are as many demonstrated of the one as of the other, but
    for chance?

    ``chance`` is the two-sided p-value of Fisher's exact test: where demonstrations are drawn apart, the number among
    the games is hypergeometric. It is 1 where every game is demonstrated, or none.
    """
    from scipy.stats import fisher_exact  # takes half a second to import

    rows = []
    for name, games, others in pairs:
        shown = [sum(game in demonstrated for game in some) for some in (games, others)]
        table = [[shown[0], len(games) - shown[0]], [shown[1], len(others) - shown[1]]]
        said = " and ".join(f"{count} of {len(some)}" for count, some in zip(shown, (games, others)))
        chance = fisher_exact(table).pvalue  # pyright: ignore[reportAttributeAccessIssue]: its result is made at import
        rows.append({"games": name, "demonstrated": said, "chance": float(chance)})
    why = "games were demonstrated as often as chance has it (demonstrations, rollouts and searches are drawn apart)"
    return Check(
        "demonstrated games",
        pa.Table.from_pylist(rows),
        ("games", "demonstrated"),
        (known("chance", "a chance is a number"), between("chance", LEAST_CHANCE, None, why)),
    )


def labels_suite(labels: pa.Table, turns: int, replayed: int = 0) -> list[Check]:
    """Labels of ``turns`` turns: q in [0,1] and not all alike, one row a turn, split by game. As many turns as were
    ``replayed`` may have no visits, since nobody decided them."""
    frame = pl.DataFrame(labels)
    sides = frame.group_by("game_id", maintain_order=True).agg(splits=pl.col("split").n_unique())
    unvisited = int((labels["visits"].to_numpy() == 0).sum())
    keys = pa.table({"rows": [labels.num_rows - turns], "unvisited": [max(0, unvisited - replayed)]})
    spread = pa.table({"std": [float(np.std(labels["q"].to_numpy()))]})
    return [
        Check(
            "labels",
            labels,
            TURN,
            (
                unique_together(TURN, "one label a turn"),
                known("q", "q is a number"),
                between("q", 0, 1, "q is in [0, 1]"),
                between("visits", 0, None, "a number of visits"),
                between("variance", 0, 0.25 + 1e-6, "the variance of numbers in [0, 1]"),
                one_of("split", ["train", "validation"], "a side of the split"),
            ),
        ),
        Check("label games", sides.to_arrow(), ("game_id",), (one_of("splits", [1], "a game is on one side"),)),
        Check(
            "label rows",
            keys,
            ("rows",),
            (
                one_of("rows", [0], "as many labels as there are turns"),
                one_of("unvisited", [0], "every (s,a) that was decided was visited"),
            ),
        ),
        Check("label spread", spread, ("std",), (mean_between("std", MIN_STD, None, "q is not the same everywhere"),)),
    ]


def inverse_suite(rows: pa.Table) -> list[Check]:
    """Turns of experts and of learners: each once, each with a next action but the last, both classes on each side."""
    table = pl.DataFrame(rows.drop_columns(["action", "next_reason"]))
    frame = table.select(
        "dataset", *TURN, "split", "weight", open=pl.col("next_action").is_null() != pl.col("terminal")
    )
    weights = table.group_by("split").agg(experts=pl.col("weight").filter("expert").sum() / pl.col("weight").sum())
    sides = table.group_by("game_id", maintain_order=True).agg(splits=pl.col("split").n_unique())
    return [
        Check(
            "inverse turns",
            frame.to_arrow(),
            ("dataset", *TURN),
            (
                unique_together(("dataset", *TURN), "one row a turn"),
                one_of("open", [False], "a next action at every turn but an episode's last"),
                between("weight", 0, None, "every turn counts", strict=True),
                one_of("split", ["train", "validation"], "a side of the split"),
            ),
        ),
        Check("inverse games", sides.to_arrow(), ("game_id",), (one_of("splits", [1], "a game is on one side"),)),
        Check(
            "inverse sides",
            weights.sort("split").to_arrow(),
            ("split",),
            (between("experts", 0, 1, "experts and learners on each side", strict=True),),
        ),
    ]


def advantages_suite(advantages: pa.Table) -> list[Check]:
    """One advantage a turn, finite, and not 0 everywhere."""
    some = pa.table({"told": [float(np.mean(advantages["advantage"].to_numpy() != 0))]})
    return [
        Check(
            "advantages",
            advantages,
            TURN,
            (
                unique_together(TURN, "one advantage a turn"),
                known("advantage", "an advantage is a number"),
                between("advantage", -1e6, 1e6, "an advantage is a finite number"),
            ),
        ),
        Check("advantages told", some, ("told",), (mean_between("told", 0, None, _ALIKE, strict=True),)),
    ]


def pairs_suite(pairs: pa.Table, margin: float, most_ties: float, ties: float) -> list[Check]:
    """Pairs of actions: different ones, the chosen better by more than ``margin``; ``ties`` is the share dropped."""
    table = pl.DataFrame(pairs)
    frame = table.select(
        *TURN,
        same=pl.col("chosen") == pl.col("rejected"),
        gap=pl.col("chosen_score").cast(pl.Float64) - pl.col("rejected_score").cast(pl.Float64),
    )
    return [
        Check(
            "pairs",
            frame.to_arrow(),
            TURN,
            (
                one_of("same", [False], "two different actions"),
                between("gap", margin, None, "the chosen action scores higher by the margin", strict=True),
            ),
        ),
        Check("pair ties", pa.table({"ties": [ties]}), ("ties",), (mean_between("ties", 0, most_ties, _TIES),)),
    ]


def _turns(rollouts: pa.Table) -> pl.DataFrame:
    columns = [*TURN, "reward", "won", "done", "valid", "policy", "state_key"]
    return pl.DataFrame(rollouts.select(columns))


def _narrow(turns: pl.DataFrame, policy: str) -> pa.Table:
    previous = pl.col("turn").shift(1).over("game_id", "episode")
    return turns.select(
        *TURN,
        "policy",
        step=(pl.col("turn") - previous).fill_null(pl.col("turn") + 1),
        early=pl.when(pl.col("done")).then(0.0).otherwise(pl.col("reward")),
        reward=pl.col("reward"),
        valid=pl.col("valid").cast(pl.Float64),
    ).to_arrow()


def _filled(rollouts: pa.Table, name: str) -> list[Check]:
    """Commands that fill a template (``search[…]``) are admissible whatever they say. So what counts is the share that
    the world takes: they lead to another state. An episode's last command is left out, as no state after it is kept."""
    turns = pl.DataFrame(rollouts.select([*TURN, "action", "admissible", "valid", "state_key"]))
    after = pl.col("state_key").shift(-1).over("game_id", "episode")
    filled = turns.with_columns(taken=(after != pl.col("state_key")).cast(pl.Float64)).filter(
        pl.col("valid")
        & (pl.col("admissible").list.len() > 0)  # where nothing is listed, any text is an action, and fills none
        & ~pl.col("admissible").list.contains(pl.col("action"))
        & pl.col("taken").is_not_null()
    )
    if filled.is_empty():
        return []
    taken = mean_between("taken", MIN_VALID, 1, "the world takes enough of the commands that fill a template")
    return [Check(f"{name} filled templates", filled.select(*TURN, "taken").to_arrow(), TURN, (taken,))]


def _turn_expectations(policy: str) -> tuple[Expectation, ...]:
    return (
        unique_together(TURN, "one row a turn"),
        one_of("step", [1], "turns run 0, 1, 2 … without a gap"),
        one_of("early", [0.0], "no reward before the last turn"),
        between("reward", 0, 1, "the reward is in [0, 1]"),
        one_of("policy", [policy], "rollouts of the current policy"),
        mean_between("valid", MIN_VALID, 1, "enough of the actions are admissible"),
    )
