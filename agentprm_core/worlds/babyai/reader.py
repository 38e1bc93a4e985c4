"""An expert that reads: every action follows from the goal and from what the text has told lately.

It keeps no map, and knows nothing that the policy is not told. The clauses of the goal are done one after another
(:func:`agentprm_core.worlds.babyai.told.clauses_of`). A thing of the clause that is in sight is gone to, picked up or
opened; what stands in the way is put aside. What is not in sight is looked for: all around at the start, then through
a closed door, behind which nobody has been; else by turning; else from elsewhere.

Ways through the view, and the numbers of things, are those of the admissible actions.
"""

from __future__ import annotations

from collections import Counter

from agentprm_core.worlds.babyai.told import Clause, Thing, Wanted, carried_in, goal_in, things_of
from agentprm_core.worlds.babyai.world import BabyAI
from agentprm_core.worlds.base import NothingLeft, Observation

_TURN, _TURN_BACK, _FORWARD, _DROP, _TOGGLE = "turn right", "turn left", "move forward", "drop", "toggle"
_ROUND = 3
"""Turns after which everything around was seen."""
_STRIDE = 6
"""Steps ahead after which it looks around again."""


class Reader:
    """Plays the level that ``world`` is at the start of."""

    def __init__(self, world: BabyAI) -> None:
        self._world = world  # asked where the start was, for goals such as "the ball behind you", and for no more
        self._start = world.maze.at, world.maze.heading
        self._goal: list[Clause] = []
        self._clauses: list[Clause] = []
        """What is left of the goal."""
        self._own = ""
        self._next: list[str] = []
        """What is to be done blindly: the last steps of laying a thing next to another."""
        self._turns = 0
        """Since the last step from here."""
        self._ahead = 0
        """Steps straight ahead, after looking around."""
        self._first = True
        """Whether this is still where it started."""
        self._entered = False
        self._crowded = False
        """Whether there is no room beside the thing to put another next to."""
        self._burden = ""
        """What was picked up to get it out of the way."""
        self._last_useful = -1
        """After how many turns a door or key that helps was last in sight; -1: not since the last step from here."""
        self._locked: set[str] = set()
        """Colours of locked doors that were seen."""
        self._blocked: set[str] = set()
        """... before which something lay when they were last in sight."""
        self._used: Counter[str] = Counter()
        """Doors gone through, and things gone to, only to look on from there."""

    def act(self, seen: Observation, done: str | None = None) -> str:
        """The next text action. Raises :class:`NothingLeft` where no goal was told."""
        self._goal = self._goal or goal_in(seen.text)
        self._read(seen, self._own if done is None else done)
        self._own = self._choose()
        return self._own

    # what was told

    def _read(self, seen: Observation, done: str) -> None:
        self._offered = seen.admissible
        if done != self._own:
            self._next = []
        if seen.text.startswith(("In front of you", "You cannot see")):  # no refusal
            self._things = things_of(seen.text)
            self._carried = carried_in(seen.text)
        if done in (_TURN, _TURN_BACK):
            self._turns += 1
        elif done and done not in (_DROP, _TOGGLE):
            self._ahead = self._ahead + 1 if done == _FORWARD and self._turns >= _ROUND else 0
            if not 0 < self._ahead < _STRIDE:
                self._turns, self._ahead = 0, 0
            self._entered, self._first = "through" in done, False
            self._last_useful = -1
        if done == _DROP:
            self._turns = 0
        if "through" in done:
            self._used[done.split("through ")[1].split()[0]] += 1
        doors = [one for one in self._things if one.type == "door"]
        if any(self._useful(one.name) for one in self._things if one.type in ("door", "key")):
            self._last_useful = self._turns
        self._locked |= {one.color for one in doors if one.state == "locked"}
        for one in doors:
            if one.state == "locked":
                (self._blocked.add if self._in_the_way(one) else self._blocked.discard)(one.color)
        if done.startswith(_TOGGLE) and self._carried.endswith("key"):
            self._locked.discard(self._carried.split()[0])
        if self._clauses and self._fulfilled(self._clauses[0], done):
            self._clauses.pop(0)

    def _fulfilled(self, clause: Clause, done: str) -> bool:
        if clause.verb == "go to":
            return done.startswith("go to") and any(one.faced and self._meant(clause.what, one) for one in self._things)
        if clause.verb == "open":
            return done == _TOGGLE and any(
                one.faced and one.state == "open" and clause.what.fits(one) for one in self._things
            )
        if clause.verb == "pick up":
            return done.startswith("pickup") and bool(self._carried) and clause.what.names(self._carried)
        return done == _DROP and not self._carried and not self._burden

    def _meant(self, wanted: Wanted, thing: Thing) -> bool:
        """Whether it is what is wanted, by its place as seen from the start too."""
        if not wanted.fits(thing):
            return False
        if not wanted.place:
            return True
        maze = self._world.maze
        row, column = divmod(maze.at, maze.width)
        first_row, first_column = divmod(self._start[0], maze.width)
        moved = _turned(column - first_column, row - first_row, self._start[1])
        front, right = _rotated(thing.front, thing.right, (maze.heading - self._start[1]) % 4)
        ahead, aside = front + moved[0], right + moved[1]
        along = {"in front of you": ahead, "behind you": -ahead, "on your left": -aside, "on your right": aside}
        return along[wanted.place] > 0

    # what to do

    def _choose(self) -> str:
        if not self._goal:
            raise NothingLeft
        if not self._clauses:  # at the start, or all were taken for done and are not
            self._clauses = self._goal[:]
        clause = self._clauses[0]
        if self._next and self._burden:
            return self._scripted()
        if self._burden and self._carried == self._burden:
            return self._put_down()
        self._burden = ""
        if clause.verb == "go to":
            return self._go_to(clause.what)
        if clause.verb == "open":
            return self._open(clause.what)
        if clause.verb == "pick up" or not (self._carried and clause.what.names(self._carried)):
            return self._pick_up(clause.what)
        return self._put_beside(clause)

    def _seen(self, wanted: Wanted) -> list[Thing]:
        return [one for one in self._things if self._meant(wanted, one)]

    def _can(self, action: str) -> bool:
        return action in self._offered

    def _numbered(self, verb: str, thing: Thing) -> str | None:
        """The action that does it to ``thing``, or else to the first of its name; None where there is no way."""
        for number in (thing.number, 1):
            if self._can(f"{verb} {thing.name} {number}"):
                return f"{verb} {thing.name} {number}"
        return None

    def _in_the_way(self, wanted: Thing | None) -> Thing | None:
        """What stands in the doorway that we are in, or before a door that is shut."""
        for one in self._things:
            if one.type == "door" or one is wanted:
                continue
            if one.faced and self._entered:
                return one
            if wanted and wanted.type == "door" and one.apart(wanted) == 1:
                return one
        return None

    def _take_away(self, blocker: Thing) -> str | None:
        """Pick it up; what stood before a doorway is put down on the other side."""
        if self._carried or not (way := self._numbered("pickup", blocker)):
            return None
        self._burden = blocker.name
        self._next = [_TURN, _TURN, _DROP, _TURN, _TURN, _FORWARD] if self._entered and blocker.faced else []
        return way

    def _scripted(self) -> str:
        action = self._next.pop(0)
        if self._can(action):
            return action
        self._next = []
        return _TURN

    def _go_to(self, wanted: Wanted) -> str:
        seen = self._seen(wanted)
        if any(one.faced for one in seen):
            return _TURN
        return self._reach("go to", seen) or self._explore(wanted.place)

    def _reach(self, verb: str, seen: list[Thing]) -> str | None:
        """Do it to the nearest of them that there is a way to; else get out of the way what lies there."""
        if seen and (blocker := self._in_the_way(seen[0])) and (way := self._take_away(blocker)):
            return way
        for thing in seen:
            if way := self._numbered(verb, thing):
                return way
        if seen and not self._carried:
            near = (one for one in self._things if one.type != "door" and one not in seen)
            for one in sorted(near, key=lambda one: (one.apart(seen[0]), one.steps))[:2]:
                if way := self._take_away(one):
                    return way
        return None

    def _open(self, wanted: Wanted) -> str:
        shut = [one for one in self._seen(wanted) if one.state != "open"]
        able = [one for one in shut if one.state == "closed" or self._carried == f"{one.color} key"]
        if able:
            if able[0].faced and self._can(_TOGGLE):
                return _TOGGLE
            if way := self._reach("go to", able):
                return way
        if shut and not able and not self._in_the_way(shut[0]):
            return self._pick_up(Wanted(shut[0].color, "key", ""))
        return self._explore(wanted.place)

    def _pick_up(self, wanted: Wanted) -> str:
        return self._grasp(wanted) or self._explore(wanted.place)

    def _grasp(self, wanted: Wanted) -> str | None:
        """What brings it into the hand; None where it is not in sight or nothing does."""
        seen = self._seen(wanted)
        return self._swap(seen) if seen and self._carried else self._reach("pickup", seen)

    def _swap(self, seen: list[Thing]) -> str:
        """Go to it first, and turn: what is dropped in a doorway blocks the way."""
        if any(one.faced for one in seen):
            self._burden = self._carried
            return _TURN
        for thing in seen:
            if way := self._numbered("go to", thing):
                return way
        return self._put_down()

    def _put_down(self) -> str:
        places = ((1, 0), (2, 0), (1, 1))
        shut = any(one.type == "door" and (one.front, abs(one.right)) in places for one in self._things)
        if self._own in (_TURN, _TURN_BACK) and self._can(_DROP) and not shut:
            return _DROP
        return _TURN

    def _put_beside(self, clause: Clause) -> str:
        assert clause.beside is not None
        seen = [one for one in self._things if clause.beside.fits(one)]
        near = any((one.front, abs(one.right)) in ((2, 0), (1, 1)) for one in seen)
        if near and self._can(_DROP) and not any(one.faced for one in self._things):
            self._next, self._crowded = [], False
            return _DROP
        self._crowded |= near and self._own == _TURN_BACK
        if self._next:
            if self._next[0] != _FORWARD or self._free():
                return self._next.pop(0)
            self._next = [_FORWARD, _TURN, _TURN]
            return _TURN
        if faced := [one for one in seen if one.faced]:
            # beside it, or two steps off: next to a door there are walls
            self._next = [_FORWARD, _TURN_BACK]
            if self._crowded or faced[0].type == "door":
                self._next = [_TURN, _FORWARD, _TURN, _TURN]
            return _TURN
        for one in seen:
            if one.right == 0 and one.front in (3, 4) and self._free():
                return _FORWARD
            if way := self._numbered("go to", one):
                return way
        return self._explore("")

    def _free(self) -> bool:
        return self._can(_FORWARD) and not any(
            one.faced and one.state in ("", "closed", "locked") for one in self._things
        )

    # what is not in sight

    def _explore(self, place: str) -> str:
        doors = [one for one in self._things if one.type == "door"]
        if (blocker := self._in_the_way(None)) and (way := self._take_away(blocker)):
            return way
        for door in doors:
            if door.state == "locked" and (blocker := self._in_the_way(door)):
                if way := self._take_away(blocker):
                    return way
                if self._carried == f"{door.color} key":
                    self._burden = self._carried
                    return self._put_down()
            opens = door.state == "locked" and self._carried == f"{door.color} key"
            if opens and (way := self._numbered("toggle and go through", door)):
                return way
        if (key := self._key_in_sight()) and (way := self._grasp(Wanted(key.color, "key", ""))):
            return way
        if not (self._first and self._turns < _ROUND) and not self._keyed():
            for door in doors:
                if door.state == "closed" and (way := self._numbered("toggle and go through", door)):
                    return way
        if self._entered and self._free():
            return _FORWARD
        if self._turns < _ROUND:
            return _TURN_BACK if place == "on your left" and not self._turns else _TURN
        return self._look_on(doors)

    def _key_in_sight(self) -> Thing | None:
        """One of a locked door that was seen, unless something that is needed is carried."""
        needed = self._carried and not (self._carried.endswith("key") and not self._keyed())
        for one in self._things:
            if one.type == "key" and one.color in self._locked - self._blocked and not needed:
                return one
        return None

    def _keyed(self) -> bool:
        """Whether the key of a locked door that was seen is carried."""
        return any(self._carried == f"{color} key" for color in self._locked)

    def _look_on(self, doors: list[Thing]) -> str:
        """From elsewhere: where we have been least often."""
        ways = []
        for one in doors:
            if one.state in ("open", "closed") and (
                way := self._numbered("go through", one) or self._numbered("toggle and go through", one)
            ):
                ways.append((self._used[one.color], way))
        if not ways and self._last_useful >= 0 and self._turns < 2 * _ROUND and not self._ahead:
            return _TURN_BACK if self._turns - self._last_useful == 1 else _TURN
        for one in self._things:
            if one.steps > 3 and one.state in ("", "locked") and (way := self._numbered("go to", one)):
                ways.append((self._used[way], way))
        if ways:
            way = min(ways)[1]
            self._used[way] += 1
            return way
        return _FORWARD if self._free() else _TURN

    def _useful(self, name: str) -> bool:
        """Of a door or key seen around: whether to turn to it again."""
        if name.endswith("key"):
            return name.split()[0] in self._locked and not self._carried
        return "locked" not in name


def _turned(right: int, down: int, heading: int) -> tuple[int, int]:
    """Columns and rows of the maze as (ahead, to the right) of one who looks that way (0 right, then clockwise)."""
    return ((right, down), (down, -right), (-right, -down), (-down, right))[heading]


def _rotated(front: int, right: int, turned: int) -> tuple[int, int]:
    """What is so far ahead and to the right after ``turned`` right turns, as it was before them."""
    return ((front, right), (-right, front), (-front, -right), (right, -front))[turned]
