"""LoRA adapters in servers that run: vLLM and SGLang load and unload them by HTTP.

vLLM has ``POST /v1/load_lora_adapter``, SGLang ``POST /load_lora_adapter``. Both take the same body, and both have an
``unload_lora_adapter`` beside it. A request names the adapter as its ``model``. SGLang wants it in ``lora_path``: it
answers for the model without an adapter where only ``model`` names one.

A name stands for the same weights wherever it is used (:func:`agentprm_core.policy.server.served_name`), so an adapter
that a server has is not loaded again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from agentprm_core.errors import ServerError, SilentServer
from agentprm_core.policy.requests import START_IT, Patience

PREFIX = "policy-"
"""Of the names that servers know policies by."""
_BEFORE = 1
"""Adapters that stay beside the one that is loaded: another stage may still be playing the one before."""


@dataclass(frozen=True)
class Ready:
    """Servers that have an adapter."""

    urls: tuple[str, ...]
    """Those that answered."""
    extra: Mapping[str, object] = field(default_factory=dict)
    """Further fields of every request."""


def load_adapter(
    urls: Sequence[str], name: str, folder: Path, *, patience: Patience, api_key: str | None = None
) -> Ready:
    """Load the adapter in ``folder`` as ``name`` at the servers that have it not, and unload older ones there.

    A server that does not answer is left out, as in play. Raises ServerError, a line that says what to do, where none
    answers, where one refuses the adapter, and where one that was not started with it can load none.
    """
    ready, extra, silent = [], {}, ""
    key = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    with httpx.Client(headers=key, timeout=patience.timeout_s) as client:
        for url in (url.rstrip("/") for url in urls):
            try:
                extra |= _load(client, url, name, folder, patience)
                ready.append(url)
            except SilentServer as error:
                silent = str(error)
                print(f"{url} is not asked any more, others are: {silent}", file=sys.stderr, flush=True)
    if not ready:
        raise SilentServer(f"no server answers: {START_IT}; the last: {silent}")
    return Ready(tuple(ready), extra)


def _load(client: httpx.Client, url: str, name: str, folder: Path, patience: Patience) -> dict[str, str]:
    """At one server. Returns the fields that its requests need."""
    for base, extra in ((url, {}), (url.rsplit("/", 1)[0], {"lora_path": name})):
        path = f"{base}/load_lora_adapter"
        response = _post(client, path, {"lora_name": name, "lora_path": str(folder)}, patience)
        said = " ".join(response.text.split())
        if response.is_success:
            _unload_older(client, url, base, name)
            return extra
        if response.status_code == 400 and "already" in said:
            return extra
        if response.status_code not in (404, 405) or str(folder) in said:  # vLLM says 404 of a folder, too
            raise ServerError(
                f"{path} refuses the adapter in {folder}; the server must see this folder, serve the model that the "
                "adapter was trained on, and allow its rank (--max-lora-rank): "
                f"HTTP {response.status_code}: {said[:300]}"
            )
    if name in _models(client, url):
        return {}
    raise ServerError(
        f"{url} has no {name} and cannot load it while it runs: start vLLM with --enable-lora and with "
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment, or SGLang with --enable-lora, and run the same again"
    )


def _post(client: httpx.Client, path: str, body: dict, patience: Patience) -> httpx.Response:
    """The answer, tried again after a dropped connection, a time-out, 429 and 5xx. Raises SilentServer."""
    said = ""
    for number in range(patience.retries + 1):
        if number:
            time.sleep(patience.backoff_s * 2 ** (number - 1))
        try:
            response = client.post(path, json=body)
        except httpx.TransportError as error:
            said = f"{type(error).__name__}: {error}"
            continue
        if response.status_code != 429 and response.status_code < 500:
            return response
        said = f"HTTP {response.status_code}: {response.text[:300]}"
    raise SilentServer(f"{path} did not answer in {patience.retries + 1} tries; last: {said}")


def _unload_older(client: httpx.Client, url: str, base: str, name: str) -> None:
    """All of ours but ``name`` and the one before. Servers list the oldest first."""
    ours = [model for model in _models(client, url) if model.startswith(PREFIX) and model != name]
    for old in ours[:-_BEFORE]:
        with suppress(httpx.TransportError):  # it takes memory there and changes no game
            client.post(f"{base}/unload_lora_adapter", json={"lora_name": old})


def _models(client: httpx.Client, url: str) -> list[str]:
    """The names that a server answers to; none where it does not say."""
    with suppress(httpx.TransportError):
        response = client.get(f"{url}/models")
        return [model["id"] for model in response.json()["data"]] if response.is_success else []
    return []
