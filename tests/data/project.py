"""A folder that stages run in: parameters over params.yaml, and the world's code where they say it is."""

from pathlib import Path

import yaml

from tasks.frame.params import PARAMS
from tasks.frame.profile import load_profile, overridden

ROOT = Path(__file__).parents[2]


def raw_params(*profiles: str, **overrides) -> dict:
    """What params.yaml says with these profiles and then these overrides."""
    raw = yaml.safe_load((ROOT / PARAMS).read_text())
    for changes in (*(load_profile(name, ROOT / "profiles") for name in profiles), overrides):
        overridden(raw, changes)
    return raw


def write_project(folder: Path, raw: dict) -> None:
    """params.yaml there, which is to be the working directory."""
    (folder / PARAMS).write_text(yaml.safe_dump(raw))
    code = folder / "agentprm_core"
    if not code.exists():
        code.symlink_to(ROOT / "agentprm_core")
