"""A game of TextCraft made ready to be played: the payload read, the recipes in sight, what may be listed.

The payload is a line of JSON (``goal``, ``variant``, ``lines``: the crafting commands that the first observation
lists) and a line with the book of recipes (:func:`agentprm_core.worlds.textcraft.recipes.write_book`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from itertools import chain, product

from agentprm_core.errors import DataError
from agentprm_core.worlds.textcraft.recipes import (
    Ingredient,
    Recipe,
    RecipeBook,
    craft_command,
    extended_lists,
    read_book,
    spoken,
)

VARIANTS = ("adapt", "agentgym")
INVENTORY = "inventory"
_book = lru_cache(maxsize=512)(read_book)
"""Many games share a book."""
BATCHES = (1, 2, 3, 4)
"""``get`` is listed with what a recipe in sight takes, times these."""
_LINE = re.compile(r"craft ([0-9]+) (.+) using (.+)")
_PART = re.compile(r"([0-9]+) (.+)")


@dataclass(frozen=True)
class CompiledGame:
    """What all episodes of one game share."""

    goal: str
    lines: tuple[str, ...]
    book: RecipeBook
    lists: Mapping[str, Sequence[Recipe]]
    """Item → the recipes by which ``craft`` of that item may go, in the order in which they are tried."""
    shown: tuple[Recipe, ...]
    """The recipes of the lines."""
    digest: bytes

    @property
    def opening(self) -> str:
        return "Crafting commands:\n" + "\n".join(self.lines) + f"\n\nGoal: craft {spoken(self.goal)}."

    @cached_property
    def always(self) -> tuple[str, ...]:
        """Commands listed in every state, sorted: the crafting commands in sight too, which the world may refuse."""
        gets = [f"get {number} {spoken(name)}" for name, numbers in self.gets.items() for number in numbers]
        crafts = chain.from_iterable((recipe.line, recipe.short) for recipe in self.shown)
        return (*sorted({*crafts, *gets}), INVENTORY)

    @cached_property
    def gets(self) -> dict[str, list[int]]:
        """What can be got of what the recipes in sight take, and the numbers with which that is listed, ascending."""
        needed = {(each.name, each.count) for recipe in self.shown for each in recipe.ingredients}
        found: dict[str, set[int]] = {}
        for name, count in needed:
            if self.book.can_get(name):
                found.setdefault(name, set()).update(count * times for times in BATCHES)
        return {name: sorted(numbers) for name, numbers in found.items()}

    @cached_property
    def _crafts(self) -> tuple[tuple[tuple[tuple[str, int], ...], dict[str, None]], ...]:
        """(what must be held, the commands that it allows) of the lines with an item put in for each family: ``2
        planks`` becomes ``2 oak planks``."""
        found: dict[tuple[tuple[str, int], ...], dict[str, None]] = {}
        for recipe in self.shown:
            for names in product(*map(self.choices, recipe.ingredients)):
                used = [(name, each.count) for name, each in zip(names, recipe.ingredients)]
                made = self.match(recipe.output, used)
                if len(set(names)) == len(names) and made is not None and any(each.tag for each in recipe.ingredients):
                    parts = [(count, name) for name, count in used]
                    commands = (craft_command(recipe.output, number, parts) for number in (recipe.count, None))
                    found.setdefault(tuple(used), {}).update(dict.fromkeys(commands))
        return tuple(found.items())

    def craftable(self, held: Mapping[str, int]) -> list[str]:
        """The crafting commands whose ingredients are held and that are not listed in every state: those with an item
        in the place of its family."""
        crafts = []
        for needed, commands in self._crafts:
            for name, count in needed:
                if held.get(name, 0) < count:
                    break
            else:
                crafts += commands
        return crafts

    def match(self, output: str, used: Sequence[tuple[str, int]]) -> Recipe | None:
        """The first recipe of ``output`` that takes exactly ``used`` (item, number): for each of its ingredients the
        first of ``used`` that fits, in the same number, and nothing left over."""
        tag_of = self.book.tag_of
        for recipe in self.lists.get(output, ()):
            if len(recipe.ingredients) != len(used):
                continue
            left = list(used)
            for name, count, tag in recipe.ingredients:
                fits = next((one for one in left if (tag_of.get(one[0]) if tag else one[0]) == name), None)
                if fits is None or fits[1] != count:
                    break
                left.remove(fits)
            else:
                return recipe
        return None

    def choices(self, each: Ingredient) -> list[str]:
        """The items that an ingredient may be, sorted."""
        if not each.tag:
            return [each.name]
        return sorted(item for item, tag in self.book.tag_of.items() if tag == each.name)


def write_game(goal: str, variant: str, lines: Sequence[str], book: str) -> str:
    """The payload of a game. ``book`` is :func:`agentprm_core.worlds.textcraft.recipes.write_book`'s."""
    head = {"goal": goal, "variant": variant, "lines": list(lines)}
    return json.dumps(head, separators=(",", ":")) + "\n" + book


@lru_cache(maxsize=512)
def compile_game(payload: str) -> CompiledGame:
    """A payload made ready.

    Raises:
        DataError: it cannot be read, is cut off, or its goal cannot be crafted; says why.
    """
    head, _, book_text = payload.partition("\n")
    try:
        found = json.loads(head)
        goal, variant, lines = found["goal"], found["variant"], tuple(found["lines"])
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"its first line cannot be read ({error!r})") from error
    if variant not in VARIANTS:
        raise DataError(f"the variant {variant!r} is not one of {', '.join(VARIANTS)}")
    book = _book(book_text)
    if goal not in book.of_item:
        makes = f"the {len(book.of_item)} items that its recipes make"
        raise DataError(f"the goal {goal!r} is not among {makes}: ask for one of those, or load the game anew")
    lists = book.of_item
    if variant == "adapt":
        lists = {**lists, **extended_lists(book, goal)}
    digest = blake2b(payload.encode(), digest_size=16).digest()
    return CompiledGame(goal, lines, book, lists, tuple(read_line(line, book) for line in lines), digest)


def read_line(line: str, book: RecipeBook) -> Recipe:
    """A line of the first observation as a recipe. Raises DataError for a line that is none."""
    whole = _LINE.fullmatch(line)
    said = whole[3].split(", ") if whole else []
    parts = [part for part in map(_PART.fullmatch, said) if part]
    if not whole or len(parts) < len(said):
        raise DataError(f"{line!r} is no crafting command")
    names = [part[2].replace(" ", "_") for part in parts]
    used = tuple(Ingredient(name, int(part[1]), name in book.tags) for name, part in zip(names, parts))
    return Recipe(whole[2].replace(" ", "_"), int(whole[1]), used)
