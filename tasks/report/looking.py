"""Games played to be looked at: the episodes, and what the policy and PRMs say of every turn.

Also episodes that a campaign has on disk, with the labels and the branches of their turns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from agentprm_core.branches import BRANCHES
from agentprm_core.datasets import episodes_from_table
from agentprm_core.errors import DataError
from agentprm_core.improve.proposals import Proposer
from agentprm_core.opinions import opinions
from agentprm_core.policy.models import Checkpoint
from agentprm_core.search.playing import Search, play_games
from agentprm_core.search.recorded import Weighed
from agentprm_core.types import EPISODES, Episode, Game
from agentprm_core.worlds.base import OPEN
from agentprm_core.worlds.guarded import Guarded
from tasks.report.shown import Branch, Label, Shown

_DRAWS = 8
"""Actions drawn at a state where the world does not list all."""
_TOKENS = 4096
"""Of an episode, read to draw them."""


def look(
    policy: Checkpoint,
    chooser: Checkpoint | None,
    prms: Sequence[Checkpoint],
    games: Sequence[Game],
    search: Search,
    seed: int,
    *,
    name: str,
    scored: int | None = None,
) -> dict[str, Shown]:
    """{game: its episode and what is said of it}. ``chooser``: the PRM of a search; ``prms``: whose scores are shown;
    ``scored``: of how many candidates a turn (:func:`agentprm_core.opinions.opinions`).

    Raises ValueError where a search has no PRM.
    """
    weighed: dict[str, list[Weighed]] = defaultdict(list)
    episodes = play_games(
        policy, chooser, games, search, seed, recorder=lambda start, told: weighed[start.game.id].append(told)
    )
    of, constrained = {game.id: game for game in games}, search.settings.constrained
    return {
        episode.game_id: Shown(
            name,
            episode,
            said(policy, prms, episode, constrained=constrained, scored=scored),
            ending=ending(search.settings.world, of[episode.game_id], episode),
            tree=weighed[episode.game_id],
        )
        for episode in episodes
        if episode.turns
    }


def said(
    policy: Checkpoint | None, prms: Sequence[Checkpoint], episode: Episode, *, constrained: bool, scored: int | None
) -> list:
    """The candidates of each turn. Where the world lists no commands, or templates, the policy's own draws are among
    them."""
    more: list[tuple[str, ...]] = []
    opens = [not turn.admissible or any(OPEN in command for command in turn.admissible) for turn in episode.turns]
    if policy is not None and any(opens):
        longest = max(len(policy.renderer.action_text(turn.action, turn.reason)) for turn in episode.turns)
        proposer = Proposer(
            policy, temperature=1.0, constrained=constrained, max_action_tokens=longest + 8, batch_tokens=_TOKENS
        )
        (drawn,) = proposer.propose([episode], _DRAWS, [(episode.seed,)])
        actions = ([proposal.action for proposal in of] for of in drawn)
        more = [tuple(dict.fromkeys(of)) if open_ else () for of, open_ in zip(actions, opens)]
    return opinions(policy, prms, episode, constrained=constrained, more=more, scored=scored)


def ending(world_name: str, game: Game, episode: Episode) -> str:
    """What the world says to the episode's last action."""
    world = Guarded(world_name)
    seen = world.reset(game)
    for turn in episode.turns:
        seen = world.step(turn.action)
    return seen.text


def recorded_episode(data: Path, iteration: int, game_id: str) -> Episode:
    """The first rollout of a game, from a campaign's data. Raises DataError where the iteration did not play it."""
    rows = _rows(data / "rollouts" / str(iteration) / "episodes.parquet", game_id, EPISODES)
    found = next(iter(episodes_from_table(rows)), None)
    if found is None:
        raise DataError(f"{game_id}: no rollout of iteration {iteration} in {data / 'rollouts' / str(iteration)}")
    return found


def labels_of(data: Path, iteration: int, episode: Episode) -> dict[int, Label]:
    """{turn: label} of a rollout. Empty where the critic labels no turns of its own (``inverse``)."""
    path = data / "labels" / str(iteration) / "labels.parquet"
    if not path.exists() or not {"q", "visits", "variance", "episode"} <= {*pq.read_schema(path).names}:
        return {}
    rows = _rows(path, episode.game_id).to_pylist()
    return {
        row["turn"]: Label(row["q"], row["visits"], row["variance"])
        for row in rows
        if row["episode"] == episode.index and row["q"] is not None
    }


def branches_of(data: Path, iteration: int, episode: Episode) -> Mapping[int, list[Branch]]:
    """{turn: what plays after each action tried there came to}."""
    path = data / "rollouts" / str(iteration) / "branches.parquet"
    if not path.exists():
        return {}
    plays: dict[tuple[int, str], list[dict]] = defaultdict(list)
    for row in _rows(path, episode.game_id, BRANCHES).to_pylist():
        if row["episode"] == episode.index:
            plays[row["turn"], row["action"]].append(row)
    found: dict[int, list[Branch]] = defaultdict(list)
    for (turn, action), rows in plays.items():
        mean, length = (sum(row[name] for row in rows) / len(rows) for name in ("reward", "length"))
        found[turn].append(Branch(action, mean, len(rows), length))
    return found


def _rows(path: Path, game_id: str, schema: pa.Schema | None = None) -> pa.Table:
    """A table's rows of one game, without reading the others into memory."""
    if not path.exists():
        raise DataError(f"{path}: no such table; has that stage run?")
    table = pq.read_table(path, filters=pc.field("game_id") == game_id)
    return table if schema is None else table.select(schema.names).cast(schema)
