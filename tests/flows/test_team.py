"""A team's servers with passwords, and a campaign on two hosts both of which disappear: the bytes of one checkout."""

from __future__ import annotations

import base64
import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from mlflow import MlflowClient

from flows.provision import CAMPAIGN_POOL
from flows.snapshot import git
from tests.flows import test_pipeline_smoke as smoke
from tests.flows.conftest import _DVC_YAML, _GROW
from tests.flows.hosts import Host, Prefect, ProcessList, hub, locked, md5s
from tests.flows.team import ROOT, Team, clean
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * 3600), pytest.mark.xdist_group("team")]

ENDED = ("Completed", "Failed", "Crashed")
TOLD = """
from tasks.frame.tracking import Tracker
name, _, number = stage.partition("@")
tracker = Tracker(name, int(number) if number else None, {"seed": 1})
tracker.log_metrics({name: {"lines": len(text)}})
tracker.end()
"""
"""What a stage of the toy tells MLflow."""


@pytest.fixture
def ended() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def toy(naps: str, seconds: int = 600, iterations: int = 2, seed: str = "seed") -> Callable[[Path], None]:
    """The project of stages that grow, which tell MLflow what they came to. ``naps``: who sleeps after a portion."""

    def write(tree: Path) -> None:
        graph = yaml.safe_load(_DVC_YAML)
        if iterations == 1:
            del graph["vars"][0]["iterations"]["2"], graph["stages"]["compare"]["deps"][1]
        (tree / "dvc.yaml").write_text(yaml.safe_dump(graph, sort_keys=False))
        (tree / "grow.py").write_text(_GROW.replace("sleep(600)", f"sleep({seconds})") + TOLD)
        (tree / "seed.txt").write_text(f"{seed}\n")  # what was run before comes back from the store
        (tree / "naps").write_text(naps)
        (tree / "faults").write_text("")
        (tree / "params.yaml").write_text("compute: {device: cpu}\n")

    return write


def real(tree: Path) -> None:
    """The pipeline with one iteration, at the smallest sizes."""
    (tree / "dvc.yaml").write_bytes((ROOT / "dvc.yaml").read_bytes())
    (tree / "params.yaml").write_text(yaml.safe_dump(smoke.tiny_params(), sort_keys=False))


