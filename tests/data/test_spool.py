"""A server that is away, hangs, comes back, or refuses: nothing is lost and nothing waits."""

import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tasks.commands import flush_tracking
from tasks.frame import sender, spool
from tasks.frame.home import spool_folder
from tasks.frame.secrets import hide_credentials, redacted
from tasks.frame.sender import Away, flush
from tasks.frame.spool import Spool
from tasks.frame.tracking import Tracker, start_sender, tracking_uri
from tests.waiting import free_port, nobody_listens, until

ROOT = Path(__file__).parents[2]
PARAMS = {"seed": 1, "rollout": {"games": 3}}


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, value in (("TIMEOUT", "1"), ("MAX_RETRIES", "0")):
        monkeypatch.setenv(f"MLFLOW_HTTP_REQUEST_{name}", value)
    sender.prepare()


def two_stages() -> None:
    for number in (1, 2):
        tracker = Tracker("rollout", number, PARAMS)
        tracker.log_metrics({"rollout": {"success": number / 4}})
        tracker.tag("drift", "none")
        Path("plot.png").write_text(f"picture {number}")
        tracker.log_files(Path("plot.png"), folder="plots")
        tracker.end()


def taken(listening: socket.socket) -> int:
    """How many connections wait there."""
    listening.setblocking(False)
    count = 0
    with suppress(BlockingIOError):
        while True:
            listening.accept()[0].close()
            count += 1
    return count


def test_away_then_back_nothing_is_lost(tmp_path, monkeypatch, capsys):
    with socket.socket() as hangs:  # takes connections, and never answers
        hangs.bind(("127.0.0.1", 0))
        hangs.listen()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{hangs.getsockname()[1]}")
        two_stages()
        with pytest.raises(Away):
            flush()
        assert taken(hangs) == 1, "one request waits in vain"
    with (
        nobody_listens() as port,
        pytest.raises(SystemExit, match=r"MLflow is away .*: 2 files stay in .scratch/spool"),
    ):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
        flush_tracking.main(arguments=[])
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    before = int(time.time() * 1000)
    flush_tracking.main(arguments=[])
    assert capsys.readouterr().out == "sent what 2 stages had to say\n"
    client = MlflowClient()
    found = {run.info.run_name: run for run in client.search_runs(["1"])}
    for number in (1, 2):
        run = found[f"rollout@{number}"]
        success = run.data.metrics["rollout.success"]
        assert (run.info.status, success, run.data.tags["drift"], run.data.params["rollout.games"]) == (
            "FINISHED", number / 4, "none", "3",
        )  # fmt: skip
        (point,) = client.get_metric_history(run.info.run_id, "rollout.success")
        assert point.timestamp < before, "when it was said, not when it was sent"
        assert Path(client.download_artifacts(run.info.run_id, "plots/plot.png")).read_text() == f"picture {number}"
    assert [path.name for path in spool_folder().iterdir()] == ["lock"]


def test_a_sender_that_was_killed_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    two_stages()
    (first, _) = sorted(spool_folder().glob("*.jsonl"))
    lines = first.read_bytes().splitlines(keepends=True)
    first.write_bytes(b"".join(lines[:2]))
    sender.Delivery(first).send()
    first.write_bytes(b"".join(lines))
    (first.with_suffix(".at")).write_text(json.dumps({"bytes": 0}))  # it had no time to write down how far it was
    flush()
    found = [run for run in MlflowClient().search_runs(["1"]) if run.info.run_name == "rollout@1"]
    assert len(found) == 1
    assert len(MlflowClient().get_metric_history(found[0].info.run_id, "rollout.success")) == 1


