"""Servers that play a campaign's policy, by the environment. That servers play decides bytes and is in params.yaml
(``model.constrained: served``); where they are decides none."""

from __future__ import annotations

import os
import re

from agentprm_core.policy.server import Servers
from agentprm_core.policy.speech import API_KEY
from tasks.frame.sections import Params
from tasks.frame.stage import StageError

SERVERS = "AGENTPRM_SERVERS"
_ADDRESS = re.compile(r"https?://[^\s,@]+")


def servers(params: Params) -> Servers | None:
    """What ``AGENTPRM_SERVERS`` names, addresses with commas between; None where params.yaml has play done here.

    Raises StageError where it names none, or something that is no address.
    """
    if params.model.constrained != "served":
        return None
    urls = [url.strip() for url in os.environ.get(SERVERS, "").split(",") if url.strip()]
    wanted = "http://HOST:8000/v1, several with commas between"
    if not urls:
        raise StageError(
            f"params.yaml: model.constrained is served: {SERVERS} in the environment names no server: {wanted}"
        )
    for url in urls:
        if not _ADDRESS.fullmatch(url):
            what = "an address with a password" if "@" in url else repr(url)
            raise StageError(f"{SERVERS} in the environment: {what} is not allowed: {wanted}; a key is in {API_KEY}")
    return Servers(tuple(urls), os.environ.get(API_KEY))
