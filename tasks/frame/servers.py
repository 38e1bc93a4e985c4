"""Servers that play a campaign's policy, by the environment. That servers play decides bytes and is in params.yaml
(``model.constrained: served``); where they are decides none."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError

from agentprm_core.arguments import address
from agentprm_core.policy.server import Servers
from agentprm_core.policy.speech import API_KEY
from tasks.frame.sections import Params
from tasks.frame.stage import StageError

SERVERS = "AGENTPRM_SERVERS"


def servers(params: Params) -> Servers | None:
    """What ``AGENTPRM_SERVERS`` names, addresses with commas between; None where params.yaml has play done here.

    Raises StageError where it names none, or something that is no address.
    """
    if params.model.constrained != "served":
        return None
    urls = [url.strip() for url in os.environ.get(SERVERS, "").split(",") if url.strip()]
    if not urls:
        raise StageError(
            f"params.yaml: model.constrained is served: {SERVERS} in the environment names no server: "
            "http://HOST:8000/v1, several with commas between"
        )
    try:
        urls = [address(url) for url in urls]
    except ArgumentTypeError as error:
        raise StageError(
            f"{SERVERS} in the environment: {error}, several with commas between; a key is in {API_KEY}"
        ) from None
    return Servers(tuple(urls), os.environ.get(API_KEY))
