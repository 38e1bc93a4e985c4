"""Models of the Hugging Face hub by their id: from its local cache, else downloaded.

A name that is nobody's is told at once. The hub is asked only for a name of the form ``owner/name``, once and briefly:
the libraries that download try again for a minute where it does not answer.
"""

from __future__ import annotations

import re
from pathlib import Path

from agentprm_core.errors import CheckpointError
from agentprm_core.policy.shipped import PREFIX, is_shipped, shipped, shipped_names

_SECONDS = 5.0
"""That the hub has to answer."""
_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
"""Of a model on the hub: ``owner/name``; in its cache ``name``, too."""
_NO_FOLDER = "no such checkpoint folder"


def require_named(source: str | Path, kind: str, revision: str | None = None) -> None:
    """Refuse a name that no ``policy`` or ``prm`` can have: before anything is loaded.

    A policy is a folder, ``shipped:NAME``, or a model that is in the hub's cache or on the hub. A PRM is one of the
    first two. Raises CheckpointError, and DataError where no agent of this name is shipped.
    """
    if is_shipped(source):
        shipped(source, kind)
    elif not Path(source).exists():
        if kind == "prm" or not _ID.fullmatch(str(source)):
            raise CheckpointError(_unknown(source, kind, _NO_FOLDER))
        from huggingface_hub import try_to_load_from_cache

        if not isinstance(try_to_load_from_cache(str(source), "config.json", revision=revision), str):
            require_on_hub(source, revision)


def require_on_hub(source: str | Path, revision: str | None) -> None:
    """Refuse a model that is not in the cache and cannot be downloaded. Raises CheckpointError."""
    import httpx
    from huggingface_hub import constants
    from huggingface_hub.utils import build_hf_headers

    hub, nowhere = constants.ENDPOINT, f"{_NO_FOLDER}, no model in the local cache of the hub"
    if not _ID.fullmatch(str(source)) or "/" not in str(source):
        raise CheckpointError(_unknown(source, "policy", nowhere))
    if constants.is_offline_mode():
        raise CheckpointError(_unknown(source, "policy", f"{nowhere}, and HF_HUB_OFFLINE forbids to ask {hub}"))
    at = f"{hub}/api/models/{source}" + (f"/revision/{revision}" if revision else "")
    try:
        answer = httpx.get(at, headers=build_hf_headers(), timeout=_SECONDS, follow_redirects=True)
    except httpx.TransportError as error:
        said = f"{hub} does not answer ({type(error).__name__})"
        raise CheckpointError(_unknown(source, "policy", f"{nowhere}, and {said}")) from None
    if answer.status_code in (401, 403, 404):
        said = f"{hub} has none that you may read (HTTP {answer.status_code}; for a private one: hf auth login)"
        raise CheckpointError(_unknown(source, "policy", f"{nowhere}, and {said}"))


def _unknown(source: str | Path, kind: str, why: str) -> str:
    """The line on a checkpoint that is nowhere: what it may be."""
    names = ", ".join(PREFIX + name for name in shipped_names()) or "none"
    what = f"a folder, or an agent that comes with the package ({names})"
    if kind == "prm":
        return f"{source}: {why}; a PRM is {what}"
    return f"{source}: {why}; a policy is {what}, or owner/name of a model of the hub, which is downloaded"
