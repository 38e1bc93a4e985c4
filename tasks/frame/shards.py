"""Where play is done, by the environment: it decides the time that it takes, and no byte."""

from __future__ import annotations

import os
import re

from agentprm_core.shards.base import HERE, Shards
from tasks.frame.sections import Compute
from tasks.frame.stage import StageError

SHARDS = "AGENTPRM_SHARDS"
ALLOWED = "local, local:N, ray, ray:N, ray:auto or ray:HOST:PORT, with N at least 1"
_FORM = re.compile(r"(local|ray)(?::([1-9]\d*)|:(auto|[\w.-]+:\d+))?")


def shards(compute: Compute) -> Shards:
    """What ``AGENTPRM_SHARDS`` asks for; without it, this process. Raises StageError for what is not allowed."""
    asked = os.environ.get(SHARDS) or "local"
    form = _FORM.fullmatch(asked)
    if form is None or (form[1] == "local" and form[3]):
        raise StageError(f"{SHARDS} in the environment: {asked!r} is not allowed: {ALLOWED}")
    how, count, gpu = form[1], int(form[2]) if form[2] else None, compute.device == "cuda"
    if how == "ray":
        from agentprm_core.shards.cluster import Cluster

        return Cluster(form[3], threads=compute.threads, gpu=gpu, actors=count)
    if count is None or count == 1:
        return HERE
    from agentprm_core.shards.processes import Processes

    return Processes(count, threads=compute.threads, device=compute.device)
