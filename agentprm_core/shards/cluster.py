"""Portions on the machines of a Ray cluster, or of one that is started here.

An actor has a GPU, or as many cores as torch has threads. What portions share, the weights among it, is put into Ray's
object store once, and each actor makes a player of it once. Whichever actor is free gets the next portion. Results come
back through the object store: no disk is shared. An actor that dies, or whose machine is lost, loses the portion that
it was playing; another one plays that. Machines that join are used.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import platform
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch

import agentprm_core
from agentprm_core.errors import DataError
from agentprm_core.progress import progress
from agentprm_core.shards.base import Done, Refused, Work, accepted, done_elsewhere, on_cpu, on_device

CONNECT_S = 5.0
"""Of a try whether anybody listens at an address."""
TRIES = 4
"""Actors that may die over one portion, or one after the other before they play."""
LOOK_S = 1.0
"""Between two looks for actors that died, and for machines that came."""
NOBODY_S = 60.0
"""Without a machine that has room for an actor, until that is an error."""


_QUIET = {"log_to_driver": False, "logging_level": logging.ERROR}


@dataclass
class _Crew:
    """The actors, by what they do."""

    starting: dict[Any, Any] = field(default_factory=dict)
    """Answer to the question who it is → actor."""
    free: list[Any] = field(default_factory=list)
    busy: dict[Any, tuple[Any, int]] = field(default_factory=dict)
    """Answer to a portion → actor, the portion's number."""

    @property
    def count(self) -> int:
        return len(self.starting) + len(self.free) + len(self.busy)


