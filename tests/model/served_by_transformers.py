"""``transformers serve`` on a free port of this machine, for tests that play against it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from transformers.utils.import_utils import is_serve_available

needs_transformers_serve = pytest.mark.skipif(
    not is_serve_available(), reason="transformers serve is not installed: pip install openai"
)
_SECONDS = 300
"""That it may take to come up."""


@contextmanager
def transformers_serve(model: str | Path, folder: Path | None = None) -> Iterator[str]:
    """The address, up to ``/v1``, of a server of ``model``, which it answers to by that name. ``folder``: where it is
    started."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    server = subprocess.Popen(command, cwd=folder, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    try:
        _wait_for(f"http://127.0.0.1:{port}/health", server)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait()


def _wait_for(url: str, process: subprocess.Popen) -> None:
    for _ in range(_SECONDS):
        assert process.poll() is None, "the server ended"
        try:
            if httpx.get(url).is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(1)
    raise AssertionError(f"{url} did not come up in {_SECONDS} s")
