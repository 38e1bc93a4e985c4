"""Play in shards has the bytes of play in one process, whoever plays and whoever dies."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from agentprm_core import plays
from agentprm_core.datasets import write_table
from agentprm_core.errors import DataError
from agentprm_core.progress import Nobody, watched_by
from agentprm_core.rollout import starts
from agentprm_core.shards import cluster
from agentprm_core.shards.base import HERE, kept_portions
from agentprm_core.shards.cluster import Cluster
from agentprm_core.shards.processes import Processes
from agentprm_core.types import EPISODES
from tasks.frame.shards import shards
from tests.model import toy
from tests.model.portions import GAMES, NUMBERS, PLAYS, counted, everything, faulty, slow_rollouts
from tests.waiting import nobody_listens, until

ROOT = Path(__file__).parents[2]


def on(device="cpu", threads=1):
    return SimpleNamespace(device=device, threads=threads)


def begun(folder):
    """How often each portion was begun."""
    return Counter(path.name.partition("-")[0] for path in folder.iterdir())


def bytes_of(tables, folder):
    for name, table in tables.items():
        write_table(table, folder / f"{name}.parquet")
    return {name: (folder / f"{name}.parquet").read_bytes() for name in tables}


@pytest.fixture
def notes(tmp_path):
    (tmp_path / "notes").mkdir()
    return tmp_path / "notes"


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("here")
    return bytes_of(everything(HERE, folder), folder / "all")


def numbers(shards, folder, count, work=counted, shared=None):
    paths = [folder / f"{n}.parquet" for n in range(count)]
    shared = (folder.parent / "notes",) if shared is None else shared
    return kept_portions(shards, paths, NUMBERS, work, shared, [(n,) for n in range(count)])


def test_what_is_kept_is_not_played_again(tmp_path, notes):
    first = numbers(HERE, tmp_path / "kept", 3)
    (tmp_path / "kept/1.parquet").unlink()
    assert numbers(HERE, tmp_path / "kept", 3) == first
    assert begun(notes) == {"0": 1, "1": 2, "2": 1}
    assert [table["number"].to_pylist() for table in first] == [[0], [1], [2]]


def test_a_player_is_made_only_where_something_is_missing(tmp_path, notes):
    numbers(HERE, tmp_path / "kept", 2)
    assert len(numbers(HERE, tmp_path / "kept", 2, work=None)) == 2


def test_a_portion_is_kept_before_the_next_is_played(tmp_path, notes):
    with pytest.raises(DataError, match=r"portion 2 cannot be used"):
        numbers(HERE, tmp_path / "kept", 4, shared=(notes, 0.0, 0, 2))
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["0.parquet", "1.parquet"]


@pytest.mark.parametrize(
    "asked",
    ["locally", "local:0", "local:-1", "local:auto", "ray:0", "ray:host", "ray://host:1", "ray:a b:1", "ray:1:2:3"],
)
def test_a_place_that_is_none_is_one_line(asked, monkeypatch):
    monkeypatch.setenv("AGENTPRM_SHARDS", asked)
    allowed = "local, local:N, ray, ray:N, ray:auto or ray:HOST:PORT, with N at least 1"
    said = f"AGENTPRM_SHARDS in the environment: {asked!r} is not allowed: {allowed}"
    with pytest.raises(DataError, match=f"^{re.escape(said)}$"):
        shards(on())


def test_places_by_the_environment(monkeypatch):
    monkeypatch.delenv("AGENTPRM_SHARDS", raising=False)
    assert shards(on()) is HERE
    for asked, kind in {"": type(HERE), "local": type(HERE), "local:1": type(HERE), "local:2": Processes}.items():
        monkeypatch.setenv("AGENTPRM_SHARDS", asked)
        assert type(shards(on())) is kind
    for asked, address, actors in [("ray", None, None), ("ray:3", None, 3), ("ray:auto", "auto", None)]:
        monkeypatch.setenv("AGENTPRM_SHARDS", asked)
        found = shards(on())
        assert (found._address, found._actors) == (address, actors)
    monkeypatch.setenv("AGENTPRM_SHARDS", "ray:10.0.0.1:6379")
    assert shards(on())._address == "10.0.0.1:6379"
    monkeypatch.setenv("AGENTPRM_SHARDS", "local:2")
    assert [shards(on(device))._device for device in ("cpu", "cuda")] == ["cpu", "cuda"]


def test_nobody_at_the_address_is_one_line_within_seconds(notes, tmp_path, monkeypatch):
    asked, connect = [], socket.create_connection
    monkeypatch.setattr(socket, "create_connection", lambda to, seconds: asked.append(seconds) or connect(to, seconds))
    with nobody_listens() as port:
        said = f"^nobody answers at 127.0.0.1:{port}, where Ray was to be: .*refused$"
        with pytest.raises(DataError, match=said):
            numbers(Cluster(f"127.0.0.1:{port}", threads=1), tmp_path / "kept", 1)
    assert asked == [cluster.CONNECT_S] and cluster.CONNECT_S < 10


def test_without_the_package_is_one_line(monkeypatch, tmp_path, notes):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(DataError, match=r"^Ray is not installed here: pip install 'ray>=2.60,<3'$"):
        numbers(Cluster(None, threads=1), tmp_path / "kept", 1)


def test_the_digest_of_the_code_is_that_of_its_files(monkeypatch, tmp_path):
    assert cluster.code_digest() == cluster.code_digest()
    (tmp_path / "a.py").write_text("1")
    monkeypatch.setattr(cluster.agentprm_core, "__path__", [str(tmp_path)])
    first = cluster.code_digest()
    (tmp_path / "a.py").write_text("2")
    assert cluster.code_digest() != first


class Heard(Nobody):
    def __init__(self):
        self.played, self.ended = 0, 0

    def turns(self, count):
        self.played += count

    def episode(self, won, tokens):
        self.ended += 1


def ending(kind):
    """A fixture that makes ``kind`` and ends what it made with the test."""

    @pytest.fixture
    def making():
        made = []

        def make(*arguments, **how):
            made.append(kind(*arguments, **how))
            return made[-1]

        yield make
        for one in made:
            one.close()

    return making


of_processes, of_ray = ending(Processes), ending(Cluster)


@pytest.mark.slow
class TestProcesses:
    def test_the_bytes_are_those_of_one_process(self, expected, tmp_path, of_processes):
        found = everything(of_processes(2, threads=1), tmp_path)
        assert bytes_of(found, tmp_path / "all") == expected

    def test_threads_and_watchers_are_those_of_the_caller(self, tmp_path, notes, of_processes):
        there = of_processes(1, threads=2)
        tables = numbers(there, tmp_path / "kept", 3)
        assert [table["threads"].to_pylist() for table in tables] == [[2]] * 3
        heard = []
        for where in (HERE, there):
            with watched_by(one := Heard()):
                folder = tmp_path / f"watched-{len(heard)}"
                plays.rollouts(PLAYS, toy.policy(), GAMES, {}, iteration=1, scratch=folder, shards=where)
            heard.append((one.played, one.ended))
        assert heard[0] == heard[1] and heard[0][1] == 14

    def test_data_that_cannot_be_used_and_a_death_are_one_line(self, tmp_path, notes, of_processes):
        there = of_processes(1, threads=1)
        with pytest.raises(DataError, match=r"^portion 1 cannot be used$"):
            numbers(there, tmp_path / "kept", 3, shared=(notes, 0.0, 0, 1))
        with pytest.raises(DataError, match=r"^a process that plays portions ended without a word; finished"):
            numbers(there, tmp_path / "dead", 3, shared=(notes, 0.0, 99))

    def test_they_end_with_a_parent_that_is_killed(self, tmp_path, notes):
        code = (
            "from pathlib import Path; from tests.model.portions import *; "
            "from agentprm_core.shards.processes import Processes\n"
            f"if __name__ == '__main__': list(Processes(2, threads=1).play(counted, (Path({str(notes)!r}), 60.0), "
            "[(1,), (2,)]))"
        )
        (tmp_path / "parent.py").write_text(code)
        parent = subprocess.Popen([sys.executable, tmp_path / "parent.py"], env={**os.environ, "PYTHONPATH": str(ROOT)})
        until(lambda: len(begun(notes)) == 2, 300, process=parent)
        children = [int(pid) for pid in subprocess.check_output(["pgrep", "-P", str(parent.pid)]).split()]
        parent.kill()
        parent.wait()
        until(lambda: not any(alive(pid) for pid in children), 60)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def ours():
    """A Ray of our own, of one actor at first."""
    there = Cluster(None, threads=1, actors=3)
    there.join()
    there._actors = 1
    yield there
    there.close()


@pytest.fixture
def two_nodes(monkeypatch):
    """A Ray of a head without cores and two nodes of one core each."""
    from ray._private import services
    from ray.cluster_utils import Cluster as Nodes

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    for name in ("get_node_ip_address", "resolve_ip_for_localhost"):
        monkeypatch.setattr(services, name, lambda *_: "127.0.0.1")
    nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        nodes.workers = [nodes.add_node(num_cpus=1) for _ in range(2)]
        nodes.wait_for_nodes()
        yield nodes
    finally:
        nodes.shutdown()


def kill_machine(node):
    """All of its processes, as when the power goes: workers outlive their raylet for a while, and end their task."""
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    for process in [*raylet.children(recursive=True), raylet]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


@pytest.mark.slow
class TestOurRay:
    @pytest.mark.parametrize("actors", [1, 2, 3])
    def test_the_bytes_are_those_of_one_process(self, expected, tmp_path, ours, actors):
        ours._actors = actors
        assert bytes_of(everything(ours, tmp_path), tmp_path / "all") == expected
        assert ours._crew.count == actors

    def test_its_servers_listen_on_the_loopback_alone(self, ours):
        listening = subprocess.check_output(["ss", "-Hltnp"], text=True).splitlines()
        of_ray = [line.split()[3] for line in listening if re.search(r'"(ray|gcs_server|raylet)', line)]
        assert len(of_ray) > 3
        assert [address for address in of_ray if "127.0.0.1" not in address] == []

    def test_data_that_cannot_be_used_is_one_line_and_not_tried_again(self, tmp_path, notes, ours):
        with pytest.raises(DataError, match=r"^portion 2 cannot be used$"):
            numbers(ours, tmp_path / "kept", 4, shared=(notes, 0.0, 0, 2))
        assert begun(notes)["2"] == 1
        with pytest.raises(RuntimeError, match=r"a fault of the code"):
            numbers(ours, tmp_path / "faults", 2, work=faulty, shared=())
        assert len(numbers(ours, tmp_path / "kept", 4)) == 4, "it goes on with what is missing"

    def test_a_dead_actor_is_replaced_and_its_portion_played_again(self, tmp_path, notes, ours):
        tables = numbers(ours, tmp_path / "kept", 5, shared=(notes, 0.2, 2))
        assert [table["number"].to_pylist() for table in tables] == [[n] for n in range(5)]
        assert begun(notes) == {"0": 3, "1": 1, "2": 1, "3": 1, "4": 1}

    def test_a_portion_that_kills_every_actor_is_one_line(self, tmp_path, notes, ours, monkeypatch):
        monkeypatch.setattr(cluster, "TRIES", 2)
        with pytest.raises(DataError, match=r"^portion 0: 2 actors of Ray died over it; where memory ran out, lower"):
            numbers(ours, tmp_path / "hopeless", 1, shared=(notes, 0.0, 99))
        assert begun(notes) == {"0": 2}

    def test_other_code_on_a_machine_is_refused(self, tmp_path, notes, ours, monkeypatch):
        ours._actors = 4  # a new one is asked what it has
        ours._crew.free.clear()
        monkeypatch.setattr(cluster, "code_digest", lambda: "another")
        with pytest.raises(DataError, match=r"^\S+ has another agentprm, torch or Python than this machine: install"):
            numbers(ours, tmp_path / "kept", 1)


@pytest.mark.slow
class TestTwoMachines:
    """After the Ray of our own has ended: a process joins one at a time."""

    @pytest.fixture(autouse=True)
    def _one_at_a_time(self):
        import ray

        ray.shutdown()

    def test_no_machine_with_room_is_one_line(self, two_nodes, tmp_path, notes, of_ray, monkeypatch):
        monkeypatch.setattr(cluster, "NOBODY_S", 1.0)
        with pytest.raises(
            DataError, match=r"^no machine of the Ray at \S+ has 2 cores \(compute.threads\) for an actor$"
        ):
            numbers(of_ray(two_nodes.address, threads=2), tmp_path / "kept", 1)

    def test_a_machine_that_is_lost_loses_no_finished_portion(self, two_nodes, tmp_path, notes, of_ray):
        shared = (notes, PLAYS, toy.policy(), 1)
        begins = starts(GAMES, 2, PLAYS.seed)
        several = [(begins[at : at + 2],) for at in range(0, len(begins), 2)]

        def tables(where, folder, work, shared):
            paths = [folder / f"{number}.parquet" for number in range(len(several))]
            found = kept_portions(where, paths, EPISODES, work, shared, several)
            return bytes_of({str(number): table for number, table in enumerate(found)}, folder / "all")

        kept = tmp_path / "there"
        finished = []

        def kill():
            until(lambda: len(list(kept.glob("*.parquet"))) >= 2, 120)
            finished.extend(int(path.stem) for path in kept.glob("*.parquet"))
            kill_machine(two_nodes.workers[0])

        killer = threading.Thread(target=kill)
        killer.start()
        there = tables(of_ray(two_nodes.address, threads=1), kept, slow_rollouts, shared)
        killer.join()
        assert there == tables(HERE, tmp_path / "here", plays._player, shared[1:])
        count = begun(notes)
        assert len(finished) >= 2 and all(count[str(several[number][0][0].seed)] == 1 for number in finished)
        assert sorted(count.values()) in ([1] * 6 + [2], [1] * 5 + [2] * 2), "a lost portion was played again"

    def test_a_machine_that_joins_is_used(self, two_nodes, tmp_path, notes, of_ray):
        two_nodes.remove_node(two_nodes.workers.pop())

        there = of_ray(two_nodes.address, threads=1)
        there.join()
        playing = threading.Thread(target=numbers, args=(there, tmp_path / "kept", 60), kwargs={"shared": (notes, 0.7)})
        playing.start()
        until(lambda: (tmp_path / "kept/0.parquet").exists(), 300)
        two_nodes.add_node(num_cpus=1)  # here, since it asks for signals, which the main thread alone has
        playing.join()
        assert there._crew.count == 2
