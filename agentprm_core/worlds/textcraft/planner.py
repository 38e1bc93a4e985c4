"""A planner over the recipes in sight: the fewest actions to the goal, and which recipe is the shortest way.

It plans backwards from the goal: what a recipe takes is held already, can be got, or is crafted by another recipe in
sight. Of several recipes, and of several members of a family, it takes the one with the fewest actions. Each item is
got once, all that the plan takes of it, just before the first recipe that takes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from agentprm_core.types import Game
from agentprm_core.worlds.base import NothingLeft, Observation
from agentprm_core.worlds.textcraft.compiled import CompiledGame, compile_game
from agentprm_core.worlds.textcraft.engine import TextCraft
from agentprm_core.worlds.textcraft.recipes import Ingredient, Recipe, craft_command, spoken


@dataclass(frozen=True, slots=True)
class _Plan:
    """Crafting commands in order with what each takes, and what is left of everything afterwards."""

    crafts: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
    got: dict[str, int]
    left: dict[str, int]

    @property
    def cost(self) -> int:
        return len(self.crafts) + len(self.got)


class Planner:
    """Plans in one game from one inventory (item → number held)."""

    def __init__(self, game: CompiledGame, held: Mapping[str, int]) -> None:
        self._game, self._start = game, _Plan((), {}, dict(held))

    def commands(self) -> list[str] | None:
        """Commands that make the goal, in order; None where the recipes in sight do not lead to it."""
        plan = self._made(self._game.goal, 1, self._start, ())
        if plan is None:
            return None
        commands, open_gets = [], dict(plan.got)
        for command, used in plan.crafts:
            for name, _ in used:
                commands += gets(self._game, name, open_gets.pop(name, 0))
            commands.append(command)
        return commands

    def cost(self, recipe: Recipe, count: int, above: tuple[str, ...] = ()) -> float:
        """Actions that it takes to have ``count`` by ``recipe``, infinitely many where that cannot be. ``above``: what
        this is crafted for, which it must not take."""
        plan = self._by(recipe, -(-count // recipe.count), self._start, (*above, recipe.output))
        return float("inf") if plan is None else plan.cost

    def _supplied(self, name: str, count: int, plan: _Plan, above: tuple[str, ...]) -> _Plan | None:
        """``plan`` and what it takes to have ``count`` of ``name``, which are then set aside; None if nothing does."""
        missing = count - plan.left.get(name, 0)
        if missing > 0 and name in self._game.gets:
            got = Counter(plan.got)
            got[name] += missing
            plan = _Plan(plan.crafts, dict(got), {**plan.left, name: count})
        elif missing > 0:
            made = self._made(name, missing, plan, above)
            if made is None:
                return None
            plan = made
        return _Plan(plan.crafts, plan.got, {**plan.left, name: plan.left[name] - count})

    def _made(self, name: str, count: int, plan: _Plan, above: tuple[str, ...]) -> _Plan | None:
        """``plan`` and the crafting of at least ``count`` of ``name`` by the shortest of the recipes in sight."""
        if name in above:
            return None
        recipes = [recipe for recipe in self._game.shown if recipe.output == name]
        return _shortest([self._by(recipe, -(-count // recipe.count), plan, (*above, name)) for recipe in recipes])

    def _by(self, recipe: Recipe, times: int, plan: _Plan, above: tuple[str, ...]) -> _Plan | None:
        used: list[tuple[str, int]] = []
        for each in recipe.ingredients:
            found = self._with(each, times, plan, above, [name for name, _ in used])
            if found is None:
                return None
            name, plan = found
            used.append((name, each.count))
        if self._game.match(recipe.output, used) is None:
            return None
        command = craft_command(recipe.output, recipe.count, [(number, name) for name, number in used])
        left = {**plan.left, recipe.output: plan.left.get(recipe.output, 0) + times * recipe.count}
        return _Plan((*plan.crafts, *[(command, tuple(used))] * times), plan.got, left)

    def _with(
        self, each: Ingredient, times: int, plan: _Plan, above: tuple[str, ...], taken: list[str]
    ) -> tuple[str, _Plan] | None:
        """(the item that stands for an ingredient, the plan with it)."""
        if not each.tag:
            supplied = self._supplied(each.name, each.count * times, plan, above)
            return None if supplied is None else (each.name, supplied)
        members = [name for name in self._game.choices(each) if name not in taken]
        plans = {name: self._supplied(name, each.count * times, plan, above) for name in members}
        chosen = _shortest(list(plans.values()))
        return None if chosen is None else next((name, chosen) for name, found in plans.items() if found is chosen)


class ByPlan:
    """An expert that follows the plan, and plans anew where something else was done. It draws nothing, and always takes
    the shortest way."""

    def __init__(self, world: TextCraft, game: Game) -> None:
        self._world, self._game = world, compile_game(game.payload)
        self._next: list[str] | None = None
        self._last: str | None = None

    def act(self, seen: Observation, done: str | None = None) -> str:
        """The next command. Raises :class:`NothingLeft` where the recipes in sight do not lead to the goal."""
        if self._next is None or done not in (None, self._last):
            self._next = Planner(self._game, self._world.held).commands()
        if not self._next:
            raise NothingLeft(f"the recipes in sight do not lead to {spoken(self._game.goal)}")
        self._last = self._next.pop(0)
        return self._last


def gets(game: CompiledGame, name: str, count: int) -> list[str]:
    """Listed commands that get at least ``count`` of ``name``: the fewest, then the least too much."""
    listed, found = game.gets.get(name, []), []
    while count > 0:
        number = min((each for each in listed if each >= count), default=listed[-1])
        found.append(f"get {number} {spoken(name)}")
        count -= number
    return found


def solves(world: TextCraft, game: Game, max_turns: int) -> int | None:
    """How many actions the plan takes to win ``game``; None where there is none within ``max_turns``."""
    world.reset(game)
    for turn, command in enumerate((Planner(compile_game(game.payload), {}).commands() or [])[:max_turns]):
        if world.step(command).done:
            return turn + 1
    return None


def _shortest(plans: list[_Plan | None]) -> _Plan | None:
    return min((plan for plan in plans if plan is not None), key=lambda plan: plan.cost, default=None)
