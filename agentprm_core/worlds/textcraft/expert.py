"""An expert each of whose actions follows from one command above and one recipe in sight.

A plan from the goal down to what can be got takes one look at a recipe after the other, all before the first action;
nothing in the text shows them. A small policy cannot imitate that. This expert looks at one recipe at a time and shows
it: a recipe is tried before what it takes is held. The world refuses (``Could not find enough items to craft …``), and
the command that was tried says what to make next, and then what to get. At last the recipe is crafted.

It says ``craft stick using 2 planks``, without the number that the recipe makes. That stands before the name. Who
writes a command word by word needs it first, and a wrong one leads to another recipe.
"""

from __future__ import annotations

import random

from agentprm_core.types import Game
from agentprm_core.worlds.base import NothingLeft, Observation
from agentprm_core.worlds.textcraft.compiled import compile_game
from agentprm_core.worlds.textcraft.engine import TextCraft
from agentprm_core.worlds.textcraft.planner import Planner, gets
from agentprm_core.worlds.textcraft.recipes import Ingredient, Recipe, craft_command, spoken


class Expert:
    """Plays one episode; sees the inventory of ``world``, which whoever remembers all replies knows too.

    At each choice between recipes, or between the members of a family, the shortest way is taken with chance
    ``knowledge``, else any. ``seed`` decides which.
    """

    def __init__(self, world: TextCraft, game: Game, seed: int = 0, knowledge: float = 1.0) -> None:
        self._world, self._game = world, compile_game(game.payload)
        self._rng, self._knowledge = random.Random(seed), knowledge
        self._tried: set[str] = set()
        self._chosen: dict[str, Recipe] = {}
        """Item or family → the recipe that was settled on."""
        self._last = ""

    def act(self, seen: Observation, done: str | None = None) -> str:
        """The next command; what was really ``done`` counts as tried.

        Raises :class:`NothingLeft` where the recipes in sight do not lead to the goal.
        """
        self._tried.add(self._last if done is None else done)
        self._planner = Planner(self._game, self._world.held)
        self._last = self._towards(self._recipe(self._game.goal, [self._game.goal], 1, ()), 1, ())
        return self._last

    def _recipe(self, name: str, items: list[str], count: int, above: tuple[str, ...]) -> Recipe:
        """By which recipe ``name`` is made, which one of ``items`` stands for: once settled it stays."""
        if name not in self._chosen:
            ways = {
                recipe: self._planner.cost(recipe, count, above)
                for recipe in self._game.shown
                if recipe.output in items and recipe.output not in above
            }
            ways = {recipe: cost for recipe, cost in ways.items() if cost < float("inf")}
            if not ways:
                raise NothingLeft(f"the recipes in sight do not lead to {spoken(name)}")
            informed = self._rng.random() < self._knowledge
            self._chosen[name] = min(ways, key=ways.__getitem__) if informed else self._rng.choice(list(ways))
        return self._chosen[name]

    def _towards(self, recipe: Recipe, needed: int, above: tuple[str, ...]) -> str:
        """The next command on the way to ``needed`` by ``recipe``: what it takes is made first, then got."""
        held, above = self._world.held, (*above, recipe.output)
        times = -(-needed // recipe.count)
        items = [self._item(each, times, above) for each in recipe.ingredients]
        missing = [(each, item) for each, item in zip(recipe.ingredients, items) if held.get(item, 0) < each.count]
        if missing and recipe.short not in self._tried:
            return recipe.short
        for each, item in missing:
            if item not in self._game.gets:
                count = each.count * times - held.get(item, 0)
                return self._towards(self._recipe(each.name, [item], count, above), count, above)
        for each, item in missing:
            return gets(self._game, item, each.count * times - held.get(item, 0))[0]
        return craft_command(recipe.output, None, [(each.count, item) for each, item in zip(recipe.ingredients, items)])

    def _item(self, each: Ingredient, times: int, above: tuple[str, ...]) -> str:
        """The item that stands for an ingredient: of a family a member that is held, else the one settled on."""
        if not each.tag:
            return each.name
        members = self._game.choices(each)
        enough = [name for name in members if self._world.held.get(name, 0) >= each.count]
        return enough[0] if enough else self._recipe(each.name, members, each.count * times, above).output
