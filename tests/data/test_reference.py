"""docs/reference/params.md is what the code says, and nothing is left unsaid."""

from pathlib import Path

import yaml

from tasks.frame.params import PARAMS
from tasks.frame.reference import PAGE, page

ROOT = Path(__file__).parents[2]
ROWS = [line.split(" | ") for line in page().splitlines() if line.startswith("| `")]


def test_the_page_is_that_of_the_code():
    assert (ROOT / PAGE).read_text() == page(), "python -m tasks.frame.reference --write"


def test_every_key_is_explained():
    assert [row[0] for row in ROWS if not row[2].strip(" |")] == []


def test_every_key_of_params_is_there():
    def keys(section: dict, prefix: str = ""):
        for key, value in section.items():
            if isinstance(value, dict) and key not in ("iterations", "policies"):
                yield from keys(value, f"{prefix}{key}.")
            else:
                yield prefix + key

    there = {row[0].strip("| `") for row in ROWS}
    assert set(keys(yaml.safe_load((ROOT / PARAMS).read_text()))) <= there


def test_ranges_and_unions_are_said():
    text = page()
    assert "| `critic.gamma` | number, above 0, at most 1 |" in text
    assert "| `method.anchor` | `previous`, `first` |" in text
    assert "### method.name: gigpo" in text
    assert "| `rollout.explore.bonus` | number, above 0 |" in text
