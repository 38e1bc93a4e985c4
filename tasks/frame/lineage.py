"""Where a policy comes from: the digests of what it was made of."""

from __future__ import annotations

from agentprm_core.policy.models import checkpoint_digest
from tasks.frame import layout
from tasks.frame.sections import Params


def parents(params: Params, iteration: int) -> dict[str, str]:
    """π₀ has its source; π_i has π_{i−1} and the PRM that taught it."""
    if iteration == 0:
        return {"source": params.model.source}
    prev = params.iterations[str(iteration)].prev
    return {"policy": checkpoint_digest(layout.policy(prev)), "prm": checkpoint_digest(layout.prm(iteration))}
