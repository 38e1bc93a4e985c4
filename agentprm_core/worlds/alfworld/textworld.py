"""The published ALFWorld engine (textworld's PddlEnv with alfworld's names) behind the world's contract.

It is the reference that the fast engine is held against: a step costs tens of milliseconds and a reset half a
second, a clone replays the episode. Loading rewrites ``sys.argv`` and the engine's planner library may write into
the current folder, so both are put back around every load and reset.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Self

import textworld
from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
from textworld.envs import PddlEnv
from textworld.logic import Proposition

from agentprm_core.types import Game
from agentprm_core.worlds.alfworld.games import game_data, package_logic
from agentprm_core.worlds.base import Observation, UnsupportedGame

BANNER = "-= Welcome to TextWorld, ALFRED! =-\n\n"

_UNSEEN = ("checked", "ison", "new-axiom@")
"""Predicates that no precondition and no text reads: bookkeeping of what was looked at, and derived facts."""


class TextWorld:
    """One episode in one game, played by the published engine."""

    def __init__(self) -> None:
        self._game: Game | None = None
        self._commands: list[str] = []

    def reset(self, game: Game) -> Observation:
        """Start ``game`` anew. Raises :class:`UnsupportedGame` with the game's id when its PDDL cannot be read."""
        with _quarantine():
            if game != self._game:
                self._game = None
                self._env = _load(game)
            self._state = self._env.reset()
        self._game = game
        self._commands = []
        return self._observation()

    def step(self, command: str) -> Observation:
        """Do ``command``; an inadmissible one says ``Nothing happens.`` and changes nothing."""
        self._state, _, _ = self._env.step(command)
        self._commands.append(command)
        return self._observation()

    def clone(self) -> Self:
        """A second engine in the same state, by replaying this episode's commands."""
        twin = type(self)()
        twin.reset(self._playing)
        for command in self._commands:
            twin.step(command)
        return twin

    def state_key(self) -> str:
        """Digest of the game and of the facts that anything can ever depend on."""
        facts = sorted(str(fact) for fact in self._state["_facts"] if not _is_bookkeeping(fact))
        return hashlib.blake2b("\n".join([self._playing.id, *facts]).encode(), digest_size=16).hexdigest()

    def facts(self) -> list[str]:
        """The facts as alfworld's hand-coded expert spells them, sorted: ``inreceptacle mug 1 cabinet 3``."""
        named = [self._env._get_human_readable_fact(fact) for fact in self._state["_facts"] if not fact.is_negation]
        return sorted(" ".join([fact.name, *(name.strip() for name in fact.names)]) for fact in named)

    @property
    def _playing(self) -> Game:
        assert self._game is not None, "reset before anything else"
        return self._game

    def _observation(self) -> Observation:
        return Observation(
            text=self._state["feedback"].removeprefix(BANNER).strip(),
            admissible=tuple(self._state["admissible_commands"]),
            reward=float(self._state["won"]),
            done=bool(self._state["won"]),
        )


def _is_bookkeeping(fact: Proposition) -> bool:
    return fact.is_negation or fact.name.startswith(_UNSEEN)


def _load(game: Game) -> AlfredDemangler:
    from fast_downward.translate.pddl_parser.lisp_parser import ParseError  # parses sys.argv: only in quarantine

    env = AlfredDemangler(PddlEnv(textworld.EnvInfos(admissible_commands=True, won=True)))
    try:
        env.load(game_data(game, *package_logic()))
    except (ParseError, SystemExit, LookupError, ValueError, AssertionError) as error:
        raise UnsupportedGame(f"{game.id}: the published engine cannot load its PDDL problem ({error})") from error
    return env


@contextlib.contextmanager
def _quarantine() -> Iterator[None]:
    """A scratch current folder and the arguments that the PDDL translator wants; both as they were afterwards."""
    argv, folder = sys.argv, os.getcwd()
    with tempfile.TemporaryDirectory() as scratch:
        sys.argv = ["translate.py", "domain", "task"]
        os.chdir(scratch)
        try:
            yield
        finally:
            os.chdir(folder)
            sys.argv = argv