class Cluster:
    """Actors of Ray. It is joined, or started, when the first portion is to be played."""

    def __init__(self, address: str | None, *, threads: int, gpu: bool = False, actors: int | None = None) -> None:
        """``address``: ``auto`` or ``HOST:PORT``; None starts a Ray of our own, on this machine's loopback.

        ``actors``: at most so many; None: as many as there is room for.
        """
        self._address, self._threads, self._gpu, self._actors = address, threads, gpu, actors
        self.players = actors or 1
        self._crew = _Crew()
        self._joined = False
        self._died_at_once = 0
        self._held, self._looked = 0, -math.inf

    def play(self, work: Work, shared: tuple, portions: Sequence[tuple]) -> Iterator[Done]:
        """Raises DataError as the work does; for an address where no Ray is, and no machine with room; for a machine
        with other code; and for a portion over which :data:`TRIES` actors died."""
        if not portions:
            return
        self.join()
        ray = _ray()
        together = ray.put(tuple(on_cpu(part) for part in shared))
        waiting, died = deque(range(len(portions))), Counter[int]()
        crew, seen = self._crew, time.monotonic()
        try:
            with progress(len(portions), "portion") as bar:
                while waiting or crew.busy:
                    seen = self._hire(len(waiting), seen)
                    while waiting and crew.free:
                        actor, number = crew.free.pop(), waiting.popleft()
                        crew.busy[actor.play.remote(work, [together], number, portions[number])] = (actor, number)
                    for future in self._answered():
                        if future in crew.starting:
                            self._welcome(future)
                            continue
                        done = self._result(future, died, waiting)
                        if done is not None:
                            bar.update()
                            yield accepted(done)
        finally:  # what still plays is of no use, and would be in the way of what comes
            for actor, _ in crew.busy.values():
                ray.kill(actor)
            crew.busy.clear()

    def close(self) -> None:
        """End the actors, and the Ray that was started here."""
        if self._joined:
            _ray().shutdown()
            self._crew, self._joined = _Crew(), False

    def join(self) -> None:
        """Join Ray, or start it. A process joins one Ray: a second cluster without an address uses that of the first.

        Raises DataError where there is none."""
        if self._joined:
            return
        ray = _ray()
        if self._address is None and not ray.is_initialized():
            from ray._private import services

            # else Ray takes 127.0.0.1 for this machine's own address, and its servers listen to everybody
            with mock.patch.object(services, "resolve_ip_for_localhost", lambda host: host):
                ray.init(
                    address="local",
                    **self._resources(),
                    _node_ip_address="127.0.0.1",
                    include_dashboard=False,
                    **_QUIET,
                )
        elif self._address is not None:
            _connect(self._address)
        self._joined = True

    def _resources(self) -> dict[str, int]:
        room = torch.cuda.device_count() if self._gpu else (os.cpu_count() or 1) // self._threads
        actors = self._actors or max(1, room)
        return {"num_cpus": actors * self._threads, **({"num_gpus": actors} if self._gpu else {})}

    def _room(self) -> int:
        """Actors that the machines of the cluster can hold, as they were at most :data:`LOOK_S` ago."""
        if time.monotonic() - self._looked > LOOK_S:
            resources = [node["Resources"] for node in _ray().nodes() if node["Alive"]]
            held = (r.get("GPU", 0) if self._gpu else r.get("CPU", 0) // self._threads for r in resources)
            self._held, self._looked = sum(map(int, held)), time.monotonic()
        return self._held if self._actors is None else min(self._held, self._actors)

    def _hire(self, wanted: int, seen: float) -> float:
        """As many actors as there is room for and work; when there last was room for one."""
        ray = _ray()
        crew, room = self._crew, self._room()
        idle = len(crew.starting) + len(crew.free)
        actor = ray.remote(Actor)
        for _ in range(min(room - crew.count, wanted - idle)):
            needs = {"num_gpus": 1, "num_cpus": 0} if self._gpu else {"num_cpus": self._threads}
            new = actor.options(**needs).remote(self._threads, self._gpu)
            crew.starting[new.about.remote()] = new
        now = time.monotonic()
        if room or crew.busy:
            return now
        if now - seen > NOBODY_S:
            needed = "a GPU" if self._gpu else f"{self._threads} cores (compute.threads)"
            raise DataError(f"no machine of the Ray at {self._address} has {needed} for an actor")
        return seen

    def _answered(self) -> list[Any]:
        ray = _ray()
        asked = [*self._crew.starting, *self._crew.busy]
        if not asked:
            time.sleep(LOOK_S)
            return []
        answered, _ = ray.wait(asked, num_returns=1, timeout=LOOK_S)
        return answered

    def _welcome(self, future: Any) -> None:
        """An actor that has started; or that could not."""
        ray = _ray()
        actor = self._crew.starting.pop(future)
        try:
            host, code = ray.get(future)
        except ray.exceptions.RayError as error:  # also: it cannot import this package
            self._died_at_once += 1
            if self._died_at_once >= TRIES:
                raise DataError(f"{TRIES} actors of Ray ended before they played; the last: {_short(error)}") from error
            return
        self._died_at_once = 0
        if code != code_digest():
            ray.kill(actor)
            raise DataError(
                f"{host} has another agentprm, torch or Python than this machine: install the same commit there"
            )
        self._crew.free.append(actor)

    def _result(self, future: Any, died: Counter[int], waiting: deque[int]) -> Done | Refused | None:
        """What an actor answers; None of one that was lost, whose portion waits again.

        Raises DataError for a portion that was lost too often.
        """
        ray = _ray()
        exceptions = ray.exceptions
        lost = (
            exceptions.RayActorError,
            exceptions.ObjectLostError,
            exceptions.WorkerCrashedError,
            exceptions.OutOfMemoryError,
            exceptions.NodeDiedError,
        )
        actor, number = self._crew.busy.pop(future)
        try:
            done = ray.get(future)
        except lost as error:
            ray.kill(actor)  # it may be out of reach, and not dead
            died[number] += 1
            if died[number] >= TRIES:
                raise DataError(
                    f"portion {number}: {TRIES} actors of Ray died over it; where memory ran out, lower compute.slots "
                    f"or compute.cache_mb; the last: {_short(error)}"
                ) from error
            print(
                f"an actor of Ray was lost, its portion is played again: {_short(error)}", file=sys.stderr, flush=True
            )
            waiting.appendleft(number)
            return None
        self._crew.free.append(actor)
        return done


class Actor:
    """One player, in a process of Ray's."""

    def __init__(self, threads: int, gpu: bool) -> None:
        torch.set_num_threads(threads)
        self._device = "cuda" if gpu else "cpu"
        self._of: Any = None
        self._make: Any = None

    def about(self) -> tuple[str, str]:
        """The machine, and :func:`code_digest` there."""
        return socket.gethostname(), code_digest()

    def play(self, work: Work, together: list[Any], number: int, portion: tuple) -> Done | Refused:
        """``together`` holds the reference to what portions share, so that it is fetched once."""
        ray = _ray()
        if self._of != (work, together[0]):
            self._make = self._of = None  # what was made before gives its memory back first
            shared = ray.get(together[0])
            self._make = work(*(on_device(part, self._device) for part in shared))
            self._of = (work, together[0])
        return done_elsewhere(self._make, number, portion)


def code_digest() -> str:
    """Of what decides the bytes of play: the code of this package, torch and Python."""
    folder = Path(next(iter(agentprm_core.__path__)))
    total = hashlib.sha256(f"{torch.__version__} {platform.python_version()}".encode())
    for file in sorted(folder.rglob("*.py")):
        total.update(file.relative_to(folder).as_posix().encode())
        total.update(file.read_bytes())
    return total.hexdigest()[:12]


def _ray() -> Any:
    """The package, when it is first needed. It tells nobody that it is used. Raises DataError where it is missing."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise DataError("Ray is not installed here: pip install 'ray>=2.60,<3'") from error
    return ray


def _connect(address: str) -> None:
    """Join the Ray at ``address``. Raises DataError where there is none, or none of it on this machine."""
    ray = _ray()
    if address != "auto":
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), CONNECT_S).close()
        except OSError as error:
            raise DataError(f"nobody answers at {address}, where Ray was to be: {error}") from error
    try:
        ray.init(address=address, **_QUIET)
    except (ConnectionError, RuntimeError, ValueError) as error:
        here = "RAY" if address == "auto" else address
        hint = f"this machine has to be one of Ray's: ray start --address={here}"
        raise DataError(f"Ray at {address} cannot be joined: {_short(error)}; {hint}") from error


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
