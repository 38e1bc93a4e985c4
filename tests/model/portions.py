"""Work for tests of shards, as other processes find it by name; and all kinds of play that are done in shards."""

import os
import signal
import time
import uuid
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import torch

from agentprm_core import plays
from agentprm_core.errors import DataError
from agentprm_core.evaluate import OUTCOMES
from agentprm_core.methods import expert_iteration, playing_on
from agentprm_core.plays import Branch, Plays
from agentprm_core.policy.models import Checkpoint
from agentprm_core.prm.model import new_prm
from agentprm_core.rollout import play, starts
from agentprm_core.search.cells import Cell, measurer
from agentprm_core.search.decoding_config import decoding
from agentprm_core.search.playing import PlaySettings, Search
from agentprm_core.shards.base import kept_portions
from agentprm_core.types import EPISODES
from tests.model import toy

WORLD = "tests.model.toy:TOY"
NUMBERS = pa.schema([("number", pa.int64()), ("threads", pa.int64())])
GAMES = [toy.game(n) for n in range(7)]
SETTINGS = PlaySettings(WORLD, 6, 512, 8, constrained=True, slots=3, cache_mb=64)
PLAYS = Plays(2, 1.0, None, Branch(4, 3, 2, continuations=3, temperature=1.5), SETTINGS, seed=1001)


def counted(folder: Path, seconds: float = 0.0, deaths: int = 0, refused: int | None = None):
    """A number as a table. Notes each portion that it begins in ``folder``; portion 0 kills its process ``deaths``
    times."""

    def number(n: int) -> pa.Table:
        (folder / f"{n}-{uuid.uuid4()}").touch()
        if n == 0 and len(list(folder.glob("0-*"))) <= deaths:
            os.kill(os.getpid(), signal.SIGKILL)
        if n == refused:
            raise DataError(f"portion {n} cannot be used")
        time.sleep(seconds)
        return pa.table({"number": [n], "threads": [torch.get_num_threads()]}, schema=NUMBERS)

    return number


def faulty():
    def fault(n: int) -> None:
        raise RuntimeError("a fault of the code")

    return fault


def slow_rollouts(folder: Path, *shared):
    """Portions of rollouts that take a while, each noted in ``folder`` by its first seed when it begins."""
    portion = plays._player(*shared)

    def played(begun):
        (folder / f"{begun[0].seed}-{uuid.uuid4()}").touch()
        time.sleep(0.7)
        return portion(begun)

    return played


def prm() -> Checkpoint:
    torch.manual_seed(1)
    policy = toy.policy(1)
    return Checkpoint(new_prm(policy.model).eval(), policy.tokenizer, policy.renderer, "prm")


def everything(shards, scratch: Path) -> dict[str, pa.Table]:
    """Rollouts, branches, searches, labels by playing on, and cells of an evaluation: their tables."""
    policy, chooser = toy.policy(), prm()
    found = {"rollouts": plays.rollouts(PLAYS, policy, GAMES, {}, iteration=1, scratch=scratch, shards=shards)}
    episodes = sorted(
        play(SETTINGS.sampler(policy, 1.0), starts(GAMES, 1, seed=1), **SETTINGS.worlds), key=lambda e: e.game_id
    )
    games = {game.id: game for game in GAMES}
    sides = toy.sides(episodes, games)
    found["branches"] = plays.branches(PLAYS, policy, *sides, games, scratch=scratch, shards=shards)

    def tables(name, schema, work, shared, portions):
        paths = [scratch / f"{name}-{number}.parquet" for number in range(len(portions))]
        found[name] = pa.concat_tables(kept_portions(shards, paths, schema, work, shared, portions))

    search = Search(decoding("beam_1x4"), SETTINGS, 1.0)
    parts = [(GAMES[:3],), (GAMES[3:5],), (GAMES[5:],)]
    tables("searches", EPISODES, expert_iteration._searcher, (policy, chooser, search, 7, 1), parts)
    config = SimpleNamespace(continuations=2, gamma=0.9, outcome="binary")
    shared = (config, SETTINGS, 1.0, policy, games, {"validation_share": 0.5, "seed": 1})
    thirds = [(episodes[:2],), (episodes[2:4],), (episodes[4:],)]
    tables("labels", playing_on.BRANCHING_LABELS, playing_on._labeller, shared, thirds)
    ways = ("greedy", "sample", "best_of_4", "beam_2x2", "best_trajectory_of_2")
    cells = [(Cell("seen", GAMES, Search(decoding(way), SETTINGS, 1.0)),) for way in ways]
    tables("outcomes", OUTCOMES, measurer, (policy, chooser, None, 1, {"iteration": 1, "method": "m"}), cells)
    return found
