"""Methods by name: who improves the policy. A new one is one file of its name and one line here."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from agentprm_core.errors import DataError

METHODS = {
    "expert_iteration": "agentprm_core.methods.expert_iteration",
    "online_dpo": "agentprm_core.methods.online_dpo",
    "rft": "agentprm_core.methods.rft",
    "dagger": "agentprm_core.methods.dagger",
    "grpo": "agentprm_core.methods.grpo",
    "gigpo": "agentprm_core.methods.gigpo",
    "loop": "agentprm_core.methods.loop",
    "ppo": "agentprm_core.methods.ppo",
    "istar": "agentprm_core.methods.istar",
    "tree_grpo": "agentprm_core.methods.tree_grpo",
}


def method_module(name: str) -> ModuleType:
    """The module of a method. Raises DataError where there is none of this name."""
    if name not in METHODS:
        raise DataError(f"method.name: {name!r} is not one of {', '.join(METHODS)}")
    return import_module(METHODS[name])
