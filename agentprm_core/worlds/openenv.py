"""Any text environment behind an OpenEnv server as a world: ``SPEC = openenv_world("shop", ["http://host:8000"], …)``.

An episode is a session: one WebSocket connection, told ``reset`` and ``step`` (the protocol of ``openenv`` 0.10). The
protocol has no copies of a session. So the worlds cannot be cloned, and what needs clones says so by name; Best-of-N by
turn and rollouts need none. Commands of several episodes are under way at once (:meth:`OpenEnvWorld.begin`).

A server that goes away in the middle of an episode costs no episode: it is played again from its first action on the
next address, and what is answered then must be what was answered before.
"""

from __future__ import annotations

import json
import math
import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from agentprm_core.errors import DataError, ServerError
from agentprm_core.types import Game
from agentprm_core.worlds.base import Observation, UnsupportedGame, WorldSpec
from agentprm_core.worlds.gym import Read, entry, share_of_range
from agentprm_core.worlds.replay import Replayed

_SPLITS = {"train": "train", "seen": "seen", "unseen": "unseen"}
_TEXT, _ADMISSIBLE = entry("text"), entry("admissible")
"""As ``tasks.serve_world`` serves our worlds."""
_TASK = "task"
_SECONDS = 30.0
"""Until a server that says nothing counts as gone."""
_CLOSING = 1.0
"""Seconds to wait for a server that is told of a session's end."""
_TRIES = 3
"""Sessions that an episode may need before it is given up."""


class Gone(Exception):
    """A server that does not answer, or has closed the session."""


class Full(Gone):
    """A server all of whose sessions are taken."""


class Session(NamedTuple):
    """A connection to a server."""

    url: str
    """The server's, as the world names it."""
    socket: Any


@dataclass
class Address:
    """Servers of one environment, and the sessions that are free."""

    urls: tuple[str, ...]
    seconds: float = _SECONDS
    _free: list[Session] = field(default_factory=list)
    _next: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def session(self, *, fresh: bool = False) -> Session:
        """A free one that its server has not closed, unless it must be ``fresh``; else a new one, to the next server
        that answers.

        Raises DataError where none does.
        """
        from websockets.exceptions import WebSocketException
        from websockets.protocol import State
        from websockets.sync.client import connect

        with self._lock:
            while self._free and not fresh:
                free = self._free.pop()
                if free.socket.state is State.OPEN:
                    return free
        why = ""
        for _ in self.urls:
            with self._lock:
                url, self._next = self.urls[self._next % len(self.urls)], self._next + 1
            where = "ws" + url.removeprefix("http").rstrip("/") + "/ws"
            try:
                opened = connect(where, open_timeout=self.seconds, close_timeout=_CLOSING, max_size=None)
                return Session(url, opened)
            except (OSError, WebSocketException) as error:
                why = f"{url}: {error}"
        raise DataError(f"env.world: no OpenEnv server answers ({why}): start it, or give the address of another")

    def free(self, session: Session) -> None:
        """Keep it for another episode."""
        with self._lock:
            self._free.append(session)


def ask(session: Session, kind: str, data: Mapping[str, Any]) -> None:
    """Send a request. Raises :class:`Gone`, and ServerError as :func:`answer` does."""
    from websockets.exceptions import WebSocketException

    try:
        session.socket.send(json.dumps({"type": kind, "data": data}))
    except (OSError, WebSocketException) as error:
        answer(session, 0.0)  # a server that closes a session may have said why
        raise Gone(str(error)) from error


def answer(session: Session, seconds: float) -> dict[str, Any]:
    """What the server says to the request before: ``observation``, ``reward``, ``done``.

    Raises :class:`Gone`, and ServerError for what the environment refuses.
    """
    from websockets.exceptions import WebSocketException

    try:
        text = session.socket.recv(timeout=seconds)
    except (OSError, WebSocketException) as error:  # TimeoutError is an OSError
        raise Gone(str(error) or "no answer") from error
    try:
        said = json.loads(text)
    except ValueError:
        said = None
    data = said.get("data", {}) if isinstance(said, dict) else None
    if not isinstance(said, dict) or not isinstance(data, dict):
        raise ServerError(f"the answer of the OpenEnv server {session.url} is not an object with data: {text!r:.120}")
    if said.get("type") == "error":
        message = f"{data.get('code', 'error')}: {data.get('message', said)}"
        if data.get("code") == "CAPACITY_REACHED":
            raise Full(message.removeprefix("CAPACITY_REACHED: "))
        if data.get("code") == "SESSION_ERROR":
            raise Gone(message)
        fields = f" {data['errors']!r:.160}" if data.get("errors") else ""
        raise ServerError(f"the OpenEnv server {session.url} refuses: {message}{fields}")
    return data


@dataclass(frozen=True)
class Reading:
    """How the environment is read and acted in."""

    address: Address
    command: str
    """The field of the action that the command goes to."""
    text: Read
    admissible: Read | None
    goal: str
    """Put below the first observation; empty where that says the task itself."""
    low: float
    high: float
    """The sums of an episode's rewards that count as 0 and as 1: all others lie between."""


