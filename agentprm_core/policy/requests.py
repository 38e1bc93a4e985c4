"""Requests to an HTTP server that are repeated until they are answered, many at a time, from code that is not async.

A thread of its own runs the event loop: worlds are stepped while requests are under way, and the caller may itself live
in an event loop.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from dataclasses import dataclass

import httpx

from agentprm_core.errors import ServerError, SilentServer

START_IT = "start it, then run the same command"
"""What the line on a server that does not answer says first; what was tried comes after a semicolon."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to try."""

    timeout_s: float = 120.0
    """Of one try."""
    retries: int = 5
    """Tries after the first."""
    backoff_s: float = 0.5
    """Pause before the first of them; it doubles from one to the next."""


class Requests:
    """Posts JSON to one of ``urls`` and below, ``at_once`` requests at most. Close it."""

    def __init__(self, *urls: str, at_once: int, patience: Patience, api_key: str | None) -> None:
        """``urls``: of servers that say the same, each up to and with the version, ``http://localhost:8000/v1``."""
        self._urls, self._patience = [url.rstrip("/") for url in urls], patience
        self._silent: dict[str, str] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        key = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        limits = httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once)
        self._client = httpx.AsyncClient(headers=key, timeout=patience.timeout_s, limits=limits)
        self._room = asyncio.Semaphore(at_once)

    def post(self, path: str, body: dict, named: str, home: int = 0) -> Future[dict]:
        """The JSON answer of ``path``. Its exception is a :class:`ServerError` that calls the request ``named``: a
        :class:`SilentServer`, which says to start it, where no server answers.

        Tried again after a dropped connection, a time-out, 429 and 5xx. ``home`` is the number of the server that is
        asked first. One that has not answered a request for good is not asked again, as long as there are others.
        """
        return self._run(self._post(path, body, named, home))

    def close(self) -> None:
        """Drop what is under way."""
        self._run(self._client.aclose()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def misread(self, path: str, named: str, answer: dict, missing: Exception) -> ServerError:
        """The error of an answer that lacks what was asked for."""
        said = f"an answer without {missing}: {str(answer)[:300]}"
        return ServerError(f"{', '.join(self._urls)}: {path} answered otherwise than asked; request: {named}; {said}")

    def _run(self, coroutine: Coroutine) -> Future:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    async def _post(self, path: str, body: dict, named: str, home: int) -> dict:
        if len(self._urls) == 1:
            try:
                return await self._ask(self._urls[0], path, body, named)
            except SilentServer as error:
                raise SilentServer(f"the server at {self._urls[0]} does not answer: {START_IT}; {error}") from None
        first = home % len(self._urls)
        for url in self._urls[first:] + self._urls[:first]:
            if url not in self._silent:
                try:
                    return await self._ask(url, path, body, named)
                except SilentServer as error:
                    if url not in self._silent:
                        print(f"{url} is not asked any more, others are: {error}", file=sys.stderr, flush=True)
                        self._silent[url] = str(error)
        raise SilentServer(f"no server answers: {START_IT}; the last: {list(self._silent.values())[-1]}")

    async def _ask(self, url: str, path: str, body: dict, named: str) -> dict:
        """The answer of one server. Raises SilentServer where there is none."""
        tries, final, said = 0, False, ""
        while not final and url not in self._silent:
            if tries:
                await asyncio.sleep(self._patience.backoff_s * 2 ** (tries - 1))
            tries += 1
            try:
                async with self._room:
                    response = await self._client.post(f"{url}{path}", json=body)
            except httpx.TransportError as error:
                said, final = f"{type(error).__name__}: {error}", tries > self._patience.retries
                continue
            if response.is_success:
                return response.json()
            said = f"HTTP {response.status_code}: {response.text[:300]}"
            if response.status_code != 429 and response.status_code < 500:
                raise ServerError(_unanswered(url, path, tries, named, said))
            final = tries > self._patience.retries
        raise SilentServer(_unanswered(url, path, tries, named, said))


def _unanswered(url: str, path: str, tries: int, named: str, said: str) -> str:
    return f"{url}{path} did not answer in {tries} tries; last: {said}; request: {named}"
