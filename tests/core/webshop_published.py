"""Where this machine has WebShop's published catalogue and what was recorded of the published environment."""

from __future__ import annotations

import json
import lzma
import os
from pathlib import Path

import pytest

from agentprm_core.worlds.webshop.catalogue import ROOT

_BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data" / "later"
DATA = Path(os.environ.get(ROOT, _BESIDE))
RECORDS = _BESIDE / "webshop_records.jsonl.xz"

needs_catalogue = pytest.mark.skipif(
    not DATA.exists(), reason=f"no published WebShop catalogue: {ROOT} is not set and {_BESIDE} is not there"
)
needs_records = pytest.mark.skipif(
    not (DATA.exists() and RECORDS.exists()), reason=f"no records of the published WebShop: {RECORDS} is not there"
)


def records() -> list[dict]:
    """What was recorded, a dictionary a line."""
    with lzma.open(RECORDS, "rt") as lines:
        return [json.loads(line) for line in lines]
