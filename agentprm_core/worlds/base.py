"""The contract between worlds and everything else: reset, step, clone, hash; and the spec that a world is known by.

A world is a deterministic text game. It keeps one current state; ``reset`` and ``step`` change it and return an
:class:`Observation`. Turn limits belong to the caller (:mod:`agentprm_core.rollout`), never to the world.

A world is one folder (or one module) with one :class:`WorldSpec`. ``agentprm_core.worlds.world_spec`` finds it by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from numbers import Real
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from agentprm_core.errors import DataError
from agentprm_core.types import Game, Prompt

ALIKE = r"[a-z]+ \d+"
"""A word and a number: what :attr:`WorldSpec.alike` is where a world does not say."""
GOAL_WORDS = 2
"""Words that a game's goal has at least: ``Craft clock.``"""
OPEN = "…"
"""Stands for free text in an admissible command that is a template: ``search[…]``."""


class UnsupportedGame(DataError):
    """A game that cannot be played here: truncated, in another dialect, outside the domain. Says which and why."""


class NoGenerator(DataError):
    """A world that generates no games: those that are published are all that it has."""


class NoSplit(DataError):
    """A split that published data does not have. Its line ends with those that it has."""

    def __init__(self, message: str, there: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.there = there


class Observation(NamedTuple):  # made at every turn, in half of a frozen dataclass's time
    """What the world says after ``reset`` or ``step``."""

    text: str
    """The observation as the policy reads it. After ``reset``: the scene, a blank line, the task sentence."""
    admissible: tuple[str, ...]
    """The commands that mean something in this state, sorted, each once. One with :data:`OPEN` in it is a template.
    Empty where any text is an action."""
    reward: float = 0.0
    """What the episode has earned so far, in [0, 1]: the total, not what the step earned."""
    done: bool = False
    """Whether the episode is over, with success or without. Stepping further is the caller's mistake."""


def is_reward(value: object) -> bool:
    """Whether it is a number in [0, 1]."""
    number = isinstance(value, (float, Real))  # numpy's are Real, too; a float is known in a tenth of the time
    return number and not value < 0 and bool(value <= 1)


def observation_fault(seen: object) -> str:
    """Why a play cannot go on with what a world returned; empty where it can."""
    if not isinstance(seen, Observation):
        return f"returned a {type(seen).__name__}, not an Observation"
    if not isinstance(seen.text, str):
        return f"the text {seen.text!r:.80} is not a string"
    try:
        if isinstance(seen.admissible, tuple):
            "".join(seen.admissible)  # asked at every step: to look at each takes six times as long
            return ""
    except TypeError:
        pass
    return f"admissible must be a tuple of strings: {seen.admissible!r:.80}"


def admits(admissible: tuple[str, ...], command: str) -> bool:
    """Whether ``command`` means something where these commands are admissible: one of them, a template filled in, or
    any text that is not blank where none are listed."""
    if command in admissible:
        return True
    if not admissible:
        return bool(command.strip())
    return any(OPEN in listed and _template(listed).fullmatch(command) for listed in admissible)


def listed_commands(admissible: tuple[str, ...]) -> list[str]:
    """Those that can be done as they stand: no templates."""
    return [command for command in admissible if OPEN not in command]


@lru_cache(maxsize=4096)
def _template(listed: str) -> re.Pattern[str]:
    closed = re.split(f"{OPEN}+", listed)  # two places with nothing between them are one
    return re.compile(".+".join(map(re.escape, closed)), re.DOTALL)


class World(Protocol):
    """One episode in one game. Cheap to make, to clone and to hash where the engine allows it."""

    def reset(self, game: Game) -> Observation:
        """Start ``game`` anew. Raises :class:`UnsupportedGame` naming the game and the reason."""
        ...

    def step(self, command: str) -> Observation:
        """Do ``command``; one that is not admissible changes nothing and the text says so (``Nothing happens.``)."""
        ...

    def clone(self) -> Self:
        """An independent copy in the same state (by replay where the engine cannot copy)."""
        ...

    def state_key(self) -> str:
        """Digest of the state: equal exactly when two states of one game are, stable across processes.

        The digest covers the game too, so keys of two games never meet.
        """
        ...


class NothingLeft(RuntimeError):
    """An expert that has tried everything it knows."""


class Expert(Protocol):
    """Plays one episode well, for demonstrations."""

    def act(self, seen: Observation, done: str | None = None) -> str:
        """The next command after ``seen``. ``done`` is what was really done before it, where that was not the expert's.

        Raises :class:`NothingLeft` where the expert gives up.
        """
        ...


def advice_of(expert: Expert, seen: Observation, done: str | None) -> str:
    """What the expert would do. Raises what its ``act`` does, and TypeError where that returns no command."""
    advice = expert.act(seen, done)
    if not isinstance(advice, str):
        raise TypeError(f"act returned {advice!r:.80}, not a command")
    return advice


@dataclass(frozen=True, slots=True)
class Between:
    """A gate's expectation of an attribute of games: a number from ``low`` to ``high``, both included."""

    low: float
    high: float
    why: str


@dataclass(frozen=True, slots=True)
class OneOf:
    """A gate's expectation of an attribute of games: one of ``values``."""

    values: tuple[str | int, ...]
    why: str


Demonstrator = Callable[[World, Game, int, float], Expert]
"""(the world that is played, game, seed, knowledge in [0, 1]) → who demonstrates."""


def _each(_: Game) -> bool:
    return True


@dataclass(frozen=True)
class WorldSpec:
    """Everything that the rest of the system knows of a world."""

    name: str
    """As ``env.world`` and ``Game.world`` have it."""
    make: Callable[[], World]
    """A fresh world, to be reset."""
    generate: Callable[[int, int, str], list[Game]]
    """(count, seed, split) → that many games without a download, sorted by id; splits share no game. Raises
    :class:`NoGenerator` in a world that has only published ones."""
    kinds: tuple[str, ...]
    """What ``Game.kind`` may be: tables break success down by it."""
    instruction: str
    """One sentence that tells a chat model where it is and what to do."""
    lists_commands: bool = True
    """Whether a chat model is also told the admissible commands, at every turn. Not where the instruction and the
    observations say what can be done: long lists are most of what such a model would read."""
    expert: Demonstrator | None = None
    """None: nobody can demonstrate, which a campaign with a published model does without (``demos.games: 0``)."""
    other_experts: Mapping[str, Demonstrator] = field(default_factory=dict)
    """Experts that demonstrate in another way, by the name that ``demos.games`` has for them."""
    load: Callable[[Path, str, int | None], list[Game]] | None = None
    """(root, published split, limit) → published games, sorted by id, with a limit a sample of them
    (:func:`agentprm_core.draws.sample_of`); None where none are published."""
    published_splits: Mapping[str, str] = field(default_factory=dict)
    """Our split (``train``, ``seen``, ``unseen``) → what the published data calls it."""
    place: str | None = None
    """Of ``attributes``, what tells the place of a game: a floor plan, a level, a shop. None: games have no places."""
    new_places: frozenset[int | str] = frozenset()
    """Places that the generator keeps for ``unseen``."""
    generate_mixed: Callable[[int, int, Collection[int | str]], list[Game]] | None = None
    """(count, seed, places) → that many games of train, sorted by id, each in a place that is put together from several
    of these. Its attribute ``place`` is one of them. None: the world's places cannot be mixed."""
    mixed: float = 0.0
    """Share of the training games, where the generator makes them all, that are of :attr:`generate_mixed`."""
    shown: Callable[[Game], bool] = _each
    """Which training games the expert may be asked to demonstrate."""
    phrases: tuple[str, ...] = ()
    """Lower-case phrases that the world says again and again: each one token of a from-scratch tokenizer."""
    entity: str = r"[a-z]+ \d+"
    """A regular expression: beside the phrases, what matches it is one token of a from-scratch tokenizer, and so is any
    other run of characters without a blank. Where it ends with a number, all smaller numbers get a token too."""
    rewritten: Mapping[str, str] = field(default_factory=dict)
    """A regular expression of lower-case text → what a from-scratch tokenizer reads in its place. That tokenizer leaves
    out articles, ``and`` and commas; where one of them means something, it is put into a word here."""
    alike: str = ALIKE
    """A regular expression of tokens of several words whose embeddings start as those of the words together, in a model
    from scratch: ``drawer 3`` starts near ``drawer 1`` and near the drawer of the task."""
    attributes: Mapping[str, Between | OneOf] = field(default_factory=dict)
    """What the gate of the stage ``games`` expects of ``Game.attributes``."""
    success: float = 1.0
    """An episode is won where its reward is at least this."""
    max_turns: int = 30
    """Actions an episode, as the papers that use the world have it."""
    expert_turns: int = 50
    """Actions that an expert may take to demonstrate."""
    clones: bool = True
    """Whether ``World.clone`` works. Searches and labels that step copies of a world refuse one that says no. A world
    that is deterministic can be copied by replay: :mod:`agentprm_core.worlds.replay`."""
    refusals_tell: bool = False
    """Whether the answer to a command that changes nothing tells what to do next. A beam's paths may then stay in a
    state that they have been in."""
    texts_of: str = ""
    """The name of the world whose games and texts these are, where it is another one: a policy of either plays both."""
    measured_in: str = ""
    """The name of the world that a campaign's policies are measured in, where it is another one with the same texts:
    here they have an aid that an agent does without. ``agentprm evaluate --world`` measures them with it."""
    remote: bool = False
    """Whether the worlds answer over a connection: they have ``begin(command)``, which sends a command whose answer
    the next ``step`` of that command reads, so that the answers to several are waited for at once."""
    members: Mapping[str, WorldSpec] = field(default_factory=dict)
    """Of a mixture (:mod:`agentprm_core.worlds.mixture`): ``Game.world`` → the spec of the world it is of."""

    @property
    def texts(self) -> str:
        """The name of the world whose games and texts these are: another one's, or its own."""
        return self.texts_of or self.name

    @property
    def prompt(self) -> Prompt:
        """What a chat model is told."""
        return Prompt(self.instruction, self.lists_commands)

    def demonstrator(self, name: str | None = None) -> Demonstrator:
        """The expert of that name; None: the world's first one. Raises DataError where there is none."""
        if self.expert is None:
            raise DataError(
                f"env.world: {self.name} has no expert: nobody can demonstrate; give the spec one, or with a language "
                "model (model.source) set demos.games to 0"
            )
        if name is None:
            return self.expert
        if name not in self.other_experts:
            allowed = ", ".join(self.other_experts) or "a number of games alone"
            raise DataError(f"demos.games: {name} is no expert of the world {self.name}; allowed: {allowed}")
        return self.other_experts[name]

    def of(self, game: Game) -> WorldSpec:
        """The spec that ``game`` is played by: a mixture's is its member's."""
        return self.members.get(game.world, self)

    def turns(self, game: Game, most: int) -> int:
        """Actions that an episode of ``game`` may have: ``most``, and in a mixture no more than its world allows."""
        return min(most, self.of(game).max_turns) if self.members else most

    def label(self, game: Game) -> str:
        """What tables break success down by: the game's kind, in a mixture its world."""
        return game.world if self.members else game.kind
