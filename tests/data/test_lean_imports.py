"""Stages that train nothing start without what only training needs."""

import subprocess
import sys

import pytest

HEAVY = ("transformers", "peft", "trl", "scipy", "mlflow", "torch.distributed.tensor")
"""Each takes from half a second to three seconds to import."""


@pytest.mark.integration
@pytest.mark.parametrize("stage", ["games", "demos", "rollout", "label", "collect", "evaluate", "compare"])
def test_a_stage_imports_nothing_that_it_may_not_need(stage: str) -> None:
    code = f"import sys, tasks.{stage}; print([name for name in {HEAVY} if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"
