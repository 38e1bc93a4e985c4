"""An expert that plays ALFWorld by the text alone, for demonstrations and for checking that a household is solvable.

It follows the strategy of alfworld's hand-coded expert (find the object, take it, clean, heat or cool it, bring it
home), and departs from it in four ways:
1. It reads nothing but the observations, so whoever sees the same text can learn to do the same. alfworld's reads
   the engine's facts and admissible commands.
2. It looks into the likely receptacles first (:mod:`agentprm_core.worlds.alfworld.priors`), counting that a closed one
   costs two actions, and numbers of one kind in ascending order. It never looks twice into the same.
3. It leaves receptacles open, and remembers what it saw on the way.
4. It is deterministic. With a seed, the order of the kinds of receptacles is drawn in proportion to their promise, once
   a search, so that demonstrations differ where the world leaves a choice, and only there.
"""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass

from agentprm_core.errors import DataError
from agentprm_core.types import Episode, Game, Turn
from agentprm_core.worlds.alfworld.priors import OPENABLE, WHERE
from agentprm_core.worlds.base import NothingLeft, Observation, World

_TASKS = (
    (r"look at (?P<obj>\w+) under the (?P<lamp>\w+)", ""),
    (r"examine the (?P<obj>\w+) with the (?P<lamp>\w+)", ""),
    (r"put a clean (?P<obj>\w+) in (?P<home>\w+)", "clean"),
    (r"clean some (?P<obj>\w+) and put it in (?P<home>\w+)", "clean"),
    (r"put a hot (?P<obj>\w+) in (?P<home>\w+)", "heat"),
    (r"heat some (?P<obj>\w+) and put it in (?P<home>\w+)", "heat"),
    (r"put a cool (?P<obj>\w+) in (?P<home>\w+)", "cool"),
    (r"cool some (?P<obj>\w+) and put it in (?P<home>\w+)", "cool"),
    (r"put (?P<two>two) (?P<obj>\w+) in (?P<home>\w+)", ""),
    (r"find (?P<two>two) (?P<obj>\w+) and put them in (?P<home>\w+)", ""),
    (r"put a (?P<obj>\w+) in (?P<home>\w+)", ""),
    (r"put some (?P<obj>\w+) on (?P<home>\w+)", ""),
)
_TASK_PATTERNS = tuple((re.compile(rf"Your task is to: {pattern}\.?$"), verb) for pattern, verb in _TASKS)
_SEEN = re.compile(r"\ba (\w+ \d+)")
_CLOSED = re.compile(r"The (\w+ \d+) is closed\.")
_CONTENTS = re.compile(r"(?:On the (\w+ \d+)|The (\w+ \d+) is open\. In it), you see (.*)")
_WHERE = {thing.lower(): {kind.lower(): rate for kind, rate in row.items()} for thing, row in WHERE.items()}
_OPENABLE = frozenset(kind.lower() for kind in OPENABLE)
_APPLIANCES = {"clean": ("sinkbasin", "bathtubbasin"), "heat": ("microwave",), "cool": ("fridge",)}
_UNDOES = {"heat": "cool", "cool": "heat"}
_RARE = 1e-4
"""Chance given to places where published homes hardly ever have the object: they come last."""


@dataclass(frozen=True, slots=True)
class Task:
    """What the task sentence asks for; all kinds are lower-case words of the text (``mug``, ``cabinet``)."""

    target: str
    home: str
    """Kind of receptacle to bring it to; empty for a lamp task."""
    lamp: str
    """Kind of lamp to look at it under; empty for all other tasks."""
    verb: str
    """``clean``, ``heat`` or ``cool``; empty where the object goes as it is."""
    two: bool


