"""Several worlds as one: ``SPEC = mixture("both", [TEXTCRAFT, ARITHMETIC])``, games drawn by share, one tokenizer.

A game keeps its own world's name, kind and attributes. It is played by its own world's engine, for no more actions than
that world allows, and it is won as it is won there. Tables break success down by world.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Self

from agentprm_core.errors import DataError
from agentprm_core.types import Game
from agentprm_core.worlds.base import Expert, Observation, UnsupportedGame, World, WorldSpec
from agentprm_core.worlds.game_sources import generated_by


class OneOfSeveral:
    """The world that the game is of (:class:`agentprm_core.worlds.base.World`)."""

    __slots__ = ("_members", "_world")

    def __init__(self, members: Mapping[str, WorldSpec], world: World | None = None) -> None:
        self._members, self._world = members, world

    @property
    def played(self) -> World:
        """The world of the game that was reset last."""
        assert self._world is not None, "reset comes first"
        return self._world

    def reset(self, game: Game) -> Observation:
        if game.world not in self._members:
            raise UnsupportedGame(f"{game.id}: a game of {game.world!r}, not of {', '.join(self._members)}")
        self._world = self._members[game.world].make()
        return self._world.reset(game)

    def step(self, command: str) -> Observation:
        return self.played.step(command)

    def clone(self) -> Self:
        return type(self)(self._members, self.played.clone())

    def state_key(self) -> str:
        return self.played.state_key()


def mixture(name: str, members: Sequence[WorldSpec], shares: Sequence[float] | None = None) -> WorldSpec:
    """The spec of several worlds. ``shares``: of the games, one a member, in any unit; None: as many of each.

    Raises ValueError for fewer than two members, two of one name or the same texts, or shares that are not one positive
    number each.
    """
    by_name = {member.texts: member for member in members}
    weights = [1.0] * len(members) if shares is None else list(shares)
    if len(by_name) < 2 or len(by_name) < len(members):
        raise ValueError(f"mixture {name}: two worlds or more of different names, not {[m.name for m in members]}")
    if len(weights) != len(members) or min(weights) <= 0:
        raise ValueError(f"mixture {name}: {len(members)} positive shares, not {weights}")

    def generate(count: int, seed: int, split: str) -> list[Game]:
        counts = _apportioned(count, weights)
        asked = zip(members, counts, strict=True)
        found = list(chain.from_iterable(generated_by(member, n, seed, split) for member, n in asked if n))
        if len({game.id for game in found}) < len(found):
            raise DataError(f"games: two worlds of {name} give a game of {split} the same id")
        return sorted(found, key=lambda game: game.id)

    def expert(world: World, game: Game, seed: int, knowledge: float) -> Expert:
        assert isinstance(world, OneOfSeveral)
        return by_name[game.world].demonstrator()(world.played, game, seed, knowledge)

    return WorldSpec(
        name=name,
        make=lambda: OneOfSeveral(by_name),
        generate=generate,
        kinds=tuple(dict.fromkeys(chain.from_iterable(member.kinds for member in members))),
        instruction="You act in one of several worlds. What you see first says where you are and what to do.",
        expert=expert if any(member.expert for member in members) else None,
        phrases=tuple(dict.fromkeys(chain.from_iterable(member.phrases for member in members))),
        entity="|".join(f"(?:{entity})" for entity in dict.fromkeys(member.entity for member in members)),
        rewritten={told: read for member in members for told, read in member.rewritten.items()},
        alike="|".join(f"(?:{alike})" for alike in dict.fromkeys(member.alike for member in members)),
        max_turns=max(member.max_turns for member in members),
        expert_turns=max(member.expert_turns for member in members),
        clones=all(member.clones for member in members),
        members=by_name,
    )


def _apportioned(count: int, weights: Sequence[float]) -> list[int]:
    """``count`` by ``weights``, in whole numbers by largest remainder; the earlier one where two are alike."""
    exact = [count * weight / sum(weights) for weight in weights]
    counts = [int(part) for part in exact]
    by_rest = sorted(range(len(exact)), key=lambda i: counts[i] - exact[i])
    for i in by_rest[: count - sum(counts)]:
        counts[i] += 1
    return counts
