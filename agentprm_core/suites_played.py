"""What is expected of demonstrations, branching rollouts and evaluations: frames, and the expectations of each."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from agentprm_core.expectations import Check, between, known, one_of, unique, unique_together
from agentprm_core.suites import TURN

PLAY = (*TURN, "action", "continuation")
CELL = ("split", "decoding")


def demos_suite(demos: pa.Table) -> list[Check]:
    """Demonstrations, rows of EPISODES: whole episodes that the expert won, one a game."""
    columns = [*TURN, "reward", "won", "done", "policy"]
    turns = pl.DataFrame(demos.select(columns))
    previous = pl.col("turn").shift(1).over("game_id", "episode")
    frame = turns.select(
        *TURN,
        "policy",
        step=(pl.col("turn") - previous).fill_null(pl.col("turn") + 1),
        early=pl.when(pl.col("done")).then(0.0).otherwise(pl.col("reward")),
    )
    episodes = turns.group_by("game_id", "episode", maintain_order=True).agg(
        won=pl.col("won").last(), ended=pl.col("done").last(), ends=pl.col("done").sum()
    )
    return [
        Check(
            "demonstration turns",
            frame.to_arrow(),
            TURN,
            (
                unique_together(TURN, "one row a turn"),
                one_of("step", [1], "turns run 0, 1, 2 … without a gap"),
                one_of("early", [0.0], "no reward before the last turn"),
                one_of("policy", ["expert"], "the expert played"),
            ),
        ),
        Check(
            "demonstrations",
            episodes.to_arrow(),
            ("game_id", "episode"),
            (
                unique("game_id", "a game is demonstrated once"),
                one_of("won", [True], "the expert won"),
                one_of("ended", [True], "an episode ends at its last turn"),
                one_of("ends", [1], "an episode ends once"),
            ),
        ),
    ]


def branches_suite(branches: pa.Table, rollouts: pa.Table) -> list[Check]:
    """Branching rollouts, rows of BRANCHES, at states of ``rollouts``, rows of EPISODES. Empty where there are none."""
    if branches.num_rows == 0:
        return []
    states = pl.DataFrame(rollouts.select(TURN)).with_columns(played=pl.lit(True))
    frame = pl.DataFrame(branches).join(states, on=TURN, how="left", maintain_order="left")
    tried = frame.group_by(*TURN, "action", maintain_order=True).agg(
        gaps=pl.col("continuation").max() + 1 - pl.col("continuation").n_unique()
    )
    return [
        Check(
            "branch plays",
            frame.select(*PLAY, "reward", "length", at=pl.col("played").fill_null(False)).to_arrow(),
            PLAY,
            (
                unique_together(PLAY, "one row a play"),
                one_of("at", [True], "a play starts at a state of the rollouts"),
                known("reward", "every play has a reward"),
                between("reward", 0, 1, "the reward is in [0, 1]"),
                between("length", 0, None, "a play goes on, or ends with the action"),
            ),
        ),
        Check(
            "branch actions",
            tried.to_arrow(),
            (*TURN, "action"),
            (one_of("gaps", [0], "plays of an action run 0, 1, 2 … without a gap"),),
        ),
    ]


def outcomes_suite(outcomes: pa.Table, games: Mapping[str, int], *, policy: str) -> list[Check]:
    """Outcomes, rows of OUTCOMES, of the policy with digest ``policy``; ``games``: how many each split has."""
    table = pl.DataFrame(outcomes)
    cells = table.group_by(*CELL, maintain_order=True).agg(games=pl.len())
    short = cells.with_columns(missing=pl.col("split").replace_strict(games, default=-1) - pl.col("games"))
    costs = ("generated", "policy_read", "prm_read", "world_steps")
    return [
        Check(
            "outcomes",
            table.select(*CELL, "game_id", "policy", "reward", "actions", "inadmissible", *costs).to_arrow(),
            (*CELL, "game_id"),
            (
                unique_together((*CELL, "game_id"), "a game is played once in each way"),
                one_of("policy", [policy], "the policy that is measured played"),
                known("reward", "every game has a reward"),
                between("reward", 0, 1, "the reward is in [0, 1]"),
                *(between(name, 0, None, "a count") for name in ("actions", "inadmissible", *costs)),
            ),
        ),
        Check(
            "ways of playing",
            short.select(*CELL, "missing").to_arrow(),
            CELL,
            (one_of("missing", [0], "every way of playing has played all games of the split"),),
        ),
    ]
