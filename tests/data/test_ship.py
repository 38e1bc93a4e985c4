"""An agent is made of a finished campaign with its figures; the agents that are shipped are what their cards say."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from agentprm_core.datasets import games_from_table, games_to_table, read_table, write_table
from agentprm_core.evaluate import outcomes_table, wilson
from agentprm_core.policy import shipped
from agentprm_core.policy.models import load_checkpoint
from agentprm_core.search.decoding_config import decoding
from agentprm_core.search.playing import PlaySettings, Search, play_games
from agentprm_core.types import GAMES
from agentprm_core.worlds import WorldSpec, world_spec
from tasks.commands import ship
from tasks.frame import layout

ROOT = Path(__file__).parents[2]
SETTINGS = {"context": 1024, "max_action_tokens": 16, "constrained": True, "slots": 64}


def greedy(spec: WorldSpec, max_turns: int | None = None) -> Search:
    settings = PlaySettings(spec.name, max_turns or spec.max_turns, **SETTINGS, cache_mb=1024)
    return Search(decoding("greedy"), settings, 1.0)


@pytest.fixture
def campaign(checkpoints, tmp_path):
    """A checkout with what a campaign of one iteration leaves."""
    root = tmp_path / "campaign"
    shutil.copytree(checkpoints / "policy", root / layout.policy(1))
    shutil.copytree(checkpoints / "prm", root / layout.prm(1))
    text = re.sub(r"max_turns: 30", "max_turns: 5", (ROOT / "params.yaml").read_text())
    (root / "params.yaml").write_text(text)
    games = games_from_table(read_table(checkpoints / "unseen.parquet", GAMES))
    for split, of in (("seen", games[:1]), ("unseen", games[1:])):
        write_table(games_to_table(of), root / layout.games(split))
    policy = load_checkpoint(root / layout.policy(1))
    short = greedy(world_spec("alfworld"), max_turns=5)
    told = {"iteration": 1, "method": "x", "split": "seen", "decoding": "greedy", "constrained": True, "seed": 1}
    episodes = play_games(policy, None, games, short, 1)
    write_table(outcomes_table(episodes, games, **told, policy=policy.digest), root / layout.outcomes(1))
    return root


def shipping(monkeypatch, root, *more):
    asked = ["ship", "--campaign", str(root), "--policy", "1", "--prm", "1", "--name", "mine", *more]
    monkeypatch.setattr(shipped, "FOLDER", root / "shipped")
    monkeypatch.setattr(sys, "argv", asked)
    ship.main()


def test_an_agent_is_made_of_a_campaign(campaign, monkeypatch, capsys):
    shipping(monkeypatch, campaign, "--ways", "greedy")
    assert "shipped:mine lies in" in capsys.readouterr().out
    card = shipped.shipped_card("mine")
    (row,) = card["figures"]
    assert (row["way"], row["games"], row["cast"]["games"]) == ("greedy", 2, 2)
    assert {split: own["games"] for split, own in row["by_split"].items()} == {"seen": 1, "unseen": 1}
    told = (shipped.FOLDER / "mine" / "MODEL_CARD.md").read_text()
    assert "| `seen` | `unseen` |" in told and "on generated games of `alfworld-training`." in told
    policy, prm = load_checkpoint("shipped:mine"), load_checkpoint("shipped:mine", kind="prm")
    assert policy.world == prm.world == "alfworld" and str(policy.model.dtype) == "torch.float32"
    assert card["checkpoints"]["policy"]["made_of"] == load_checkpoint(campaign / layout.policy(1)).digest


def test_figures_of_other_weights_are_refused(campaign, monkeypatch):
    config = campaign / layout.policy(1) / "config.json"
    config.write_text(config.read_text() + "\n")
    with pytest.raises(SystemExit, match=r"ship: .*outcomes.parquet: its outcomes are not those of the policy"):
        shipping(monkeypatch, campaign, "--ways", "greedy")
    assert not (campaign / "shipped" / "mine").exists()


def test_a_way_that_the_campaign_did_not_play_is_named(campaign, monkeypatch):
    with pytest.raises(SystemExit, match=r"ship: .* 2 games were not played by sample; --ways takes greedy"):
        shipping(monkeypatch, campaign, "--ways", "sample")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/tmp", "A b"])
def test_a_name_that_is_none_is_refused(name, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(
        sys, "argv", ["ship", "--campaign", f"{tmp_path}", "--policy", "1", "--prm", "1", "--name", name]
    )
    with pytest.raises(SystemExit, match="2"):
        ship.main()
    assert f"{name!r} is not a name: small letters, digits, - and _" in capsys.readouterr().err


@pytest.mark.parametrize("name", shipped.shipped_names())
def test_what_is_shipped_is_what_its_card_says(name):
    card = shipped.shipped_card(name)
    for kind, part in card["checkpoints"].items():
        checkpoint = load_checkpoint(f"shipped:{name}", kind=kind)
        assert (checkpoint.digest, checkpoint.world) == (part["digest"], card["world"])
        assert checkpoint.model.num_parameters() == part["parameters"]
        folder = shipped.FOLDER / name / kind
        assert sum(file.stat().st_size for file in folder.iterdir()) < 3e6
    assert (shipped.FOLDER / name / "MODEL_CARD.md").read_text() == ship.written(card)
    assert not [path for path in shipped.FOLDER.rglob("*") if path.suffix in (".bin", ".pt", ".pkl")]


@pytest.mark.parametrize("name", shipped.shipped_names())
def test_a_shipped_agent_wins_as_often_as_its_card_says(name):
    card = shipped.shipped_card(name)
    (stated,) = (row for row in card["figures"] if row["way"] == "greedy")
    spec = world_spec(card["world"])
    games = {split: spec.generate(20, 99, split) for split in ("seen", "unseen")}
    together = [game for own in games.values() for game in own]
    episodes = play_games(load_checkpoint(f"shipped:{name}"), None, together, greedy(spec), 1)
    won = {episode.game_id: episode.won for episode in episodes}
    assert len(won) == 40
    for split, row in (stated.get("by_split") or {"": stated}).items():
        own = [won[game.id] for game in games.get(split, together)]
        low, high = wilson(sum(own), len(own))
        assert low <= row["ci_high"] and row["ci_low"] <= high, split
