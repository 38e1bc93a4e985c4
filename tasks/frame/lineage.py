"""Where a policy comes from: the digests of what it was made of."""

from __future__ import annotations

from agentprm_core.methods.refused import refusal_of
from agentprm_core.policy.models import checkpoint_digest
from tasks.frame import layout
from tasks.frame.sections import Params


def parents(params: Params, iteration: int) -> dict[str, str]:
    """π₀ has its source; π_i has π_{i−1} and the PRM that taught it, or that was refused."""
    if iteration == 0:
        return {"source": params.model.source}
    prev, taught = params.iterations[str(iteration)].prev, refusal_of(layout.collected(iteration)) is None
    of_prm = "prm" if taught else "refused_prm"
    return {"policy": checkpoint_digest(layout.policy(prev)), of_prm: checkpoint_digest(layout.prm(iteration))}
