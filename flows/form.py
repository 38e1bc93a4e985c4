"""What the form of a campaign offers: profiles and worlds of this repository, and how an override is written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field

_FOLDER = Path(__file__).resolve().parents[1] / "profiles"
_SAID = {path.stem: yaml.safe_load(path.read_text()) or {} for path in sorted(_FOLDER.glob("*.yaml"))}

PROFILES = tuple(_SAID)
WORLDS = tuple(name for name, said in _SAID.items() if said.get("env", {}).get("world") == name)
"""Profiles that are named after their world."""

Profile = Literal[PROFILES]
World = Literal[WORLDS]
Override = Annotated[str, Field(pattern=r"^[a-z_]+(\.[A-Za-z0-9_]+)*=.*$", examples=["rollout.games=900"])]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
