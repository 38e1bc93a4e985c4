"""Episodes cut at a drawn length, so that where one stops tells nothing.

An episode of many a world ends before its last action only when it is won. Whoever reads where episodes end has then
read which of them were won, without looking at a single outcome. Here an episode is cut after

    length = start + 1 + ⌊u · (most_turns − start)⌋ turns,     u ∈ [0, 1) a hash of the seed and the episode's name

where ``start`` turns were replayed. The length is drawn without looking at the episode: not at its turns, its own
length or its outcome. An episode that ended before that stops where it ended, as one that was cut there does, and
nothing marks which of the two it is.

What stays: an episode that was won can stop no later than with its win. So where many episodes are cut, a winning
action is their last one more often than another action is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from agentprm_core.seeding import unit
from agentprm_core.types import Episode

DEMONSTRATIONS = 0
"""The dataset of demonstrations; rollouts are 1 … by iteration."""
SEARCHED = "searched"
"""The dataset of what a search played."""


@dataclass(frozen=True)
class Cut:
    """Where the episodes of a campaign are cut."""

    most_turns: Mapping[str, int]
    """{game: actions that an episode of it may have, replayed ones included}."""
    seed: int

    def length(self, dataset: int | str, game_id: str, index: int, start: int) -> int:
        """Turns that are kept of an episode of a ``dataset``, the ``start`` replayed ones included; at least one that
        was decided."""
        u = unit(f"cut {dataset} {game_id} {index}", self.seed)
        return start + 1 + int(u * max(0, self.most_turns[game_id] - start))

    def episode(self, episode: Episode, dataset: int | str) -> Episode:
        """The episode up to its cut. Its outcome stays that of the whole episode."""
        length = self.length(dataset, episode.game_id, episode.index, episode.start)
        return replace(episode, turns=episode.turns[:length])
