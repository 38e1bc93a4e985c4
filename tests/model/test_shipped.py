"""``shipped:NAME``: found by name and kind, checked by digest; and a checkpoint of another world is refused."""

import dataclasses
import json
import sys

import pytest

from agentprm_core.datasets import games_to_table, write_table
from agentprm_core.errors import DataError
from agentprm_core.policy import shipped as shipping
from agentprm_core.policy.models import CheckpointError, load_checkpoint, require_world, save_checkpoint
from agentprm_core.prm.model import new_prm
from agentprm_core.worlds.alfworld.households import generate_games
from agentprm_core.worlds.alfworld.spec import ALFWORLD
from tasks.commands import standalone
from tests.model import toy

HOMES = dataclasses.replace(ALFWORLD, name="homes", texts_of="alfworld")
"""Somebody's own world: its name is not the one that it is imported by."""


@pytest.fixture
def agents(tmp_path, monkeypatch):
    """Two agents as they would be shipped; ``blind`` has no PRM."""
    policy = toy.policy()
    for name in ("toy", "blind"):
        folder, digests = tmp_path / name, {}
        digests["policy"] = save_checkpoint(policy.model, policy.tokenizer, folder / "policy", world="toy")
        if name == "toy":
            prm = new_prm(policy.model)
            digests["prm"] = save_checkpoint(prm, policy.tokenizer, folder / "prm", kind="prm", world="toy")
        card = {"checkpoints": {kind: {"digest": digest} for kind, digest in digests.items()}}
        (folder / "card.json").write_text(json.dumps(card))
    monkeypatch.setattr(shipping, "FOLDER", tmp_path)
    return tmp_path


def test_policy_and_prm_are_found_by_the_kind_that_is_asked_for(agents):
    assert shipping.shipped_names() == ["blind", "toy"]
    policy, prm = load_checkpoint("shipped:toy"), load_checkpoint("shipped:toy", kind="prm")
    assert not hasattr(policy.model, "score") and hasattr(prm.model, "score")
    assert policy.digest == load_checkpoint(agents / "toy" / "policy").digest
    assert policy.world == prm.world == "toy"


@pytest.mark.parametrize(
    ("source", "kind", "message"),
    [
        ("shipped:tou", "policy", "shipped:tou: no such agent is shipped .there are: shipped:blind, shipped:toy.; did"),
        ("shipped:../toy", "policy", "no such agent is shipped"),
        ("shipped:", "policy", "no such agent is shipped"),
        ("shipped:blind", "prm", "shipped:blind: it has no prm, only policy"),
    ],
)
def test_what_is_not_there_is_named(agents, source, kind, message):
    with pytest.raises(DataError, match=message):
        load_checkpoint(source, kind=kind)


def test_files_that_have_changed_are_refused(agents):
    config = agents / "toy" / "policy" / "config.json"
    config.write_text(config.read_text() + "\n")
    with pytest.raises(CheckpointError, match=r"shipped:toy: .* has digest .* was shipped; install the package anew"):
        load_checkpoint("shipped:toy")


def test_a_checkpoint_from_scratch_is_of_one_world():
    policy = toy.policy()
    require_world(policy, "mine", "alfworld")  # it is not recorded, so nobody knows
    of_toy = type(policy)(policy.model, policy.tokenizer, policy.renderer, policy.digest, "toy")
    require_world(of_toy, "mine", "toy")
    with pytest.raises(CheckpointError, match="mine: trained from scratch in the world toy, it cannot play alfworld"):
        require_world(of_toy, "mine", "alfworld")


@pytest.mark.parametrize(
    ("trained", "played", "allowed"),
    [
        ("alfworld", "alfworld-remembering", True),
        ("alfworld-remembering", "alfworld", True),
        ("alfworld", "alfworld-textworld", True),
        ("all_worlds", "alfworld", True),
        ("alfworld", "tests.model.test_shipped:HOMES", True),
        ("homes", "tests.model.test_shipped:HOMES", True),
        ("textcraft", "tests.model.test_shipped:HOMES", False),
        ("alfworld", "all_worlds", False),
        ("alfworld-remembering", "textcraft", False),
    ],
)
def test_worlds_with_the_same_texts_share_their_checkpoints(trained, played, allowed):
    policy = toy.policy()
    of_it = type(policy)(policy.model, policy.tokenizer, policy.renderer, policy.digest, trained)
    if allowed:
        require_world(of_it, "mine", played)
        return
    with pytest.raises(CheckpointError, match=f"in the world {trained}, it cannot play {played}"):
        require_world(of_it, "mine", played)


def test_evaluate_takes_one_and_refuses_another_world(agents, toy_engine, capsys, monkeypatch):
    write_table(games_to_table([toy.game(n) for n in range(3)]), agents / "toys.parquet")
    write_table(games_to_table(generate_games(1, 1, "unseen")), agents / "homes.parquet")
    asked = ["evaluate", "--policy", "shipped:toy", "--prm", "shipped:toy", "--method", "best_of_n", "--max-turns", "3"]
    monkeypatch.setattr(sys, "argv", [*asked, "--games", str(agents), "--split", "toys", "--world", "toy"])
    standalone.main()
    assert "best_of_4 on 3 games of toys" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [*asked, "--games", str(agents), "--split", "homes"])
    with pytest.raises(
        SystemExit, match="evaluate: shipped:toy: trained from scratch in the world toy, it cannot play"
    ):
        standalone.main()
