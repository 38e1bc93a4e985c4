"""Episodes as a log of Inspect: what it says of each, and that Inspect reads it, where Inspect is installed."""

import json
import sys
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from agentprm_core.datasets import episodes_to_table, games_to_table, write_table
from agentprm_core.types import LABELS, Episode, Game, Turn
from tasks.commands import inspect_log

GAME = Game("g/1", "babyai", "train", "goto", "go to the red ball", "(payload)")
TURNS = (
    Turn("You see a wall.", "turn left", ("turn left", "go"), True, "a", "What the task names is not here yet."),
    Turn("You see a ball.", "dance", ("turn left", "go"), False, "b"),
)
EPISODES = [Episode("g/1", 0, 5, TURNS, True), Episode("g/1", 1, 6, TURNS[:1], False, reward=0.25)]
WHEN = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def log():
    labels = {("g/1", 0, 1): {"label": 0.75, "visits": 3}}
    return inspect_log.log_of(EPISODES, {"g/1": GAME}, labels, name="rollouts 1", policy="abc", when=WHEN)


@pytest.fixture
def campaign(tmp_path, monkeypatch):
    """A folder with rollouts, labels and games of one iteration."""
    monkeypatch.chdir(tmp_path)
    table = episodes_to_table(EPISODES, iteration=1, method="m", policy="abc")
    write_table(table, tmp_path / "data/rollouts/1/episodes.parquet")
    rows = {"game_id": ["g/1"], "episode": [0], "turn": [1], "q": [0.75], "visits": [3], "variance": [0.1],
            "split": ["train"]}  # fmt: skip
    write_table(pa.table(rows, schema=LABELS), tmp_path / "data/labels/1/labels.parquet")
    write_table(games_to_table([GAME]), tmp_path / "data/games/train.parquet")
    return tmp_path


def test_an_episode_is_a_sample_with_its_scores_and_messages(log):
    first, second = log["samples"]
    assert [m["role"] for m in first["messages"]] == ["user", "assistant"] * 2
    assert first["messages"][0]["content"] == "You see a wall.\n\nAdmissible commands:\nturn left\ngo"
    assert first["messages"][1]["content"] == "REASON:\nWhat the task names is not here yet.\nACTION:\nturn left"
    assert first["messages"][3]["content"] == "dance", "a command without a reason stands alone"
    assert first["messages"][3]["metadata"]["valid"] is False
    assert [first["messages"][n]["metadata"].get("label") for n in (1, 3)] == [None, 0.75]
    assert (first["input"], first["metadata"]["kind"]) == ("go to the red ball", "goto")
    assert [second["scores"][name]["value"] for name in ("won", "reward")] == [0.0, 0.25]
    assert first["id"] != second["id"]


def test_means_are_over_all_episodes(log):
    means = {score["name"]: score["metrics"]["mean"]["value"] for score in log["results"]["scores"]}
    assert means == {"won": 0.5, "reward": 0.625}
    assert log["eval"]["dataset"]["sample_ids"] == ["g/1, 0", "g/1, 1"]


def said(monkeypatch, capsys, *arguments) -> str:
    monkeypatch.setattr(sys, "argv", ["inspect-log", *map(str, arguments)])
    inspect_log.main("agentprm inspect-log")
    return capsys.readouterr().out


def refused(monkeypatch, capsys, *arguments) -> str:
    with pytest.raises(SystemExit) as end:
        said(monkeypatch, capsys, *arguments)
    return str(end.value.code)


def test_rollouts_of_a_campaign_with_labels(campaign, monkeypatch, capsys):
    words = ("--episodes", "data/rollouts/1", "--labels", "data/labels/1", "--out", "logs/one.json")
    assert "logs/one.json: 2 episodes" in said(monkeypatch, capsys, *words)
    log = json.loads((campaign / "logs/one.json").read_text())
    assert log["eval"]["task"] == "rollouts 1" and log["eval"]["model"] == "agentprm/abc"
    assert log["samples"][0]["messages"][3]["metadata"]["visits"] == 3
    assert log["samples"][0]["metadata"]["goal"] == GAME.goal
    said(monkeypatch, capsys, *words, "--most", 1)
    assert len(json.loads((campaign / "logs/one.json").read_text())["samples"]) == 1


def test_bad_input_is_one_line(campaign, monkeypatch, capsys):
    line = refused(monkeypatch, capsys, "--episodes", "data/rollouts/1", "--out", "log.txt")
    assert line.endswith("--out: log.txt is not allowed: a name that ends in .json or .eval")
    line = refused(monkeypatch, capsys, "--episodes", "data/rollouts/2", "--out", "log.json")
    assert "data/rollouts/2: no such table; give a table, or a folder with episodes.parquet" in line
    line = refused(monkeypatch, capsys, "--episodes", "data/labels/1/labels.parquet", "--out", "log.json")
    assert "lacks the columns action" in line
    (campaign / "broken.parquet").write_text("no table")
    line = refused(monkeypatch, capsys, "--episodes", "broken.parquet", "--out", "log.json")
    assert "broken.parquet: cannot be read as a table" in line and "\n" not in line


def test_without_inspect_the_smaller_format_is_refused(campaign, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    line = refused(monkeypatch, capsys, "--episodes", "data/rollouts/1", "--out", "log.eval")
    assert "log.eval is not allowed: .json, since inspect_ai" in line and not (campaign / "log.eval").exists()


@pytest.mark.parametrize("name", ["log.json", "log.eval"])
def test_inspect_reads_it_back(log, tmp_path, name):
    reading = pytest.importorskip("inspect_ai.log", reason="inspect_ai is not installed: it is no dependency")
    inspect_log.write_log(log, tmp_path / name)
    read = reading.read_eval_log(str(tmp_path / name))
    assert [sample.id for sample in read.samples] == ["g/1, 0", "g/1, 1"]
    first = read.samples[0]
    assert [message.text for message in first.messages] == [m["content"] for m in log["samples"][0]["messages"]]
    assert first.scores["won"].value == 1.0 and first.messages[3].metadata["label"] == 0.75
    assert read.results.scores[0].metrics["mean"].value == 0.5
