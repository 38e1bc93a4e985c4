"""TextCraft's engine, word for word the published one (ADaPT, Prasad et al. 2024; AgentGym's copy as its variant).

Departures, each where the published environment breaks down or has no opinion:
1. A number of more than 4,000 digits is answered with ``Could not execute``: Python reads and writes 4,300 at most.
2. A recipe that takes one item twice (as itself and for its family) needs all of it held; there is none in Minecraft's.
3. ``admissible`` lists what means something: ``inventory``; ``get`` of what the recipes in sight take, in the number
   that a recipe takes or up to four times it; each crafting command in sight, which is refused where its ingredients
   are not held; where they are, the command with a member in the place of a family. Crafting commands are listed with
   the number that they make and without it, which is taken as well. Any other text is answered too, as the published
   environment does.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from agentprm_core.errors import DataError
from agentprm_core.types import Game
from agentprm_core.worlds.base import Observation, UnsupportedGame
from agentprm_core.worlds.textcraft.compiled import INVENTORY, CompiledGame, compile_game
from agentprm_core.worlds.textcraft.recipes import spoken

_CRAFT = re.compile(r"craft (.*) using (.*)")
_GET = re.compile(r"get ([0-9]+) (.*)")
_COUNTED = re.compile(r"([0-9]+) (.*)")
_MOST_DIGITS = 4000


class _Refused(Exception):
    """What the world says to a command that does nothing."""


class TextCraft:
    """One episode: an inventory, and the compiled game that all episodes of a game share."""

    __slots__ = ("_admissible", "_crafts", "_game", "_key", "held")

    def __init__(self) -> None:
        self.held: dict[str, int] = {}
        """Item → number, in the order in which they came. Numbers may be 0 (``get 0 stick``)."""

    def reset(self, game: Game) -> Observation:
        """Raises :class:`UnsupportedGame` naming the game, what is wrong with it and why."""
        try:
            self._game: CompiledGame = compile_game(game.payload)
        except DataError as error:
            raise UnsupportedGame(f"TextCraft cannot play {game.id}: {error}; make the games anew") from error
        self._key = self._game.digest + blake2b(game.id.encode(), digest_size=16).digest()
        self.held = {}
        self._crafts: list[str] = []
        self._admissible = self._game.always
        return Observation(self._game.opening, self._admissible)

    def step(self, command: str) -> Observation:
        """What the published environment answers. ``reward`` and ``done`` are of this step alone: 1 where it made the
        goal."""
        won = False
        try:
            if match := _CRAFT.match(command):
                text, won = self._craft(match[1], match[2])
            elif match := _GET.match(command):
                text = self._get(match[1], match[2])
            elif command.startswith(INVENTORY):
                return Observation(self._inventory(), self._admissible)
            else:
                return Observation(f"Could not execute {command}", self._admissible)
        except _Refused as refusal:
            return Observation(refusal.args[0] or f"Could not execute {command}", self._admissible)
        crafts = self._game.craftable(self.held)
        if crafts != self._crafts:
            self._crafts, self._admissible = crafts, tuple(sorted((*crafts, *self._game.always)))
        return Observation(text, self._admissible, float(won), won)

    def clone(self) -> TextCraft:
        twin = TextCraft.__new__(TextCraft)
        twin._game, twin._crafts, twin._admissible = self._game, self._crafts, self._admissible
        twin._key, twin.held = self._key, self.held.copy()
        return twin

    def state_key(self) -> str:
        """32 hex digits: of the game and of the inventory in its order, which ``inventory`` shows."""
        return blake2b(repr(self.held).encode(), digest_size=16, key=self._key).hexdigest()

    def _get(self, number: str, item: str) -> str:
        count, name = _read_number(number), item.replace(" ", "_")
        if not self._game.book.can_get(name):
            raise _Refused(f"Could not find {item}")
        self.held[name] = self.held.get(name, 0) + count
        return f"Got {count} {item}"

    def _craft(self, output: str, ingredients: str) -> tuple[str, bool]:
        """(the reply, whether the goal was made)."""
        tags, held = self._game.book.tags, self.held
        wanted = _COUNTED.match(output)
        count, name = (_read_number(wanted[1]), wanted[2]) if wanted else (1, output)
        name = name.replace(" ", "_")
        used = [_read_ingredient(part.strip()) for part in ingredients.split(",")]
        item_id = None if name in tags else f"minecraft:{name}"
        for each, number in used:
            if each in tags or each not in held or held[each] < number:
                raise _Refused(f"Could not find enough items to craft {item_id}")
        recipe = None if name in tags else self._game.match(name, used)
        if recipe is None:
            tag = f"minecraft:{name}" if name in tags else None
            asked = f"ItemTagWithCount(item_tag=ItemTag(tag={tag!r}, item_id={item_id!r}), count={count})"
            raise _Refused(f"Could not find a valid recipe for {asked}")
        if any(held[each] < sum(number for other, number in used if other == each) for each, _ in used):
            raise _Refused(f"Could not find enough items to craft {item_id}")
        for each, number in used:
            held[each] -= number
            if not held[each]:
                del held[each]
        made = recipe.output
        held[made] = held.get(made, 0) + recipe.count
        return f"Crafted {recipe.count} minecraft:{made}", made == self._game.goal

    def _inventory(self) -> str:
        if not self.held:
            return "Inventory: You are not carrying anything."
        return "Inventory: " + "".join(f"[{spoken(name)}] ({count}) " for name, count in self.held.items())


def _read_number(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise _Refused("")
    return int(digits)


def _read_ingredient(text: str) -> tuple[str, int]:
    match = _COUNTED.match(text)
    if match is None:
        raise _Refused(f"Wrong item format: {text}")
    return match[2].replace(" ", "_"), _read_number(match[1])
