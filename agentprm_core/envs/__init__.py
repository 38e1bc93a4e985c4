"""Worlds by name. ``make_world("fast")`` is the exact fast engine, ``"textworld"`` the published one.

An engine's module is imported only when it is asked for, so the core needs neither textworld nor alfworld.
"""

from __future__ import annotations

from importlib import import_module

from agentprm_core.envs.base import Observation, UnsupportedGame, World

_ENGINES = {
    "fast": ("agentprm_core.envs.alfworld.engine", "FastWorld"),
    "textworld": ("agentprm_core.envs.alfworld.textworld", "TextWorld"),
}

ENGINES = tuple(_ENGINES)


def make_world(engine: str) -> World:
    """A fresh, un-reset world of ``engine``. Raises ValueError naming the engines there are."""
    if engine not in _ENGINES:
        raise ValueError(f"env.engine: {engine!r} is not one of {', '.join(ENGINES)}")
    module, name = _ENGINES[engine]
    return getattr(import_module(module), name)()


__all__ = ["ENGINES", "Observation", "UnsupportedGame", "World", "make_world"]