class OpenEnvEngine:
    """One session behind reset and step (:class:`agentprm_core.worlds.replay.Engine`). A payload is ``SPLIT INDEX`` or
    ``seed NUMBER``."""

    def __init__(self, reading: Reading) -> None:
        self._how = reading
        self._session: Any = None
        self._game: Game | None = None
        self._done: list[str] = []
        self._seen: list[Observation] = []
        self._asked: str | None = None
        self._gone = False
        """Whether the last session ended by itself: free ones may be as dead, without knowing it."""

    def reset(self, game: Game) -> Observation:
        self._leave()
        self._game, self._done, self._seen, self._asked = game, [], [], None
        return self._surely(lambda: self._open(game))

    def begin(self, command: str) -> None:
        """Send the command; the next :meth:`step` of the same command reads the answer."""
        if self._session is None or self._seen[-1].done:
            return
        try:
            ask(self._session, "step", {self._how.command: command})
            self._asked = command
        except Gone:
            self._close()  # step plays the episode again elsewhere

    def step(self, command: str) -> Observation:
        def go() -> Observation:
            if self._asked != command:
                ask(self._session, "step", {self._how.command: command})
            self._asked = None
            return self._observation(answer(self._session, self._how.address.seconds), self._total)

        seen = self._surely(go)
        self._done.append(command)
        self._total = self._sum
        self._keep(seen)
        return seen

    def _open(self, game: Game) -> Observation:
        """A session in which the episode so far has been played."""
        self._session, self._asked = self._how.address.session(fresh=self._gone), None
        kind, _, number = game.payload.rpartition(" ")
        if not kind or not number.isdigit():
            raise UnsupportedGame(f"{game.id}: the payload {game.payload!r} is not SPLIT INDEX, nor seed NUMBER")
        where = {"seed": int(number)} if kind == "seed" else {"split": kind, "index": int(number)}
        ask(self._session, "reset", where)
        self._sum = 0.0
        first = self._observation(answer(self._session, self._how.address.seconds), 0.0)
        if self._how.goal:
            first = first._replace(text=f"{first.text}\n\nYour task is to: {self._how.goal}")
        self._total = self._sum
        if not self._seen:
            self._keep(first)
            return first
        self._same(0, first)
        for number, command in enumerate(self._done, start=1):
            ask(self._session, "step", {self._how.command: command})
            again = self._observation(answer(self._session, self._how.address.seconds), self._total)
            self._total = self._sum
            self._same(number, again)
        return first

    def _surely(self, go: Any) -> Observation:
        """``go``, again in another session where the server is gone. Raises DataError after the last try."""
        assert self._game is not None, "reset comes first"
        ended: Gone | None = None
        for _ in range(_TRIES):
            try:
                if self._session is None and self._seen:
                    self._open(self._game)
                seen, self._gone = go(), False
                return seen
            except Gone as error:
                self._close()
                self._gone, ended = True, error
        urls = self._how.address.urls
        servers = " and ".join(urls)
        if isinstance(ended, Full):
            raise DataError(
                f"{self._game.id}: no session is free at {servers} ({ended}): play no more episodes at once than "
                "there are sessions (--slots, compute.slots), or have more served (serve_world --sessions)"
            )
        raise DataError(
            f"{self._game.id}: {_TRIES} sessions ended before the answer came ({ended}): see what {servers} "
            f"{'says' if len(urls) == 1 else 'say'}"
        )

    def _same(self, step: int, again: Observation) -> None:
        if again != self._seen[step]:
            assert self._game is not None
            raise DataError(
                f"{self._game.id}: played again after its server was gone, step {step} says {again.text!r}, before it "
                f"said {self._seen[step].text!r}: the environment must be deterministic"
            )

    def _observation(self, said: Mapping[str, Any], before: float) -> Observation:
        how, found = self._how, said.get("observation", {})
        server = f"the OpenEnv server {self._session.url}"
        try:
            self._sum = before + float(said.get("reward") or 0.0)
            listed = () if how.admissible is None else tuple(how.admissible(found, found.get("metadata", {})))
            text = str(how.text(found, found.get("metadata", {})))
        except (TypeError, ValueError, AttributeError, LookupError) as error:
            raise ServerError(f"the answer of {server} cannot be read ({error!r}): {said!r:.200}") from error
        if not math.isfinite(self._sum):
            raise ServerError(f"{server} says that the reward is {said.get('reward')}: it must be a number")
        try:
            earned = share_of_range(self._sum, how.low, how.high)
        except ValueError as error:
            raise ServerError(f"{server} {error} in openenv_world, the least and the most that it pays") from error
        return Observation(text, tuple(sorted({str(command) for command in listed})), earned, bool(said.get("done")))

    def _keep(self, seen: Observation) -> None:
        self._seen.append(seen)
        if seen.done:
            self._leave()

    def _leave(self) -> None:
        if self._asked is not None:  # its answer would be read as another episode's
            return self._close()
        if self._session is not None:
            self._how.address.free(self._session)
        self._session = None

    def _close(self) -> None:
        """Give the session up: a server serves only so many."""
        session, self._session, self._asked = self._session, None, None
        if session is not None:
            session.socket.close()

    def __del__(self) -> None:
        self._leave()


