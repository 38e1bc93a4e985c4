"""Whether Prefect's server can be used, said in one line before a flow starts."""

from __future__ import annotations

import httpx
from prefect.client.orchestration import get_client
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import get_current_settings


class NoServer(RuntimeError):
    """Prefect's server is away, or does not take the password. Says where it was looked for, and what to do."""


def require_server() -> None:
    """Raises NoServer unless the server answers. Without an address Prefect starts a server of its own."""
    url = get_current_settings().api.url
    if url is None:
        return
    try:
        with get_client(sync_client=True) as client:
            client.api_version()
    except PrefectHTTPStatusError as error:
        status = error.response.status_code
        what = "set PREFECT_API_AUTH_STRING=USER:PASSWORD" if status == 401 else "see its log"
        raise NoServer(f"Prefect at {url} refuses ({status} {error.response.reason_phrase}): {what}") from error
    except httpx.HTTPError as error:
        raise NoServer(f"Prefect at {url} does not answer ({type(error).__name__}): start it, or make ui") from error