@dataclass
class Campaign:
    """One on two hosts, and what was seen of it."""

    name: str
    team: Team
    hub: Path
    hosts: list[Host]
    prefect: Prefect
    processes: ProcessList
    kept: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Of each stage whose host disappeared: what was in the store then."""

    def taken_over(self, stage: str) -> int:
        """Files that the runs of the stage found to go on from."""
        lines = [line for run in self.prefect.runs(f"{stage} of {self.name}") for line in self.prefect.lines(run)]
        return sum(int(line.split()[0]) for line in lines if line.endswith("of a run before are here to go on from"))

    def said(self) -> str:
        logs = [host.log.read_text() for host in self.hosts]
        runs = self.prefect.ask("/flow_runs/filter", {})
        return "\n".join([*logs, *(f"{run['name']}: {run['state_name']} {run['state']['message']}" for run in runs)])

    def lose(self, stage: str) -> Host:
        """The host that runs ``stage`` disappears once it has finished a portion, and all that it has is in the
        store."""
        prefix = f"campaigns/{self.name}/{stage}/"

        def in_the_store() -> set[str]:
            return {name for name in self.team.store.names(prefix) if not name.endswith(".aside")}

        def finished(host: Host) -> set[str]:
            scratch = host.worktree(self.name, stage) / ".scratch" / stage
            names = [path.relative_to(scratch) for path in scratch.rglob("*") if path.is_file()]
            return {prefix + name.as_posix() for name in names if not any(part[0] == "." for part in name.parts)}

        def lost() -> Host | None:
            assert self.prefect.states(self.name)[-1] not in ENDED, self.said()[-4000:]
            for host in (host for host in self.hosts if host.lives and finished(host)):
                host.pause()  # between a portion that is finished and its copy, which take a second, it goes on
                if in_the_store() == finished(host):
                    host.vanish()
                    return host
                host.resume()

        host = until(lost, 1800, self.said, every=0.5)
        self.kept[stage] = {name: self.team.store.objects(name)[name] for name in in_the_store()}
        return host


def on_two_hosts(team: Team, hub: Path, name: str, stages: tuple[str, str], ended: ExitStack) -> Campaign:
    """Run the campaign; each host disappears in the middle of one of ``stages``."""
    folder = hub.parent
    hosts = [Host(team, hub, folder / "campaigns", CAMPAIGN_POOL), *(Host(team, hub, folder / n) for n in "ab")]
    for host in hosts:
        ended.callback(host.vanish)
    campaign = Campaign(name, team, hub, hosts[1:], Prefect(team), ProcessList())
    with campaign.processes.watching():
        until(lambda: (hosts[0].folder / ".dvc/config.local").exists(), 120, hosts[0].log.read_text)
        start = ("prefect", "deployment", "run", "campaign/campaign-on-workers", "--flow-run-name", name)
        asked = hosts[0].run(*start, "--param", f"name={name}")
        assert asked.returncode == 0, asked.stdout + asked.stderr
        first, second = (campaign.lose(stage) for stage in stages)
        first.start()  # what the second had, it has from the store
        until(lambda: campaign.prefect.states(f"{stages[1]} of {name}")[-1] == "Completed", 1200, campaign.said)
        second.start()
        until(lambda: campaign.prefect.states(name)[-1] in ENDED, 2400, campaign.said)
    assert campaign.prefect.states(name) == ["Completed"], campaign.said()
    for stage in stages:
        assert campaign.prefect.states(f"{stage} of {name}") == ["Crashed", "Completed"]
        assert campaign.taken_over(stage) == len(campaign.kept[stage]) > 0, "what was finished is not done again"
    assert not team.store.names(f"campaigns/{name}"), "nothing is left to go on from"
    return campaign


def the_same_as_alone(campaign: Campaign, without: tuple[str, ...] = ()) -> None:
    """``dvc.lock`` and the store have what ``dvc repro`` makes in one checkout."""
    alone = campaign.hub.parent / "alone"
    subprocess.run(["git", "clone", "-q", str(campaign.hub), str(alone)], check=True)
    (alone / "naps").write_text("")
    done = subprocess.run([sys.executable, "-m", "dvc", "repro", "-q"], cwd=alone, capture_output=True, text=True,
                          env=clean() | {"PYTHONPATH": str(alone), "OMP_NUM_THREADS": "1"})  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    there, here = locked(campaign.hub, campaign.name), yaml.safe_load((alone / "dvc.lock").read_text())["stages"]
    assert there.keys() == here.keys()
    assert md5s(there, without) == md5s(here, without)
    for md5 in set(md5s(there, without).values()):
        stored = campaign.team.store.client().get_object(Bucket="dvc", Key=f"files/md5/{md5[:2]}/{md5[2:]}")
        assert stored["Body"].read() == (alone / ".dvc/cache/files/md5" / md5[:2] / md5[2:]).read_bytes()


def one_in_mlflow(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> dict:
    """{stage: its finished run}: all of one campaign below one run, and those of the hosts that disappeared KILLED."""
    for host in campaign.hosts:
        host.vanish()
        flushed = host.run("tasks.commands.flush_tracking")
        assert flushed.returncode == 0, flushed.stderr
        refused = host.folder / ".scratch/spool/refused.jsonl"
        assert not refused.exists(), refused.read_text()
    for name, value in campaign.team.environment().items():
        if name.startswith("MLFLOW_"):
            monkeypatch.setenv(name, value)
    client = MlflowClient(campaign.team.url("mlflow"))
    (experiment,) = client.search_experiments(filter_string="name = 'agentprm'")
    found = client.search_runs([experiment.experiment_id], f"tags.campaign = '{campaign.name}'", max_results=1000)
    (top,) = [run for run in found if run.data.tags["stage"] == "campaign"]
    above = {run.info.run_id: run.data.tags.get("mlflow.parentRunId") for run in found}
    for run in found:
        assert run is top or top.info.run_id in (above[run.info.run_id], above[above[run.info.run_id]])
    stages = {}
    for run in found:
        tags = run.data.tags
        if tags["stage"] not in ("campaign", "iteration"):
            name = tags["stage"] + (f"@{tags['iteration']}" if "iteration" in tags else "")
            stages.setdefault(name, []).append(run)
    for name, runs in stages.items():
        ends = sorted(run.info.status for run in runs)
        assert ends.count("FINISHED") == 1 and set(ends) <= {"FINISHED", "KILLED"}, (name, ends)
    return {name: next(run for run in runs if run.info.status == "FINISHED") for name, runs in stages.items()}


def no_password_is_seen(campaign: Campaign) -> None:
    """In files of hosts and servers, the Git repository, the store, the databases, and arguments of processes."""
    team, folder = campaign.team, campaign.hub.parent
    secrets = [secret.encode() for secret in team.secrets()]
    secrets += [base64.b64encode(f"{team.user}:".encode() + secret) for secret in secrets]
    places = {f"arguments {line[:40]}": line.encode() for line in campaign.processes.seen}
    for file in (path for root in (folder, team.folder) for path in root.rglob("*") if path.is_file()):
        places[str(file)] = file.read_bytes()
    places["log of Postgres"] = (team.postgres.folder / "log").read_bytes()
    places["Git"] = git(campaign.hub, "log", "--all", "--patch").encode()
    for bucket in ("dvc", "mlflow"):
        places |= {f"{bucket}: {name}": content for name, content in team.store.objects(bucket=bucket).items()}
    for name in ("prefect", "mlflow", "mlflow_auth"):
        places[f"database {name}"] = team.postgres.run("pg_dump", name).encode()
    assert {place for place, said in places.items() if any(secret in said for secret in secrets)} == set()
    looked = [place for place, said in places.items() if team.user.encode() in said]
    assert "database mlflow_auth" in looked, "the user's name is there, and so would the password be"
    assert any("worker start" in line for line in campaign.processes.seen)
    assert any("gates/" in place for place in places if place.startswith("mlflow: ")) or campaign.name == "toy"


def test_toy_stages_on_two_hosts(team: Team, tmp_path: Path, ended: ExitStack, monkeypatch) -> None:
    bare = hub(tmp_path, toy(naps="grow@1 grow@2"))
    campaign = on_two_hosts(team, bare, "toy", ("grow@1", "grow@2"), ended)
    the_same_as_alone(campaign)
    assert one_in_mlflow(campaign, monkeypatch).keys() == locked(bare, "toy").keys()
    no_password_is_seen(campaign)


def test_the_pipeline_on_two_hosts(team: Team, tmp_path: Path, ended: ExitStack, monkeypatch) -> None:
    bare = hub(tmp_path, real)
    campaign = on_two_hosts(team, bare, "real", ("rollout@1", "evaluate@0"), ended)
    the_same_as_alone(campaign, without=smoke.STATES_SECONDS)
    runs = one_in_mlflow(campaign, monkeypatch)
    assert runs.keys() == locked(bare, "real").keys()
    finished = sum(episodes(content) for content in campaign.kept["rollout@1"].values())
    said = runs["rollout@1"].data.metrics
    (arena,) = MlflowClient(team.url("mlflow")).search_registered_models()
    assert arena.aliases.keys() == {"champion"}
    assert said["live.episodes"] == said["rollout.episodes_played"] - finished, "no finished episode is played again"
    no_password_is_seen(campaign)


def episodes(portion: bytes) -> int:
    """In a table of EPISODES or of branches."""
    names = ("game_id", "episode", "turn", "action", "continuation")
    table = pq.read_table(io.BytesIO(portion))
    rows = table.select([name for name in names if name in table.column_names]).to_pylist()
    branch = "continuation" in table.column_names
    return len({tuple(row.values()) if branch else (row["game_id"], row["episode"]) for row in rows})