def read_task(text: str) -> Task:
    """The task of a first observation. Raises DataError for a sentence that is none of the twelve templates."""
    sentence = text[text.rfind("\n") + 1 :]
    for pattern, verb in _TASK_PATTERNS:
        match = pattern.match(sentence)
        if match:
            part = match.groupdict()
            return Task(part["obj"], part.get("home") or "", part.get("lamp") or "", verb, "two" in part)
    raise DataError(f"the expert knows ALFWorld's twelve templated tasks, and this is none of them: {sentence!r}")


class Expert:
    """Plays one episode: give :meth:`act` each observation's text in turn, do the command it returns.

    ``seed`` None: the likeliest place first. A number: the order of places is drawn, different for each seed, with
    chances in proportion to promise ** ``knowledge``: at 1 it knows where things usually lie, at 0 it does not and all
    orders are alike. The published hand-coded expert is as strong as this one at 0.
    """

    def __init__(self, seed: int | None = None, knowledge: float = 1.0) -> None:
        self._knowledge = knowledge
        self._rng = None if seed is None else random.Random(seed)
        self._begun = False

    def act(self, seen: Observation, done: str | None = None) -> str:
        """The next command after ``seen``, of which the text alone is read.

        ``done`` is what was really done before it, where others acted instead.

        Raises DataError for an unknown task, :class:`NothingLeft` after a search in vain.
        """
        text = seen.text
        if self._begun:
            self._notice(self._command if done is None else done, text)
        else:
            self._begin(text)
        self._command = self._decide()
        return self._command

    def _begin(self, text: str) -> None:
        self._task = read_task(text)
        self._begun = True
        self._receptacles = sorted(_SEEN.findall(text), key=_kind_and_number)
        self._here = ""
        self._carried = ""
        self._carried_from = ""
        self._treated: set[str] = set()
        self._home = ""
        self._closed: set[str] = set()
        self._looked: set[str] = set()
        self._lies: dict[str, str] = {}  # object → receptacle
        self._queues: dict[str, list[str]] = {}  # kind searched for → receptacles in the order of the search

    def _notice(self, command: str, text: str) -> None:
        """Update what is known by the last command and what the world said to it."""
        verb, *words = command.split()
        if text == "Nothing happens.":
            self._notice_failure(verb, words)
        elif verb == "go":
            self._here = " ".join(words[1:])
        elif verb == "take":
            self._carried, self._carried_from = " ".join(words[:2]), " ".join(words[3:])
            self._lies.pop(self._carried, None)
        elif verb == "move":
            self._lies[self._carried] = " ".join(words[3:])
            self._carried = ""
        elif verb == self._task.verb:
            self._treated.add(self._carried)
        elif verb == _UNDOES.get(self._task.verb):
            self._treated.discard(self._carried)
        elif verb == "close":
            self._closed.add(" ".join(words))
        self._notice_contents(text)

    def _notice_failure(self, verb: str, words: list[str]) -> None:
        """Going fails where one already is: receptacles share spots. Opening fails with what does not open."""
        if verb == "go":
            self._here = " ".join(words[1:])
            if _kind(self._here) in _OPENABLE and self._here not in self._looked:
                self._closed.add(self._here)
        elif verb == "open":
            self._closed.discard(self._here)

    def _notice_contents(self, text: str) -> None:
        closed, contents = _CLOSED.search(text), _CONTENTS.search(text)
        if closed:
            self._closed.add(closed[1])
        elif contents:
            place = contents[1] or contents[2]
            self._closed.discard(place)
            self._looked.add(place)
            self._lies.update(dict.fromkeys(_SEEN.findall(contents[3]), place))

    def _decide(self) -> str:
        task, carried = self._task, self._carried
        if not carried:
            return self._fetch(task.target)
        if _kind(carried) != task.target:
            return self._at(self._carried_from) or self._put(self._carried_from)
        if task.verb and carried not in self._treated:
            appliance = self._first_of(_APPLIANCES[task.verb])
            return self._at(appliance) or f"{task.verb} {carried} with {appliance}"
        if task.lamp:
            lamp = self._known(task.lamp)
            return self._search(task.lamp) if lamp is None else self._at(self._lies[lamp]) or f"use {lamp}"
        self._home = self._first_of((task.home,))
        return self._at(self._home) or self._put(self._home)

    def _fetch(self, kind: str) -> str:
        thing = self._known(kind)
        if thing is None:
            return self._search(kind)
        place = self._lies[thing]
        return self._at(place) or self._open(place) or f"take {thing} from {place}"

    def _search(self, kind: str) -> str:
        """The next step of looking for ``kind``: into what stands here, else to the most promising place left."""
        if self._here and self._here not in self._looked:
            return self._open(self._here) or f"examine {self._here}"
        queue = self._queues.setdefault(kind, self._order(kind))
        while queue and queue[-1] in self._looked:
            queue.pop()
        if not queue:
            raise NothingLeft(f"looked into all {len(self._receptacles)} receptacles and found no {kind}")
        return f"go to {queue[-1]}"

    def _order(self, kind: str) -> list[str]:
        """All receptacles, the most promising last: by chance of holding ``kind`` per action, then number."""
        rates = _WHERE.get(kind, {})
        promise = {}
        for place in sorted({_kind(name) for name in self._receptacles}):
            cost = 2 if place in _OPENABLE else 1
            promise[place] = math.log(max(rates.get(place, 0.0), _RARE) / cost)
            if self._rng is not None:
                promise[place] *= self._knowledge
                promise[place] -= math.log(self._rng.expovariate(1.0))  # Gumbel noise: draws without replacement
        return sorted(self._receptacles, key=lambda name: (-promise[_kind(name)], _kind_and_number(name)))[::-1]

    def _known(self, kind: str) -> str | None:
        """The object of that kind to use next: one that lies here, else the lowest number; None where none is known."""
        home = self._home if self._task.two else ""
        things = [thing for thing, place in self._lies.items() if _kind(thing) == kind and place != home]
        here = [thing for thing in things if self._lies[thing] == self._here]
        return min(here or things, key=_kind_and_number, default=None)

    def _first_of(self, kinds: tuple[str, ...]) -> str:
        """The receptacle of the first of these kinds that the room has: the lowest number, so that it is foretold."""
        for kind in kinds:
            for name in self._receptacles:
                if _kind(name) == kind:
                    return name
        raise NothingLeft(f"the room has no {kinds[0]}")

    def _at(self, place: str) -> str:
        return "" if self._here == place else f"go to {place}"

    def _open(self, place: str) -> str:
        return f"open {place}" if place in self._closed else ""

    def _put(self, place: str) -> str:
        return self._open(place) or f"move {self._carried} to {place}"


