"""minigrid's bot as the expert: its low-level plan, packed into the longest text actions.

The bot plans in an environment of minigrid's that goes on to the end of the mission. Every text action is then tried in
a clone of the world, and the one that gets furthest along the plan is done; what leads to a state of the plan by
another way counts as well. Where somebody else's action left the plan, the bot is told what was done and plans anew.

The bot knows the mission in minigrid's words, with the order that the goal does not tell, and remembers what it saw.
It gives up where no text action gets it further (boxes cannot be opened, open doors cannot be closed) or where it fails
itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentprm_core.worlds.babyai.levels import make_environment
from agentprm_core.worlds.babyai.maze import LEFT
from agentprm_core.worlds.babyai.missions import DROP
from agentprm_core.worlds.babyai.world import BabyAI
from agentprm_core.worlds.base import NothingLeft, Observation

_DONE = 6
"""minigrid's action of an agent that thinks it is done."""
_LONGEST = 400
"""Low-level actions that a plan may have."""


class _Lost(Exception):
    """The bot changes its mind for ever."""


class _Goals(list):
    """The bot's stack of goals, which it may not add to without end."""

    left = 500

    def append(self, goal: object) -> None:
        self.left -= 1
        if self.left < 0:
            raise _Lost
        super().append(goal)


class Expert:
    """Plays the level that ``world`` is at the start of."""

    def __init__(self, world: BabyAI) -> None:
        self._world = world
        self._history: list[int] = []
        self._steps = 0
        self._offered: dict[str, bytes] = {}
        self._own = ""
        self._places: dict[tuple, int] | None = None

    def act(self, seen: Observation, done: str | None = None) -> str:
        """The next text action. Raises :class:`NothingLeft` where the bot or the text actions do not get further."""
        world = self._world
        self._follow(self._own if done is None else done)
        here = world.maze.physical()
        if self._places is None or here not in self._places:
            self._places = self._plan()
        best, self._own = self._places[here], ""
        for command, low_level in world.scene.actions.items():
            if not low_level:
                continue
            twin = world.clone()
            if twin.step(command).done:
                self._own = command
                break
            place = self._places.get(twin.maze.physical(), -1)
            if place > best:
                best, self._own = place, command
        if not self._own:
            raise NothingLeft
        self._offered, self._steps = world.scene.actions, world.maze.steps
        return self._own

    def _follow(self, command: str) -> None:
        """Note which low-level actions ``command`` came to."""
        executed = self._world.maze.steps - self._steps
        self._history += self._offered.get(command.lower().strip(), b"")[:executed]

    def _plan(self) -> dict[tuple, int]:
        """State → how far along the bot's plan it is, from the present state (0) on."""
        maze = self._world.maze.copy()
        places = {maze.physical(): 0}
        for i, action in enumerate(self._bots_plan(), 1):
            maze.do(action)
            places[maze.physical()] = i
        return places

    def _bots_plan(self) -> list[int]:
        """The low-level actions that the bot would do from here to the end, fewer where it fails."""
        from minigrid.utils.baby_ai_bot import BabyAIBot

        level = self._world.maze.level
        environment, _ = make_environment(level.number, level.seed)
        environment.gen_obs = dict  # nobody reads the images: the bot looks at the maze
        plan: list[int] = []
        try:
            done = iter(self._history)
            if level.carrying:
                plan += _empty_hands(environment, done)
            bot = BabyAIBot(environment)
            bot.stack = _Goals(bot.stack)
            advice = bot.replan()
            for action in done:
                environment.step(action)
                advice = bot.replan(action)
            while advice != _DONE and len(plan) < _LONGEST:
                plan.append(int(advice))  # pyright: ignore[reportArgumentType]: None is a fault of the bot, see below
                reward = environment.step(advice)[1]
                if reward > 0:  # a strict clause may say that all is lost, and yet the mission can be done
                    break
                advice = bot.replan(advice)
        except (AssertionError, TypeError, _Lost):
            return plan  # the bot's own faults: an assertion, no place to drop what is in the way, no end
        return plan


def _empty_hands(environment, done: Iterator[int]) -> list[int]:
    """The bot cannot begin with something in its hands: what was done until the drop, else the actions to it."""
    for action in done:
        environment.step(action)
        if environment.carrying is None:
            return []
    plan = []
    for _ in range(4):
        free = environment.grid.get(*environment.front_pos) is None
        plan.append(DROP if free else LEFT)
        environment.step(plan[-1])
        if free:
            break
    return plan
