"""``transformers serve`` on a free port of this machine, for tests that play against it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from transformers.utils.import_utils import is_serve_available

from tests.waiting import free_port, until

needs_transformers_serve = pytest.mark.skipif(
    not is_serve_available(), reason="transformers serve is not installed: pip install openai"
)
_SECONDS = 300
"""That it may take to come up."""


@contextmanager
def transformers_serve(model: str | Path, folder: Path | None = None) -> Iterator[str]:
    """The address, up to ``/v1``, of a server of ``model``, which it answers to by that name. ``folder``: where it is
    started."""
    port = free_port()
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    server = subprocess.Popen(command, cwd=folder, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    try:
        until(lambda: answers(f"http://127.0.0.1:{port}/health"), _SECONDS, process=server, every=1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait()


def answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.TransportError:
        return False
