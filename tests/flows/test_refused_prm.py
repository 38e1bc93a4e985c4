"""A PRM that does not rank: the campaign keeps the policy, evaluates and compares, and says so."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from mlflow import MlflowClient

from agentprm_core.datasets import atomic_write, read_table, write_table
from agentprm_core.errors import DataError
from agentprm_core.methods.refused import REFUSED, Refusal, copy_policy, refusal_of, refused_suite
from agentprm_core.policy.models import MANIFEST, checkpoint_digest, save_checkpoint
from agentprm_core.prm.model import new_prm
from agentprm_core.types import EPISODES
from tasks import collect, policy
from tasks.frame import layout
from tasks.frame.gates import GateError, run_gate
from tasks.frame.lineage import parents
from tasks.frame.params import load_params
from tasks.frame.sender import flush
from tasks.frame.stage import run_stage, write_json
from tasks.report import campaign
from tests.core.given import given
from tests.flows.test_inverse_stages import write_params, write_policy
from tests.model import text_world

RANKING = {"accuracy": 0.58, "accuracy_low": 0.48, "accuracy_high": 0.68, "pairs": 184, "states": 90, "games": 80}
SAID = "PRM 1 was refused (58 % [48, 68] of 184 pairs): policy 1 is policy 0"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with π₀ and PRM 1, which does not rank; ``project(profiles, require)`` writes its parameters."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)

    def write(*profiles: str, require: str = "ranking") -> None:
        write_params(tmp_path, ("smoke", *profiles), critic={"require": require})

    write()
    write_policy(0)
    renderer = text_world.renderer()
    with atomic_write(layout.prm(1)) as folder:
        save_checkpoint(new_prm(text_world.small_model(renderer, seed=0)), renderer.tokenizer, folder, "prm")
    write_json({"ranking": RANKING | {"better_than_chance": False}}, layout.metrics("prm-1"))
    return write


def run(task: str, module, *, gated: bool = False) -> None:
    run_stage(task, module.work, iterated=True, gated=gated, arguments=["--iteration", "1"])


def written() -> dict[str, bytes]:
    """Bytes of all that both stages write."""
    files = [*layout.policy(1).rglob("*"), layout.collected(1), layout.PLOTS / "policy-1.json"]
    files += [layout.metrics("collect-1"), layout.metrics("policy-1")]
    return {str(path): path.read_bytes() for path in files}


@pytest.mark.parametrize("method", [(), ("online_dpo",)])
def test_the_policy_stays_and_everybody_is_told(project, method, tmp_path, capsys):
    project(*method)
    run("collect", collect, gated=True)
    said = capsys.readouterr().out
    assert "ranks actions no better than chance: it orders 58% [48%, 68%] of 184 pairs at 90 states of 80" in said
    assert f"Nothing is collected. {SAID}" in said and "gate passed, 3 expectations" in said
    refusal = refusal_of(layout.collected(1))
    assert str(refusal) == SAID and refusal.prm == checkpoint_digest(layout.prm(1))
    with pytest.raises(DataError, match="lacks the columns"):  # nobody takes it for episodes
        read_table(layout.collected(1), EPISODES)
    run("policy", policy)
    assert f"policy@1: {SAID}" in capsys.readouterr().out
    digest = checkpoint_digest(layout.policy(0))
    assert checkpoint_digest(layout.policy(1)) == digest
    manifest = json.loads((layout.policy(1) / MANIFEST).read_text())
    assert manifest.pop("copy") == SAID
    assert manifest == json.loads((layout.policy(0) / MANIFEST).read_text())
    assert json.loads(layout.metrics("policy-1").read_text()) == {"refused": SAID, "steps": 0}
    assert campaign.refused(1) == SAID and campaign.refused(0) is None and campaign._followed("1") == []
    assert parents(load_params(), 1) == {"policy": digest, "refused_prm": checkpoint_digest(layout.prm(1))}
    mlflow_remembers(tmp_path, digest)
    first = written()
    run("collect", collect, gated=True)
    run("policy", policy)
    assert written() == first


def mlflow_remembers(folder: Path, digest: str) -> None:
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    assert flush() == 2
    for stage in ("policy", "iteration"):
        (run_of_it,) = client.search_runs(["1"], f"tags.stage = '{stage}'")
        assert run_of_it.data.tags["prm_refused"] == SAID
    (version,) = client.search_logged_models(["1"])
    assert (version.tags["digest"], version.tags["iteration"]) == (digest, "1")
    assert "parent.refused_prm" in version.tags and "parent.prm" not in version.tags


def test_a_refusal_is_an_error_where_that_is_asked_for(project):
    project(require="ranking_or_error")
    with pytest.raises(SystemExit) as stopped:
        run("collect", collect, gated=True)
    assert stopped.value.code.startswith("collect@1: data/checkpoints/prm/1 ranks actions no better than chance: ")
    assert not layout.collected(1).exists()


def test_another_policy_than_the_one_that_was_to_stay_is_not_copied(project):
    run("collect", collect, gated=True)
    was, now = checkpoint_digest(layout.policy(0)), write_policy(0) and write_other_policy()
    with pytest.raises(SystemExit) as stopped:
        run("policy", policy)
    assert stopped.value.code == (
        f"policy@1: data/checkpoints/policy/0: is {now}, and the policy that stays is {was}. "
        "Collect again: dvc repro collect@1"
    )
    assert not layout.policy(1).exists()


def write_other_policy() -> str:
    renderer = text_world.renderer()
    with atomic_write(layout.policy(0)) as folder:
        return save_checkpoint(text_world.small_model(renderer, seed=7), renderer.tokenizer, folder)


def test_a_copy_can_be_written_to_where_its_source_cannot(tmp_path, project):
    """DVC may link what lies in its cache, read-only."""
    for path in layout.policy(0).iterdir():
        path.chmod(0o444)
    refusal = Refusal(2, "prm", checkpoint_digest(layout.policy(0)), "no pair of actions to order")
    assert copy_policy(layout.policy(0), tmp_path / "copy", refusal) == refusal.policy
    said = json.loads((tmp_path / "copy" / MANIFEST).read_text())["copy"]
    assert said == "PRM 2 was refused (no pair of actions to order): policy 2 is policy 1"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"iteration": 2}, "of this iteration"),
        ({"policy": "another"}, "the policy before stays"),
        (None, "one refusal"),
    ],
)
def test_the_gate_lets_only_this_refusal_pass(tmp_path, project, change, message):
    data = given(tmp_path)
    data = given(tmp_path, folders=data.folders.__class__(**{**data.folders.__dict__, "policy": layout.policy(0)}))
    row = {"iteration": 1, "prm": "prm", "policy": checkpoint_digest(layout.policy(0)), "shown": "little"}
    rows = [row, row] if change is None else [row | change]
    assert run_gate("collect@1", [refused_suite(pa.Table.from_pylist([row], REFUSED), data)])
    with pytest.raises(GateError, match=message):
        run_gate("collect@1", [refused_suite(pa.Table.from_pylist(rows, REFUSED), data)])


def test_collected_episodes_are_no_refusal(tmp_path):
    write_table(EPISODES.empty_table(), tmp_path / "collected.parquet")
    assert refusal_of(tmp_path / "collected.parquet") is None
