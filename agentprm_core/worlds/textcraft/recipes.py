"""Recipes as TextCraft knows them, and the text of a book of recipes inside a game's payload.

Names are bare (``oak_planks``): the engine's texts put ``minecraft:`` before them and blanks for underscores.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from agentprm_core.errors import DataError


class Ingredient(NamedTuple):
    name: str
    """An item, or a tag: a family of items of which any member will do."""
    count: int  # pyright: ignore[reportIncompatibleMethodOverride]: nobody counts in it
    tag: bool = False


class Recipe(NamedTuple):
    output: str
    count: int  # pyright: ignore[reportIncompatibleMethodOverride]: nobody counts in it
    ingredients: tuple[Ingredient, ...]
    tag: str | None = None
    """The family that the output belongs to by this recipe."""

    @property
    def line(self) -> str:
        """As the first observation lists it: ``craft 4 stick using 2 planks``."""
        return craft_command(self.output, self.count, [(each.count, each.name) for each in self.ingredients])

    @property
    def short(self) -> str:
        """The line without the number that it makes: ``craft stick using 2 planks``."""
        return craft_command(self.output, None, [(each.count, each.name) for each in self.ingredients])


class MadeFromItself(DataError):
    """Something whose recipes lead back to it."""

    def __init__(self, message: str, recipes: Sequence[Recipe] = ()) -> None:
        super().__init__(message)
        self.recipes = recipes
        """Those of the circle."""


@dataclass(frozen=True)
class RecipeBook:
    """All that can be crafted or got in one game. Recipes are in load order, which decides between equal ones."""

    recipes: tuple[Recipe, ...]
    items: frozenset[str]
    """Every item there is: what is not craftable among them can be got."""
    tags: frozenset[str]
    tag_of: Mapping[str, str]
    """Item → its family."""

    @cached_property
    def of_item(self) -> dict[str, tuple[Recipe, ...]]:
        return _grouped((recipe.output, recipe) for recipe in self.recipes)

    @cached_property
    def of_tag(self) -> dict[str, tuple[Recipe, ...]]:
        return _grouped((recipe.tag, recipe) for recipe in self.recipes if recipe.tag is not None)

    @cached_property
    def depths(self) -> dict[str, int]:
        """Name → crafting steps one after the other: least over its recipes of the most over their ingredients + 1.

        0 for what has no recipe (and is not in here). Raises MadeFromItself.
        """
        known: dict[str, int] = {}
        for name in (*self.of_item, *self.of_tag):
            self._measure(name, known, {})
        return known

    def depth(self, name: str) -> int:
        return self.depths.get(name, 0)

    def can_get(self, name: str) -> bool:
        """Whether ``get`` finds it: an item without a recipe that is no family."""
        return name in self.items and name not in self.tags and name not in self.of_item and name not in self.of_tag

    def _measure(self, name: str, known: dict[str, int], above: dict[str, Recipe]) -> int:
        """``above``: what it is a part of, and by which recipe."""
        if name in known:
            return known[name]
        if name in above:
            circle = list(above)[list(above).index(name) :]
            said = f"{name} is made from itself: {' from '.join((*circle, name))}"
            raise MadeFromItself(said, [above[each] for each in circle])
        recipes = self.of_item.get(name) or self.of_tag.get(name)
        if not recipes:
            return 0
        return known.setdefault(name, min(self._measure_by(made, name, known, above) for made in recipes))

    def _measure_by(self, made: Recipe, name: str, known: dict[str, int], above: dict[str, Recipe]) -> int:
        inside = {**above, name: made}
        return 1 + max(self._measure(each.name, known, inside) for each in made.ingredients)


def spoken(name: str) -> str:
    """``oak_planks`` → ``oak planks``."""
    return name.replace("_", " ")


def craft_command(output: str, count: int | None, ingredients: Iterable[tuple[int, str]]) -> str:
    """``count``: how many the recipe makes, as the lines have it; None: without, which the world takes as well."""
    used = ", ".join(f"{number} {spoken(name)}" for number, name in ingredients)
    return f"craft {'' if count is None else f'{count} '}{spoken(output)} using {used}"


def write_book(book: RecipeBook) -> str:
    """One line of JSON from which :func:`read_book` makes the same book."""
    used = {recipe.output for recipe in book.recipes}
    used |= {each.name for recipe in book.recipes for each in recipe.ingredients if not each.tag}
    made = [[recipe.output, recipe.count, recipe.tag, *map(_spelt, recipe.ingredients)] for recipe in book.recipes]
    rest = {"items": sorted(book.items - used), "tags": sorted(book.tags), "tag_of": dict(sorted(book.tag_of.items()))}
    return json.dumps({"recipes": made, **rest}, separators=(",", ":"))


def read_book(text: str) -> RecipeBook:
    """The book of :func:`write_book`.

    Raises:
        DataError: text that is no such book, or a recipe that makes itself; says which.
    """
    try:
        found = json.loads(text)
        recipes = tuple(
            Recipe(output, int(count), tuple(_ingredient(name, number) for name, number in parts), tag)
            for output, count, tag, *parts in found["recipes"]
        )
        items = {*found["items"], *(recipe.output for recipe in recipes)}
        items |= {each.name for recipe in recipes for each in recipe.ingredients if not each.tag}
        book = RecipeBook(recipes, frozenset(items), frozenset(found["tags"]), dict(found["tag_of"]))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"its book of recipes cannot be read ({error})") from error
    for recipe in recipes:
        if recipe.count < 1 or not recipe.ingredients or any(each.count < 1 for each in recipe.ingredients):
            raise DataError(f"a recipe of {recipe.output} takes or makes nothing")
    if not book.depths:  # which refuses what is made from itself
        raise DataError("its book has no recipes")
    return book


def extended_lists(book: RecipeBook, goal: str) -> dict[str, tuple[Recipe, ...]]:
    """Item → its recipes after ADaPT's reset, where looking up the goal's tree appends to each list of recipes those of
    its ingredients: ``craft GOAL using <ingredients of a sub-item>`` then makes the sub-item.

    Lists that stay as they are, are not in here. A recipe that a list has twice is in it once.
    """
    of_item = {name: list(recipes) for name, recipes in book.of_item.items()}
    of_tag = {name: list(recipes) for name, recipes in book.of_tag.items()}
    walked: set[str] = set()

    def walk(name: str, above: frozenset[str]) -> Sequence[Recipe]:
        if name in above:
            return ()
        recipes = of_item.get(name) or of_tag.get(name)
        if recipes is None:
            return ()
        if name in walked:
            return recipes
        inside = above | {name}
        for recipe in recipes:  # grows while it is walked: what was appended is looked up too
            for each in recipe.ingredients:
                recipes.extend(new for new in walk(each.name, inside) if new not in recipes)
        walked.add(name)
        return recipes

    walk(goal, frozenset())
    return {name: tuple(of_item[name]) for name in walked if name in of_item and len(of_item[name]) > 1}


def _spelt(each: Ingredient) -> tuple[str, int]:
    return ("#" if each.tag else "") + each.name, each.count


def _ingredient(name: str, count: int) -> Ingredient:
    return Ingredient(name.removeprefix("#"), int(count), name.startswith("#"))


def _grouped(pairs: Iterable[tuple[str, Recipe]]) -> dict[str, tuple[Recipe, ...]]:
    found: dict[str, list[Recipe]] = {}
    for name, recipe in pairs:
        found.setdefault(name, []).append(recipe)
    return {name: tuple(recipes) for name, recipes in found.items()}
