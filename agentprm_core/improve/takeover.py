"""The world's expert takes over episodes of a policy, so that it is seen in states that the policy gets into."""

from __future__ import annotations

import random
from collections.abc import Iterable

from agentprm_core.types import Episode, Game
from agentprm_core.worlds import world_spec
from agentprm_core.worlds.demonstrations import demonstrate


def taken_over(
    episodes: Iterable[Episode],
    games: dict[str, Game],
    *,
    world_name: str,
    max_turns: int,
    seed: int,
    knowledge: float,
    expert: str | None = None,
) -> list[Episode]:
    """For each episode of T actions one in which the first k are done again and the expert goes on. k is drawn from
    0 … T − 1 and is ``Episode.start``, so that the expert's actions alone are imitated.

    ``games``: by id. ``max_turns``: actions in all.

    Raises DataError for a world without an expert, or without that one.
    """
    spec, draws = world_spec(world_name), random.Random(seed)
    world, found = spec.make(), []
    for episode in episodes:
        game, k, of_expert = games[episode.game_id], draws.randrange(episode.length), draws.getrandbits(62)
        most = spec.turns(game, max_turns)
        before = [turn.action for turn in episode.turns[:k]]
        how = {"seed": of_expert, "knowledge": knowledge, "expert": expert, "before": before}
        found.append(demonstrate(world, game, world_name=world_name, max_turns=most, **how))
    return found