class OpenEnvWorld(Replayed):
    """The world's contract over sessions; ``begin`` sends a command before ``step`` reads what it led to."""

    def begin(self, command: str) -> None:
        self._engine.begin(command)  # pyright: ignore[reportAttributeAccessIssue]: an OpenEnvEngine

    def clone(self) -> Self:
        raise DataError("an OpenEnv session cannot be cloned: Best-of-N by turn needs no clones (best_of_16)")


def openenv_world(
    name: str,
    urls: Sequence[str],
    *,
    goal: str = "",
    splits: Mapping[str, str] | None = None,
    command: str = "command",
    text: Read = _TEXT,
    admissible: Read | None = _ADMISSIBLE,
    rewards: tuple[float, float] = (0.0, 1.0),
    success: float = 1.0,
    max_turns: int = 30,
    instruction: str = "You act in an environment until its task is done.",
    seconds: float = _SECONDS,
) -> WorldSpec:
    """The spec of an environment that OpenEnv servers at ``urls`` serve, all the same one.

    ``splits``: ours (``train``, ``seen``, ``unseen``) → what the server calls them; games are its tasks. An empty
    mapping: the server has no tasks, and games are seeds. ``command``, ``text``, ``admissible``: the field of the
    action, and how the observation is read (None: any text is a command). ``goal`` is put below the first observation
    where that does not say the task. ``rewards``: the least and the most that an episode's rewards add up to, at any of
    its steps; they become 0 and 1. A sum outside ends the play.

    Raises ValueError for no address, one that is not ``http://`` or ``https://``, or an empty range of rewards.
    """
    low, high = rewards
    if not low < high:
        raise ValueError(f"openenv_world: rewards from {low} to {high} is no range")
    odd = [url for url in urls if urlsplit(url).scheme not in ("http", "https")]
    if odd or not urls:
        raise ValueError(f"openenv_world: {odd[0] if odd else 'no address'} is not http://HOST:PORT")
    address = Address(tuple(urls), seconds)
    reading = Reading(address, command, text, admissible, goal, low, high)
    theirs = _SPLITS if splits is None else dict(splits)

    def generate(count: int, seed: int, split: str) -> list[Game]:
        if split not in (theirs or _SPLITS):
            raise DataError(f"games: {split!r} is not a split of {name}: {', '.join(theirs or _SPLITS)}")
        payloads = _tasks(address, theirs[split], count, seed) if theirs else _seeds(count, seed, split)
        return sorted(
            (Game(f"{split}/{p.replace(' ', '-')}", name, split, _TASK, goal or "do the task.", p) for p in payloads),
            key=lambda game: game.id,
        )

    return WorldSpec(
        name=name,
        make=lambda: OpenEnvWorld(lambda: OpenEnvEngine(reading)),
        generate=generate,
        kinds=(_TASK,),
        instruction=instruction,
        success=success,
        max_turns=max_turns,
        clones=False,
        remote=True,
    )


def _tasks(address: Address, split: str, count: int, seed: int) -> list[str]:
    """``count`` of the servers' tasks of their ``split``, drawn by the seed. The first server that answers is asked."""
    import httpx

    why = []
    for url in address.urls:
        try:
            found = _number(url, split, address.seconds)
        except (httpx.NetworkError, httpx.TimeoutException) as error:
            why.append(f"{url}: {error}")
            continue
        if found < count:
            raise DataError(f"games: {url} has {found} tasks of {split!r}, {count} are asked for")
        return [f"{split} {index}" for index in random.Random(f"{split}/{seed}").sample(range(found), count)]
    raise DataError(f"games: no OpenEnv server answers ({'; '.join(why)}): start one, or give the address of another")


def _number(url: str, split: str, seconds: float) -> int:
    """How many tasks of its ``split`` a server has. Raises DataError where it does not say, and httpx's errors where it
    does not answer."""
    import httpx

    try:
        with httpx.Client(base_url=url.rstrip("/"), timeout=seconds) as http:
            (served, *_) = http.get("/list_environments").raise_for_status().json()
            return http.post(f"/{served}/num_tasks", json={"split": split}).raise_for_status().json()["num_tasks"]
    except (httpx.NetworkError, httpx.TimeoutException):
        raise
    except (httpx.HTTPError, KeyError, ValueError) as error:
        raise DataError(
            f"games: {url} does not say how many tasks of {split!r} it has ({error}); of a server without tasks say "
            "splits={}, then games are seeds"
        ) from error


def _seeds(count: int, seed: int, split: str) -> list[str]:
    """Seeds; the last digit says the split."""
    last = {"train": range(2, 10), "seen": (0,), "unseen": (1,)}[split]
    rng, drawn = random.Random(f"{split}/{seed}"), dict[str, None]()
    while len(drawn) < count:
        drawn[f"seed {10 * rng.randrange(10**8) + rng.choice(last)}"] = None
    return list(drawn)
