"""Tree-GRPO (Ji et al. 2025, arXiv 2509.21240): trees of episodes that fork, compared within a tree and among trees.

**What it learns from.** Each rollout of π_{i−1} is the first episode of a tree. ``rounds`` times, ``forks`` states are
drawn in each tree, and π_{i−1} plays on from each of them to another end. An episode's advantage is

    A = (R − mean R) / std R  in its tree  +  (R − mean R) / std R  among all episodes of its game's trees

Turns that episodes share get the sum of these episodes' advantages, so that outcomes of forks tell good turns from bad
ones. No PRM takes part.

**How it updates.** As :mod:`agentprm_core.methods.grpo`. With ``refresh`` fresh trees grow while the policy is trained.

A fork starts from a copy of the world, made by replaying the shared actions: worlds are deterministic, and a replay
needs no engine that can clone. Departs from the paper in that the clip is applied to a shared turn once, after the sum,
that a probability ratio is of a turn's action, and that a fork's row reads the shared turns again, without training on
them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agentprm_core.config import Count
from agentprm_core.credit.trees import Leaf, turn_advantages
from agentprm_core.datasets import REPLAYED, episodes_from_table, episodes_to_table, read_table
from agentprm_core.kept import digest, kept
from agentprm_core.methods.base import Collected, Given, Played, Updated
from agentprm_core.methods.gradient import (
    Credit,
    GradientConfig,
    Rule,
    experience_of,
    follow_these,
    play_whole,
    rollouts_digest,
    told,
)
from agentprm_core.policy.models import Checkpoint
from agentprm_core.rollout import Start, play
from agentprm_core.seeding import episode_seed
from agentprm_core.suites import advantages_suite
from agentprm_core.types import ADVANTAGES, EPISODES, Episode, Game

TREES = pa.schema([*EPISODES, ("tree", pa.int32()), ("advantage", pa.float64())])
"""One row a turn of every episode of every tree, sorted by game, episode, turn. ``tree`` is the number of the tree's
first episode. Turns that an episode shares with the one it forks from are replayed ones, with advantage 0: the other
episode has them."""


@dataclass(frozen=True, kw_only=True)
class Config(GradientConfig):
    """Parameters of ``method.name: tree_grpo``."""

    forks: Count
    """States of a tree that are played on from in each round."""
    rounds: Count
    """In a later round forks may themselves be forked."""


@dataclass(frozen=True)
class Grown:
    """An episode of a tree."""

    episode: Episode
    parent: int | None = None
    """The number, in the tree, of the one that it forks from."""

    @property
    def leaf(self) -> Leaf:
        shared = 0 if self.parent is None else self.episode.start
        return Leaf(self.episode.length, self.episode.reward, self.parent, shared)


Trees = dict[tuple[str, int], list[Grown]]
"""By game and number of the first episode, sorted; episodes in the order in which they were played."""


def collect(config: Config, given: Given) -> Collected:
    """Rows of TREES."""
    played_by = given.policy.digest, rollouts_digest(given)
    decides = (config.forks, config.rounds, given.seed, given.temperature, given.play, *played_by)
    path = given.scratch / f"trees-{digest(*decides, given.device, given.threads)}.parquet"
    table = kept(path, TREES, lambda: grown(config, given, given.policy, given.episodes, given.seed))
    advantage_N = table["advantage"].to_numpy()
    forks = table.filter(pc.not_equal(table["tree"], table["episode"]))  # pyright: ignore[reportAttributeAccessIssue]: made at import
    ends = forks.filter(forks["done"]).num_rows
    figures = {"episodes": ends + len(given.episodes), "turns": table.num_rows, **told(advantage_N)}
    played = Played(ends, sum(method != REPLAYED for method in forks["method"].to_pylist()))
    return Collected(table, figures, advantages_suite(table.select(ADVANTAGES.names)), played)


def update(config: Config, given: Given) -> Updated:
    """The clipped update."""
    table = read_table(given.folders.collected, TREES)
    first = experience_of(list(episodes_from_table(table.select(EPISODES.names))), _credit(table, 0, Path()))
    rule = Rule(_credit, partial(_fresh_trees, config), TREES, beta=config.beta)
    return follow_these(config, given, rule, first)


def grown(config: Config, given: Given, player: Checkpoint, first: Sequence[Episode], seed: int) -> pa.Table:
    """Rows of TREES: ``player`` has played ``first``, and plays on from states of what there is, round by round."""
    games = {game.id: game for game in given.training_games}
    trees: Trees = {(episode.game_id, episode.index): [Grown(episode)] for episode in first}
    trees = dict(sorted(trees.items()))
    numbers = {game_id: 1 + max(index for _, index in keys) for game_id, keys in _by_game(trees)}
    for round_ in range(config.rounds):
        begun: list[Start] = []
        belongs: dict[tuple[str, int], tuple[tuple[str, int], int]] = {}
        for key, tree in trees.items():
            for fork in range(config.forks):
                drawn = episode_seed(seed, *key, round_, fork)
                parent, turn = random.Random(drawn).choice(nodes(tree))
                start = _start(tree[parent].episode, turn, games[key[0]], numbers[key[0]], drawn)
                numbers[key[0]] += 1
                begun.append(start)
                belongs[key[0], start.index] = key, parent
        played = play(given.play.sampler(player, given.temperature), begun, **given.play.worlds)
        for episode in sorted(played, key=lambda episode: (episode.game_id, episode.index)):
            key, parent = belongs[episode.game_id, episode.index]
            trees[key].append(Grown(episode, parent))
    return _table(given, trees, player.digest)


def nodes(tree: Sequence[Grown]) -> list[tuple[int, int]]:
    """(number of the episode, turn) of the states that a fork may start at: those that a turn of the tree has led to
    and that are not its end, each once. The first state of all, where there is no other."""
    found = [
        (number, turn)
        for number, grown_ in enumerate(tree)
        for turn in range(grown_.episode.start + (number > 0), grown_.episode.length)
        if turn > 0
    ]
    return found or [(0, tree[0].episode.start)]


def _start(episode: Episode, turn: int, game: Game, number: int, seed: int) -> Start:
    shared = episode.turns[:turn]
    actions, reasons = tuple(t.action for t in shared), tuple(t.reason for t in shared)
    return Start(game, number, seed, actions=actions, reasons=reasons)


def _table(given: Given, trees: Trees, player: str) -> pa.Table:
    """Rows of TREES of whole trees."""
    rows: dict[tuple[str, int], tuple[int, np.ndarray]] = {}
    for game_id, keys in _by_game(trees):
        credited = turn_advantages([[grown_.leaf for grown_ in trees[key]] for key in keys])
        for key, of_tree in zip(keys, credited):
            for grown_, advantage_T in zip(trees[key], of_tree):
                rows[game_id, grown_.episode.index] = key[1], advantage_T
    episodes = [grown_.episode for tree in trees.values() for grown_ in tree]
    table = episodes_to_table(episodes, iteration=given.iteration, method="policy", policy=player)
    ordered = [rows[episode.game_id, episode.index] for episode in sorted(episodes, key=lambda e: (e.game_id, e.index))]
    tree_N = np.concatenate([np.full(len(advantage_T), tree, np.int32) for tree, advantage_T in ordered])
    advantage_N = np.concatenate([advantage_T for _, advantage_T in ordered])
    return table.append_column("tree", pa.array(tree_N)).append_column("advantage", pa.array(advantage_N)).cast(TREES)


def _by_game(trees: Trees) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    return ((game_id, list(keys)) for game_id, keys in groupby(trees, key=lambda key: key[0]))


def _fresh_trees(config: Config, given: Given, games: Sequence[Game], time: int) -> pa.Table:
    first = list(episodes_from_table(play_whole(given, games, time)))
    return grown(config, given, given.trainee, first, episode_seed(given.seed, "fresh trees", time))


def _credit(table: pa.Table, time: int, path: Path) -> Credit:
    return Credit(table["advantage"].to_numpy())
