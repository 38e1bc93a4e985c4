"""What is said of a Prefect server that is away, or refuses, before anything starts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.reach import NoServer, require_server


@contextmanager
def answering(status: int) -> Iterator[str]:
    """A server whose every answer has ``status``."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/api"
    finally:
        server.shutdown()
        server.server_close()


def said(url: str) -> str:
    with temporary_settings({PREFECT_API_URL: url}), pytest.raises(NoServer) as error:
        require_server()
    return str(error.value)


def test_a_server_that_is_away_or_refuses_is_one_line() -> None:
    nobody = "http://127.0.0.1:9/api"
    assert said(nobody) == f"Prefect at {nobody} does not answer (ConnectError): start it, or make ui"
    with answering(401) as url:
        refused = f"Prefect at {url} refuses (401 Unauthorized): set PREFECT_API_AUTH_STRING=USER:PASSWORD"
        assert said(url) == refused
    with answering(404) as url:
        assert said(url) == f"Prefect at {url} refuses (404 Not Found): see its log"
