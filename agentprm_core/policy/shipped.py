"""Agents that come with the package: ``shipped:NAME`` wherever a checkpoint is asked for.

Each is a folder of ``agentprm_core/shipped``: ``policy`` and ``prm``, checkpoints in bfloat16; ``card.json`` with their
digests and figures; and ``MODEL_CARD.md``, the same to be read. ``python -m tasks.commands.ship`` makes one from a
finished campaign.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from agentprm_core.errors import DataError, nearest

PREFIX = "shipped:"
FOLDER = Path(__file__).parents[1] / "shipped"
CARD = "card.json"


@dataclass(frozen=True)
class Shipped:
    """One checkpoint of a shipped agent."""

    folder: Path
    digest: str
    """What :func:`agentprm_core.policy.models.checkpoint_digest` must say of it."""


def is_shipped(source: str | Path) -> bool:
    """Whether ``source`` is of the form ``shipped:NAME``."""
    return str(source).startswith(PREFIX)


def shipped_names() -> list[str]:
    """The agents that there are."""
    return sorted(path.parent.name for path in FOLDER.glob(f"*/{CARD}"))


def shipped_card(name: str) -> dict:
    """What is recorded of an agent: what it was trained on, digests, figures. ``name`` with ``shipped:`` or without.

    Raises DataError where there is none of this name; says which there are.
    """
    plain = name.removeprefix(PREFIX)
    path = FOLDER / plain / CARD
    if plain in shipped_names():
        return json.loads(path.read_text())
    near = nearest(plain, shipped_names())
    meant = f"; did you mean {PREFIX}{near}?" if near else ""
    there = ", ".join(PREFIX + known for known in shipped_names()) or "none"
    raise DataError(f"{PREFIX}{plain}: no such agent is shipped (there are: {there}){meant}")


def shipped(source: str | Path, kind: str) -> Shipped:
    """The ``policy`` or the ``prm`` of the agent that ``source`` names. Raises DataError as :func:`shipped_card`, and
    for an agent without one of this kind."""
    name = str(source).removeprefix(PREFIX)
    card = shipped_card(name)
    if kind not in card["checkpoints"]:
        raise DataError(f"{PREFIX}{name}: it has no {kind}, only {', '.join(sorted(card['checkpoints']))}")
    return Shipped(FOLDER / name / kind, card["checkpoints"][kind]["digest"])
