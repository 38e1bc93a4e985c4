"""``deploy/compose.yaml`` read as docker compose reads it: merge keys, and variables of an environment file put in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE = DEPLOY / "compose.yaml"
_VARIABLE = re.compile(r"\$\{(\w+)(?::(\?|-)([^}]*))?\}")
"""``${NAME}``, ``${NAME:?}``, ``${NAME:-otherwise}``."""


class Missing(Exception):
    """A variable that compose would refuse to start without."""


def services(given: Mapping[str, str]) -> dict[str, Any]:
    """The services with the variables of ``given`` put in. Raises Missing where one that is required is empty."""
    return _filled(yaml.safe_load(COMPOSE.read_text())["services"], given)


def variables(path: Path) -> dict[str, str]:
    """What an environment file says."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def asked_for() -> dict[str, set[str]]:
    """{variable: how it is asked for}: ``?`` where nothing starts without it, ``-`` where it has a default."""
    found: dict[str, set[str]] = {}
    for name, how, _ in _VARIABLE.findall(COMPOSE.read_text()):
        found.setdefault(name, set()).add(how)
    return found


def _filled(value: Any, given: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(one, given) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, given) for one in value]
    return _VARIABLE.sub(lambda found: _one(found, given), value) if isinstance(value, str) else value


def _one(found: re.Match[str], given: Mapping[str, str]) -> str:
    name, how, otherwise = found.groups()
    if value := given.get(name):
        return value
    if how == "-":
        return otherwise
    raise Missing(name)
