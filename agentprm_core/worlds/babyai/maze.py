"""The state of a level in play, and minigrid's low-level actions on it."""

from __future__ import annotations

from typing import Self

from agentprm_core.worlds.babyai import kinds
from agentprm_core.worlds.babyai.levels import Level
from agentprm_core.worlds.babyai.missions import DROP, GOES_ON, PICKUP, SUCCESS, TOGGLE, verify
from agentprm_core.worlds.babyai.view import look

LEFT, RIGHT, FORWARD = range(3)


class Maze:
    """Where everything is. A cell holds a number: 0 nothing, 1 wall, from 2 on the level's doors and things."""

    __slots__ = ("at", "carrying", "heading", "kinds", "level", "memory", "steps", "things")

    def __init__(self, level: Level) -> None:
        self.level = level
        self.things = bytearray(level.things)
        self.kinds = bytearray(level.kinds)
        self.at = level.at
        self.heading = level.heading
        self.carrying = level.carrying
        self.memory = list(level.mission.memory)
        self.steps = 0

    def copy(self) -> Self:
        """An independent state of the same level."""
        twin = object.__new__(type(self))
        twin.level = self.level
        twin.things = self.things[:]
        twin.kinds = self.kinds[:]
        twin.at = self.at
        twin.heading = self.heading
        twin.carrying = self.carrying
        twin.memory = self.memory[:]
        twin.steps = self.steps
        return twin

    def physical(self) -> tuple:
        """All of the state but the number of steps, comparable and hashable."""
        kept = bytes(self.things), bytes(self.kinds[: self.level.count])
        return (*kept, self.at, self.heading, self.carrying, tuple(self.memory))

    @property
    def width(self) -> int:
        return self.level.width

    def front(self) -> int:
        """The index of the cell that the agent faces."""
        return self.at + self.level.ahead[self.heading]

    def is_door(self, thing: int) -> bool:
        return kinds.is_door(self.kinds[thing])

    def is_open(self, thing: int) -> bool:
        return self.is_door(thing) and kinds.door_state(self.kinds[thing]) == kinds.OPEN

    def image(self) -> int:
        """What the agent sees (:func:`agentprm_core.worlds.babyai.view.look`)."""
        carried = self.kinds[self.carrying]
        return look(self.things, self.level.width, self.at, self.heading, self.kinds, carried)

    def do(self, action: int) -> tuple[float, bool]:
        """Do one low-level action: (minigrid's reward, whether minigrid says that the episode ended)."""
        self.steps += 1
        if action == LEFT:
            self.heading = (self.heading - 1) % 4
        elif action == RIGHT:
            self.heading = (self.heading + 1) % 4
        else:
            self._act(action, self.front())
        result = verify(self.level.mission.root, self, action)
        if result == GOES_ON:
            return 0.0, False
        return (1 - 0.9 * (self.steps / self.level.max_steps) if result == SUCCESS else 0.0), True

    def _act(self, action: int, front: int) -> None:
        thing = self.things[front]
        if action == FORWARD:
            if thing == 0 or self.is_open(thing):
                self.at = front
        elif action == PICKUP:
            if not self.carrying and self.kinds[thing] >= kinds.KEY:
                self.carrying, self.things[front] = thing, 0
        elif action == DROP:
            if thing == 0 and self.carrying:
                self.things[front], self.carrying = self.carrying, 0
            for slot, tracked in self.level.mission.tracked:
                places = map(self.things.find, tracked)
                self.memory[slot] = tuple(place for place in places if place >= 0)
        elif action == TOGGLE and self.is_door(thing):
            self._toggle(thing)

    def _toggle(self, thing: int) -> None:
        kind, key = self.kinds[thing], self.kinds[self.carrying]
        state, color = kinds.door_state(kind), kinds.color(kind)
        if state == kinds.LOCKED and key != kinds.KEY + color:
            return
        self.kinds[thing] = kinds.door(color, kinds.CLOSED if state == kinds.OPEN else kinds.OPEN)
