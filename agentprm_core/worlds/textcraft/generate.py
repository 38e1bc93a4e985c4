"""Generated games: a tree of recipes for a goal, recipes that lead elsewhere, nothing from disk.

Each game has recipes of its own, so that they must be read. A tree has depth 1 to 4: so many crafting steps one after
the other. Recipes take one to three ingredients, some a family with two or three craftable members (``2 planks``);
some items have two recipes. Two to ten more recipes take the tree's ingredients and lead elsewhere. What takes a plan
more than sixteen actions is not a game.

Splits are disjoint by construction (:mod:`agentprm_core.worlds.textcraft.names`): no goal of one is a goal of another,
and no item of an unseen game occurs in a train or seen game.
"""

from __future__ import annotations

import random

from agentprm_core.errors import DataError
from agentprm_core.types import Game
from agentprm_core.worlds.textcraft.compiled import write_game
from agentprm_core.worlds.textcraft.engine import TextCraft
from agentprm_core.worlds.textcraft.names import FORMS, goals_of, names_of
from agentprm_core.worlds.textcraft.planner import solves
from agentprm_core.worlds.textcraft.recipes import Ingredient, Recipe, RecipeBook, spoken, write_book

SPLITS = ("train", "seen", "unseen")
DEPTHS = (1, 2, 3, 4)
MAX_ACTIONS = 16
"""By a plan, so that of the twenty that the papers give an episode four are left for mistakes."""
_ATTEMPTS = 200
_PARTS = (1, 2, 3), (45, 42, 13)
"""Ingredients of a recipe, and how often, as in Minecraft's recipes."""
_TAKES = (1, 2, 3, 4, 6, 8), (42, 16, 14, 12, 10, 6)
"""How many of an ingredient that is got."""
_TAKES_CRAFTED = (1, 2, 3, 4), (45, 30, 15, 10)
_MAKES = (1, 2, 3, 4, 6), (50, 15, 12, 15, 8)
_FAMILY = 0.25
"""Chance that an ingredient one step deep is a family."""
_SECOND = 0.2
"""Chance of a second recipe for an item that is one step deep."""
_SHARED = 0.25
"""Chance that an ingredient to be got is one that the tree already takes."""
_DISTRACTORS = (2, 10)


def generate_games(count: int, seed: int, split: str) -> list[Game]:
    """``count`` games, sorted by id, a quarter of each depth. A larger count begins with the same games.

    Raises DataError for an unknown split.
    """
    if split not in SPLITS:
        raise DataError(f"TextCraft generates the splits {', '.join(SPLITS)}, not {split!r}")
    return [_game(split, seed, index, DEPTHS[index % len(DEPTHS)]) for index in range(count)]


def _game(split: str, seed: int, index: int, depth: int) -> Game:
    game_id = f"textcraft/generated/{split}/{seed}/{index:06d}"
    rng, world = random.Random(game_id), TextCraft()
    for _ in range(_ATTEMPTS):
        goal = rng.choice(goals_of(split))
        tree = _Tree(rng, split, goal, depth)
        lines = [recipe.line for recipe in tree.recipes]
        rng.shuffle(lines)
        payload = write_game(goal, "agentgym", lines, write_book(tree.book()))
        attributes = {"source": "generated", "depth": depth, "recipe_count": len(lines)}
        game = Game(game_id, "textcraft", split, f"depth_{depth}", f"Craft {spoken(goal)}.", payload, attributes)
        if solves(world, game, MAX_ACTIONS):
            return game
    raise DataError(f"{game_id}: {_ATTEMPTS} trees in a row take a plan more than {MAX_ACTIONS} actions")


class _Tree:
    """The recipes of one game while they are drawn."""

    def __init__(self, rng: random.Random, split: str, goal: str, depth: int) -> None:
        self.recipes: list[Recipe] = []
        self._rng, self._names = rng, names_of(split)
        self._used = {goal}
        self._base: list[str] = []
        self._families: dict[str, tuple[str, ...]] = {}
        self._craft(goal, depth)
        self._lead_elsewhere(rng.randint(*_DISTRACTORS))

    def book(self) -> RecipeBook:
        items = {recipe.output for recipe in self.recipes}
        items |= {each.name for recipe in self.recipes for each in recipe.ingredients if not each.tag}
        tag_of = {member: family for family, members in self._families.items() for member in members}
        return RecipeBook(tuple(self.recipes), frozenset(items), frozenset(self._families), tag_of)

    def _craft(self, name: str, depth: int, tag: str | None = None) -> None:
        """A recipe of ``name``, ``depth`` steps deep, and those of what it takes."""
        more = self._drawn(_PARTS) - 1
        steps = [depth - 1, *(self._rng.randint(0, depth - 1) if depth > 2 else 0 for _ in range(more))]
        parts = {each.name: each for each in map(self._ingredient, steps)}
        self.recipes.append(Recipe(name, self._drawn(_MAKES), tuple(parts.values()), tag))
        if depth == 1 and tag is None and self._rng.random() < _SECOND:
            self.recipes.append(Recipe(name, self._drawn(_MAKES), (self._gotten(),)))

    def _ingredient(self, depth: int) -> Ingredient:
        if depth == 0:
            return self._gotten(shared=_SHARED)
        if depth == 1 and self._rng.random() < _FAMILY:
            return Ingredient(self._family(), self._drawn(_TAKES_CRAFTED), tag=True)
        name = self._fresh()
        self._craft(name, depth)
        return Ingredient(name, self._drawn(_TAKES_CRAFTED))

    def _gotten(self, shared: float = 0.0) -> Ingredient:
        if not self._base or self._rng.random() >= shared:
            self._base.append(self._fresh())
            return Ingredient(self._base[-1], self._drawn(_TAKES))
        return Ingredient(self._rng.choice(self._base), self._drawn(_TAKES))

    def _family(self) -> str:
        """A form that the game has not had yet, with two or three members and their recipes."""
        had = set(map(_form, self._used))
        family = self._rng.choice([form for form in FORMS if form not in had])
        members = self._rng.sample([name for name in self._names if _form(name) == family], self._rng.randint(2, 3))
        self._families[family] = tuple(members)
        self._used.update(members)
        for member in members:
            self.recipes.append(Recipe(member, self._drawn(_MAKES), (self._gotten(),), family))
        return family

    def _lead_elsewhere(self, count: int) -> None:
        """Recipes of items that the tree does not take, each with an ingredient that it does."""
        taken = sorted({each.name for recipe in self.recipes for each in recipe.ingredients} - self._families.keys())
        for _ in range(count):
            parts = {name: Ingredient(name, self._drawn(_TAKES)) for name in [self._rng.choice(taken)]}
            for _ in range(self._drawn(_PARTS) - 1):
                extra = self._gotten(shared=0.5)
                parts.setdefault(extra.name, extra)
            shuffled = self._rng.sample(list(parts.values()), len(parts))
            self.recipes.append(Recipe(self._fresh(), self._drawn(_MAKES), tuple(shuffled)))

    def _fresh(self) -> str:
        """A name that the game has not had, of a form that is none of its families."""
        while True:
            name = self._rng.choice(self._names)
            if name not in self._used and _form(name) not in self._families:
                self._used.add(name)
                return name

    def _drawn(self, table: tuple[tuple[int, ...], tuple[int, ...]]) -> int:
        return self._rng.choices(*table)[0]


def _form(name: str) -> str:
    return name.rpartition("_")[2]
