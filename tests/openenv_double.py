"""A server that speaks OpenEnv's protocol over a world of ours, and goes away when it is told to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Response
from websockets.sync.server import Server, ServerConnection, serve

from agentprm_core.worlds.base import WorldSpec


class Double:
    """``dies_after``: steps in all after which it drops every session and answers nobody. ``lies``: it adds a word to
    what it says. ``gate``: it answers a step once that is set. ``seats``: it serves so many sessions at once.
    ``live``: sessions that nobody has ended."""

    def __init__(
        self,
        spec: WorldSpec,
        games: int = 20,
        dies_after: int | None = None,
        lies: bool = False,
        gate: threading.Event | None = None,
        seats: int | None = None,
    ) -> None:
        self.spec, self.games = spec, {split: spec.generate(games, 1, split) for split in ("train", "seen", "unseen")}
        self.dies_after, self.lies, self.gate, self.seats = dies_after, lies, gate, seats
        self.steps = self.sessions = self.live = 0
        self._counts = threading.Lock()

    def talk(self, connection: ServerConnection) -> None:
        with self._counts:
            self.sessions += 1
            self.live += 1
        try:
            if self.seats is not None and self.live > self.seats:
                error = {"message": f"Server at capacity: {self.seats} sessions active", "code": "CAPACITY_REACHED"}
                return connection.send(json.dumps({"type": "error", "data": error}))  # and closes, before any request
            self._serve(connection)
        except ConnectionClosed:
            pass
        finally:
            with self._counts:
                self.live -= 1

    def _serve(self, connection: ServerConnection) -> None:
        world, earned = self.spec.make(), 0.0
        for message in connection:
            asked = json.loads(message)
            if self._dead():
                return connection.close()
            data = asked["data"]
            try:
                if asked["type"] == "reset":
                    earned, seen = 0.0, world.reset(self.games[data["split"]][data["index"]])
                else:
                    if self.gate is not None:
                        self.gate.wait()
                    seen = world.step(data["command"])
                    self.steps += 1
            except IndexError:
                error = {"message": "Invalid task index", "code": "EXECUTION_ERROR"}
                connection.send(json.dumps({"type": "error", "data": error}))
                continue
            added, earned = seen.reward - earned, seen.reward
            observation = {"text": seen.text + " Really." * self.lies, "admissible": seen.admissible}
            said = {"observation": observation, "reward": added, "done": seen.done}
            connection.send(json.dumps({"type": "observation", "data": said}))

    def request(self, connection: ServerConnection, request) -> Response | None:
        if request.path == "/ws":
            return None if not self._dead() else connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "")
        body = json.dumps([self.spec.name])
        return Response(200, "OK", Headers([("Content-Type", "application/json")]), body.encode())

    def _dead(self) -> bool:
        return self.dies_after is not None and self.steps >= self.dies_after


@contextmanager
def serving(double: Double) -> Iterator[str]:
    """Its address while it serves."""
    server: Server = serve(double.talk, "127.0.0.1", 0, process_request=double.request)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
    finally:
        server.shutdown()
        thread.join()