def solves(world: World, game: Game, max_turns: int) -> bool:
    """Whether the expert, likeliest places first, wins ``game`` within ``max_turns`` actions."""
    expert = Expert()
    seen = world.reset(game)
    for _ in range(max_turns):
        if seen.done:
            return True
        try:
            seen = world.step(expert.act(seen))
        except NothingLeft:
            return False
    return seen.done


def play_expert(
    world: World, game: Game, max_turns: int, seed: int | None = None, index: int = 0, knowledge: float = 1.0
) -> Episode:
    """One episode of the expert: at most ``max_turns`` actions, fewer when it wins or has nothing left to try.

    The episode's seed is -1 where ``seed`` is None.
    """
    expert = Expert(seed, knowledge)
    seen = world.reset(game)
    turns = []
    while not seen.done and len(turns) < max_turns:
        try:
            action = expert.act(seen)
        except NothingLeft:
            break
        turns.append(Turn(seen.text, action, seen.admissible, action in seen.admissible, world.state_key()))
        seen = world.step(action)
    return Episode(game.id, index, -1 if seed is None else seed, tuple(turns), seen.done)


def _kind(name: str) -> str:
    return name[: name.index(" ")]


def _kind_and_number(name: str) -> tuple[str, int]:
    kind, number = name.split()
    return kind, int(number)
