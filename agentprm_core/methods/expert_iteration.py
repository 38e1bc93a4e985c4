"""Expert iteration (arXiv 1705.08439) with a PRM: the policy imitates what a search by the PRM wins.

**What it learns from.** Beam search with π_{i−1} under PRM_i on further training games. Of width 1 it is Best-of-N that
tries its choice in a clone of the world first and does not go back to a state it has been in: policies lose games by
walking in circles, and what they imitate must show the way out. Games come from the other end of the campaign's order
than the rollouts'. With the default numbers the rollouts and searches of three iterations are all of different games,
so the PRM chooses where it was not trained. Where a campaign has fewer games (``games.train``), searches meet the
rollouts of this iteration or of earlier ones. The figure ``in_rollouts`` says for how many games that is so.

**How it updates.** Supervised fine-tuning on the searched episodes that are kept (``keeps``):

- ``won``: those that were won.
- ``expert_like``: those whose last action the PRM scores as it does the demonstrations' last ones. This reads no
  outcome, but it reads where episodes end, and many a world ends one when it is won.
- ``expert_like_cut``: the same of episodes and demonstrations that are cut at a drawn length first, so that nothing
  tells where they end. What is imitated are the cut episodes.
- ``ended_early``: those that ended before their last action. A control: it reads no PRM, and no outcome by name.

``expert_like`` and ``expert_like_cut`` are for the critic ``inverse``: only its score of a last action is of the
expert.

Departs from paper A, whose update is online DPO (:mod:`agentprm_core.methods.online_dpo`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from agentprm_core.config import Count, Share
from agentprm_core.credit.cutting import DEMONSTRATIONS, SEARCHED, Cut
from agentprm_core.datasets import episodes_from_table, episodes_to_table, read_table
from agentprm_core.draws import share_of
from agentprm_core.improve.rft import ended_early, expert_like, successes
from agentprm_core.methods.base import Collected, Given, Played, Updated
from agentprm_core.methods.trust import trusted
from agentprm_core.methods.update_base import UpdateConfig, imitate
from agentprm_core.overlap import of_search
from agentprm_core.policy.models import Checkpoint
from agentprm_core.search.decoding_config import decoding
from agentprm_core.search.playing import Search, play_games, search_digest
from agentprm_core.shards.base import kept_portions
from agentprm_core.suites import rollouts_suite
from agentprm_core.types import EPISODES, Episode, Game

_PORTIONS = 4
"""A kill costs one."""
_PROBED = 256
"""Demonstrations whose ends are scored."""
_MOST_OUT_OF_ACTIONS = 0.1
"""Of the episodes that ran out of actions, the share that may end as demonstrations do before the log speaks of it."""


@dataclass(frozen=True, kw_only=True)
class Config(UpdateConfig):
    """Parameters of ``method.name: expert_iteration``."""

    games: Count
    """Training games that are searched."""
    search: str
    """How: ``beam_1x16`` keeps 1 node and draws 16 actions; ``best_of_16`` needs no clones of the world."""
    keeps: Literal["won", "expert_like", "expert_like_cut", "ended_early"]
    """Which searched episodes are imitated: won ones, those that end as demonstrations do (whole or cut at a drawn
    length), or those that ended before the last action."""
    replay: Share
    """Demonstrations as a share of the episodes visited."""

    def __post_init__(self) -> None:
        try:
            way = decoding(self.search)
        except ValueError as error:
            raise ValueError(f"search: {error}") from None
        if not way.is_search:
            raise ValueError(f"search: {self.search!r} is not allowed: a search, as beam_1x16")
        if way.method == "lookahead":
            raise ValueError(
                f"search: {self.search!r} is not allowed: a campaign trains no world model to look ahead in"
            )


def collect(config: Config, given: Given) -> Collected:
    """Rows of EPISODES: each game once. Raises DataError for a PRM that may not be followed."""
    shown = trusted(given, given.require, config.search)
    games = share_of(
        given.training_games,
        config.games,
        seed=given.campaign_seed,
        iteration=given.iteration,
        backwards=True,
    )
    search = given.search(decoding(config.search))
    size = math.ceil(len(games) / max(_PORTIONS, given.shards.players))
    parts = [games[at : at + size] for at in range(0, len(games), size)]
    decides = (search, given.seed, given.device, given.threads)
    names = [search_digest(given.policy, given.prm, part, *decides) for part in parts]
    paths = [given.scratch / f"{name}.parquet" for name in names]
    shared = (given.policy, given.prm, search, given.seed, given.iteration)
    table = pa.concat_tables(
        kept_portions(given.shards, paths, EPISODES, _searcher, shared, [(part,) for part in parts])
    )
    checks = rollouts_suite(table, policy=given.policy.digest, episodes_per_game=1, searched=True)
    overlap, drawn_apart = of_search(given, [game.id for game in games])
    played = Played(len(games), table.num_rows)
    return Collected(table, _figures(table) | overlap | shown, [*checks, drawn_apart], played)


def update(config: Config, given: Given) -> Updated:
    """Imitation of the episodes that are kept."""
    searched = list(episodes_from_table(read_table(given.folders.collected, EPISODES)))
    figures = {}
    if config.keeps == "won":
        chosen = successes(searched)
    elif config.keeps == "ended_early":
        chosen = ended_early(searched, given.most_turns)
    elif config.keeps == "expert_like_cut":
        cut = Cut(given.most_turns, given.campaign_seed)
        demos = [cut.episode(demo, DEMONSTRATIONS) for demo in _probed(given)]
        parts = [cut.episode(episode, f"{SEARCHED} {given.iteration}") for episode in searched]
        chosen = _expert_like(given, parts, demos)
        figures["mean_actions_imitated"] = sum(episode.length for episode in chosen) / len(chosen)
    else:
        chosen = _expert_like(given, searched, _probed(given))
        figures |= knows_an_end(searched, chosen, given.most_turns)
    updated = imitate(config, given, chosen, config.replay)
    return Updated(updated.model, updated.figures | figures)


def _probed(given: Given) -> list[Episode]:
    return given.demonstrations[:: max(1, len(given.demonstrations) // _PROBED)]


def _expert_like(given: Given, searched: Sequence[Episode], demos: Sequence[Episode]) -> list[Episode]:
    return expert_like(searched, demos, given.prm.model, given.prm.renderer, given.hardware.pass_tokens)


def knows_an_end(
    searched: Sequence[Episode], alike: Sequence[Episode], most_turns: Mapping[str, int]
) -> dict[str, int]:
    """Episodes that ended because no action of ``most_turns`` ({game: actions}) was left, and how many of them are
    imitated: a PRM that knows how an expert ends takes nearly none of them for its own. Outcomes are not read, and
    nothing is left out."""
    out, out_alike = (
        sum(episode.length >= most_turns[episode.game_id] for episode in some) for some in (searched, alike)
    )
    if out_alike > _MOST_OUT_OF_ACTIONS * out:
        print(
            f"{out_alike} of the {out} episodes that ran out of actions are imitated as ending like demonstrations: "
            "this PRM hardly knows how an expert ends. More demonstrations (demos.games) may teach it; method "
            "online_dpo does without",
            flush=True,
        )
    return {"out_of_actions": out, "out_of_actions_imitated": out_alike}


def _searcher(
    policy: Checkpoint, prm: Checkpoint, search: Search, seed: int, iteration: int
) -> Callable[[Sequence[Game]], pa.Table]:
    """Searches a portion of the games."""

    def searched(games: Sequence[Game]) -> pa.Table:
        played = play_games(policy, prm, games, search, seed)
        return episodes_to_table(played, iteration=iteration, method=search.name, policy=policy.digest)

    return searched


def _figures(searched: pa.Table) -> dict:
    episodes = list(episodes_from_table(searched))
    return {
        "games": len(episodes),
        "turns": searched.num_rows,
        "success": sum(episode.won for episode in episodes) / len(episodes),
        "mean_actions": sum(episode.length for episode in episodes) / len(episodes),
    }