def test_what_the_server_will_never_take_does_not_hold_up_the_rest(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    tracker = Tracker("rollout", 1, PARAMS)
    tracker.call("tasks.frame.champion:no_such_function")
    tracker.tag("after", "it")
    tracker.end()
    assert flush() == 1
    assert "will not take call: AttributeError" in capsys.readouterr().err
    assert (
        json.loads((spool_folder() / sender.REFUSED).read_text())["function"] == "tasks.frame.champion:no_such_function"
    )
    (run,) = [run for run in MlflowClient().search_runs(["1"]) if run.info.run_name == "rollout@1"]
    assert run.data.tags["after"] == "it"


def test_a_stage_that_was_killed_before_it_said_anything(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    folder = tmp_path / ".scratch/spool"
    folder.mkdir(parents=True)
    (folder / "1-prm@1-7.jsonl").touch()
    flush_tracking.main(arguments=[])
    assert not list(folder.iterdir())
    assert capsys.readouterr() == ("sent what 1 stages had to say\n", "")


@pytest.mark.parametrize("merged", [False, True])
def test_a_line_that_a_kill_cut_short_does_not_hold_up_the_rest(tmp_path, monkeypatch, capsys, merged):
    """``merged``: another line went on behind it."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    tracker = Tracker("sft", None, PARAMS)
    tracker.tag("before", "it")
    with tracker.spool.path.open("a") as stream:
        stream.write('{"say": "tags", "at": 1, "ta')
    if merged:
        tracker.tag("lost", "with it")
        tracker.tag("after", "it")
    tracker.spool.close()  # as a kill does
    Tracker("rollout", 1, PARAMS).end()
    assert flush() == 2
    assert f"{tracker.spool.path.name}: MLflow will not take a line that was cut short: JSON" in capsys.readouterr().err
    (refused,) = (spool_folder() / sender.REFUSED).read_text().splitlines()
    assert json.loads(refused)["line"].startswith('{"say": "tags", "at": 1, "ta')
    (run,) = [run for run in MlflowClient().search_runs(["1"]) if run.info.run_name == "sft"]
    assert (run.info.status, run.data.tags["before"]) == ("KILLED", "it")
    assert run.data.tags.get("after") == ("it" if merged else None)


def test_the_end_that_a_stage_has_said_counts_behind_a_line_that_was_cut_short(tmp_path):
    path = tmp_path / "1-sft-7.jsonl"
    path.write_text('{"say": "met\n{"say": "end", "status": "FINISHED"}\n{"say": "metrics"}\n')
    assert sender._has_ended(path)


def test_a_sender_that_comes_before_the_stage_has_locked_its_file(tmp_path, monkeypatch):
    """It finds a file that is nobody's and empty, and removes it."""
    lock = fcntl.flock

    def late(stream, how):
        monkeypatch.setattr(fcntl, "flock", lock)
        assert flush(tmp_path) == 1
        lock(stream, how)

    monkeypatch.setattr(fcntl, "flock", late)
    stage = Spool("sft", tmp_path)
    stage.say("tags", tags={})
    assert json.loads(stage.path.read_text())["say"] == "tags"
    assert flush(tmp_path) == 0, "the stage holds its file"


def test_lines_of_threads_do_not_mix_where_a_write_takes_a_part(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, line: write(file, line[:1000]))
    stage = Spool("sft", tmp_path)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: stage.say("tags", tags={"text": str(number) * 20_000}), range(8)))
    said = [json.loads(line)["tags"]["text"] for line in stage.path.read_text().splitlines()]
    assert sorted(said) == [str(number) * 20_000 for number in range(8)]


def test_a_full_disk_ends_no_stage(monkeypatch, capsys):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    tracker = Tracker("rollout", 1, PARAMS)
    monkeypatch.setattr(spool.shutil, "copy", full)
    Path("plot.png").touch()
    tracker.log_files(Path("plot.png"))
    tracker.log_metrics({"a": 1})
    tracker.end()
    assert "cannot be written (No space left on device): MLflow will not see the rest" in capsys.readouterr().err
    monkeypatch.setattr(Path, "mkdir", full)
    Spool("sft").say("tags", tags={})


def test_a_password_moves_out_of_the_address(monkeypatch):
    for name in ("USERNAME", "PASSWORD"):
        monkeypatch.setenv(f"MLFLOW_TRACKING_{name}", "")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://ann:p%40ss@mlflow.example:5000/base")
    hide_credentials()
    assert tracking_uri() == "https://mlflow.example:5000/base"
    assert (os.environ["MLFLOW_TRACKING_USERNAME"], os.environ["MLFLOW_TRACKING_PASSWORD"]) == ("ann", "p@ss")
    Tracker("rollout", 1, PARAMS | {"model": {"source": "s3://key:p%40ss@bucket/x"}}).end()
    written = "".join(path.read_text() for path in spool_folder().rglob("*") if path.is_file())
    assert "p@ss" not in written and "p%40ss" not in written and "s3://***@bucket/x" in written


def test_secrets_are_taken_out_of_text(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", 'quoted"secret')
    assert redacted(json.dumps({"a": 'quoted"secret'})) == '{"a": "***"}'
    assert redacted("git@github.com:a/b.git and http://host/@x") == "git@github.com:a/b.git and http://host/@x"


@pytest.mark.integration
def test_a_stage_ends_soon_though_the_server_hangs(monkeypatch, capfd):
    """And the password is in no process's arguments."""
    with socket.socket() as hangs:
        hangs.bind(("127.0.0.1", 0))
        hangs.listen()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://ann:hunter22@127.0.0.1:{hangs.getsockname()[1]}")
        monkeypatch.setattr("tasks.frame.tracking.start_sender", start_sender)
        tracker = Tracker("rollout", 1, PARAMS)
        arguments = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
        tracker.end()
    assert "hunter22" not in arguments
    assert "figures are kept in .scratch/spool and sent by the next stage" in capfd.readouterr().err
    assert len(list(spool_folder().glob("*.jsonl"))) == 1


@pytest.mark.slow
def test_a_server_over_http_takes_everything_and_hands_files_through(tmp_path, monkeypatch):
    port = free_port()
    store = [
        "--backend-store-uri",
        f"sqlite:///{tmp_path}/server.db",
        "--artifacts-destination",
        str(tmp_path / "kept"),
    ]
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1", *store]
    with (tmp_path / "server.log").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
        two_stages()

        def sent() -> int:
            try:
                return flush()
            except Away:
                return 0

        assert until(sent, 180, (tmp_path / "server.log").read_text, server, every=1) == 2
        client = MlflowClient(f"http://127.0.0.1:{port}")
        (run,) = [run for run in client.search_runs(["1"]) if run.info.run_name == "rollout@2"]
        assert run.info.artifact_uri.startswith("mlflow-artifacts:")
        assert Path(client.download_artifacts(run.info.run_id, "plots/plot.png")).read_text() == "picture 2"
        assert list((tmp_path / "kept").rglob("plot.png")) and not (tmp_path / "mlruns").exists()
    finally:
        server.terminate()
        server.wait()
