"""The champion: who competes with whom, who replaces whom, and the weights behind the name."""

import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from mlflow import MlflowClient

from agentprm_core.errors import DataError
from agentprm_core.policy.models import checkpoint_digest
from tasks.commands import champion as command
from tasks.commands import fetch
from tasks.frame import champion
from tasks.frame.champion import CHALLENGER, CHAMPION, CONSIDER, packed, roll_back, unpacked
from tasks.frame.sender import flush
from tasks.frame.tracking import Tracker, dvc_md5
from tests.data.test_compare import outcomes, rows

GAMES = 40
ARENA = f"{champion.PREFIX}alfworld-{GAMES}-0a1b2c3d"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture
def client(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    found = MlflowClient(store)
    for model in found.search_registered_models():
        found.delete_registered_model(model.name)
    return found


def tags(digest: str, won: int, md5: str = "0.dir", iteration: int = 1) -> dict[str, str]:
    return {
        "digest": digest, "dvc_md5": md5, "iteration": str(iteration), "success": f"{won / GAMES:.4f}",
        "games": str(GAMES), "split": "unseen", "decoding": "greedy", "wins": packed(n < won for n in range(GAMES)),
    }  # fmt: skip


def campaign(name: str, *policies: dict[str, str], arena: str = ARENA, monkeypatch) -> None:
    """As the stage compare ends it; the last policy is the best."""
    monkeypatch.setenv("AGENTPRM_CAMPAIGN", name)
    tracker = Tracker("compare", None, {"seed": 1})
    tracker.call(CONSIDER, name=arena, policies=policies, best=policies[-1]["digest"])
    tracker.end(campaign=True)
    flush()


def test_wins_are_packed_and_unpacked():
    for won in ([], [True], [False, True, True], [n % 3 == 0 for n in range(41)]):
        assert unpacked(packed(won), len(won)) == won


def test_only_a_proven_gain_takes_the_champions_place(client, monkeypatch):
    def holds(alias: str) -> str | None:
        number = client.get_registered_model(ARENA).aliases.get(alias)
        return number and client.get_model_version(ARENA, number).tags["digest"]

    campaign("one", tags("aa00", 10), tags("aa01", 20), monkeypatch=monkeypatch)
    assert (holds(CHAMPION), holds(CHALLENGER)) == ("aa01", None)
    campaign("two", tags("aa02", 25), monkeypatch=monkeypatch)  # gained 5, lost 0: p = 0.0625
    assert (holds(CHAMPION), holds(CHALLENGER)) == ("aa01", "aa02")
    campaign("three", tags("aa03", 26), monkeypatch=monkeypatch)  # gained 6, lost 0: p = 0.03125
    assert (holds(CHAMPION), holds(CHALLENGER)) == ("aa03", "aa02")
    campaign("four", tags("aa04", 5), monkeypatch=monkeypatch)
    assert holds(CHAMPION) == "aa03"
    assert roll_back(client, ARENA).endswith("version 4 does not compete any more")
    assert holds(CHAMPION) == "aa01"
    campaign("three", tags("aa03", 26), monkeypatch=monkeypatch)
    assert holds(CHAMPION) == "aa01", "what was rolled back does not come back by itself"
    with pytest.raises(DataError, match="nothing to go back to"):
        roll_back(client, ARENA)


def test_a_server_takes_what_is_registered(client, monkeypatch):
    """It refuses a source without an absolute path; a database that is written to without a server does not."""
    campaign("one", tags("aa00", 10), monkeypatch=monkeypatch)
    (version,) = client.search_model_versions(f"name='{ARENA}'")
    assert urlsplit(version.source).path == "/0.dir"


def test_a_campaign_on_other_games_cannot_touch_it(client, monkeypatch):
    campaign("one", tags("aa01", 20), monkeypatch=monkeypatch)
    smoke = ARENA.replace("-40-", "-24-")
    campaign("smoke", tags("bb01", 24), arena=smoke, monkeypatch=monkeypatch)
    assert client.get_model_version_by_alias(ARENA, CHAMPION).tags["digest"] == "aa01"
    assert client.get_model_version_by_alias(smoke, CHAMPION).tags["digest"] == "bb01"


def test_an_arena_is_its_world_games_and_way_of_playing():
    found = {(row["iteration"], row["decoding"]): row for row in rows("greedy", "sample")}
    import pyarrow as pa

    table = pa.concat_tables([outcomes(i, way) for i in (0, 1) for way in ("greedy", "sample")])
    name = champion.arena("alfworld", table, found[0, "greedy"])
    assert name.startswith("agentprm-policy-alfworld-12-")
    assert name == champion.arena("alfworld", table, found[1, "greedy"])
    assert (
        len(
            {
                name,
                champion.arena("alfworld", table, found[0, "sample"]),
                champion.arena("a", table, found[0, "greedy"]),
            }
        )
        == 3
    )
    assert "/" not in champion.arena("my/world:SPEC", table, found[0, "greedy"])


def test_the_commands_show_and_go_back(client, monkeypatch, capsys):
    command.main(arguments=["--show"])
    assert "no policy is registered yet" in capsys.readouterr().out
    campaign("one", tags("aa01", 20), monkeypatch=monkeypatch)
    campaign("two", tags("aa02", 25), monkeypatch=monkeypatch)
    command.main(arguments=["--show"])
    shown = capsys.readouterr().out
    assert "champion   version 1: 50.0% [35.2%, 64.8%] of 40 games, unseen greedy; iteration 1, campaign one" in shown
    assert "the challenger gained 5 games and lost 0, p = 0.0625" in shown
    with pytest.raises(SystemExit, match="no champion before version 1: nothing to go back to"):
        command.main(arguments=["--rollback"])
    with pytest.raises(SystemExit, match=f"elsewhere: no such arena; there are: {ARENA}"):
        command.main(arguments=["--rollback", "elsewhere"])


@pytest.fixture
def trained(client, checkpoints, tmp_path, monkeypatch) -> str:
    """A project whose DVC cache has a policy that is champion; its digest."""
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q", "--no-scm"], check=True)
    shutil.copytree(checkpoints / "policy", "policy")
    subprocess.run([sys.executable, "-m", "dvc", "add", "-q", "policy"], check=True)
    digest = checkpoint_digest(Path("policy"))
    campaign("one", tags(digest, 20, dvc_md5(Path("policy"))), monkeypatch=monkeypatch)
    return digest


@pytest.mark.integration
def test_a_policy_is_fetched_by_any_of_its_names_and_checked(trained, client, tmp_path, capsys):
    for number, what in enumerate(["champion", f"{ARENA}@champion", f"{ARENA}/1", trained[:8], "one"]):
        fetch.main(arguments=[what, "--to", f"brought/{number}"])
        assert checkpoint_digest(Path(f"brought/{number}")) == trained
    assert f"policy {trained} of iteration 1, success 50.0% of 40 games; the digest is right" in capsys.readouterr().out
    for what, said in {
        "champion": r"brought/0: is there already",
    }.items():
        with pytest.raises(SystemExit, match=said):
            fetch.main(arguments=[what, "--to", "brought/0"])
    for what, said in {
        "nobody": "nobody: MLflow knows no version, digest or campaign", f"{ARENA}/7": "has no version 7",
        "x@champion": "no such version; there are",
    }.items():  # fmt: skip
        with pytest.raises(SystemExit, match=said):
            fetch.main(arguments=[what, "--to", "brought/x"])
    client.set_model_version_tag(ARENA, "1", "digest", "0" * 16)
    with pytest.raises(SystemExit, match="not kept"):
        fetch.main(arguments=["champion", "--to", "brought/y"])
    assert not Path("brought/y").exists()


@pytest.mark.integration
def test_weights_come_from_the_remote_where_the_cache_lacks_them(trained, tmp_path):
    def dvc(*words: str) -> None:
        subprocess.run([sys.executable, "-m", "dvc", *words], check=True, capture_output=True)

    shutil.copytree(".dvc/cache", "kept")
    shutil.rmtree(".dvc/cache")
    with pytest.raises(SystemExit, match=r"neither in .* nor in any remote .*run dvc push"):
        fetch.main(arguments=["champion", "--to", "brought"])
    dvc("remote", "add", "--default", "here", str(tmp_path / "remote"))
    with pytest.raises(SystemExit, match=r"neither in .* nor in the remote here|the remote here gave nothing"):
        fetch.main(arguments=["champion", "--to", "brought"])
    shutil.copytree("kept", ".dvc/cache", dirs_exist_ok=True)
    dvc("push")
    shutil.rmtree(".dvc/cache")
    fetch.main(arguments=["champion", "--to", "brought"])
    assert checkpoint_digest(Path("brought")) == trained
    assert json.loads(Path("brought/agentprm.json").read_text())


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("http://127.0.0.1:9", r"Connection refused"),
        ("sqlite:///{here}/no-database", r"\(sqlite3.DatabaseError\) file is not a database"),
        ("sqlite:////dev/null/mlflow.db", r"File exists"),
    ],
)
def test_mlflow_that_is_away_is_one_line_within_seconds(uri, said, tmp_path, monkeypatch):
    (tmp_path / "no-database").write_text("words " * 1000)
    uri = uri.format(here=tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    line = rf"^MLflow at {uri} does not answer \({said}.*\): start it, or set MLFLOW_TRACKING_URI$"
    naps = naps_of_this_thread(monkeypatch)
    with pytest.raises(SystemExit, match=line):
        command.main(arguments=["--show"])
    with pytest.raises(SystemExit, match=line):
        fetch.main(arguments=["champion", "--to", str(tmp_path / "weights")])
    assert sum(naps) < 20, "between tries"
    assert not (tmp_path / "weights").exists()


def test_a_folder_where_no_campaign_ran_is_left_as_it_is(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    for ask in (lambda: command.main(arguments=["--show"]), lambda: fetch.main(arguments=["champion", "--to", "here"])):
        with pytest.raises(SystemExit, match=r"mlflow\.db: not there: run it in the folder of a campaign that ran"):
            ask()
    assert not list(tmp_path.iterdir())


def naps_of_this_thread(monkeypatch) -> list[float]:
    """The seconds that it asks to sleep for, which it does not."""
    naps, sleep, this = [], time.sleep, threading.current_thread()
    patched = lambda seconds: naps.append(seconds) if threading.current_thread() is this else sleep(seconds)  # noqa: E731
    monkeypatch.setattr(time, "sleep", patched)
    return naps
