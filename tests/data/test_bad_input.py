"""What bad data gets: a line that says what, where and what to do, exit code 1, and no out."""

import dataclasses
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from agentprm_core import suites
from agentprm_core.datasets import atomic_write, episodes_to_table, games_to_table, write_table
from agentprm_core.errors import out_of_memory
from agentprm_core.methods import trust
from agentprm_core.policy.models import load_checkpoint, new_model, save_checkpoint
from agentprm_core.policy.tokenizer import train_tokenizer
from agentprm_core.prm.model import new_prm
from agentprm_core.types import Episode, Turn
from agentprm_core.worlds.alfworld.games import write_game
from agentprm_core.worlds.alfworld.households import generate_games
from tasks import collect, demos, games, label
from tasks.commands import search_curves, standalone
from tasks.frame import layout
from tasks.frame.memory import FILLED_BY
from tasks.frame.order import all_stages
from tasks.frame.params import load_params
from tasks.frame.stage import run_stage, write_json
from tests.data.project import ROOT, raw_params, write_project


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture
def project(database, tmp_path, monkeypatch):
    """A folder with the smoke profile's parameters; ``project(games={...})`` changes some."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", database)
    monkeypatch.chdir(tmp_path)

    def write(*profiles, **overrides) -> None:
        write_project(tmp_path, raw_params("smoke", *profiles, **overrides))

    write()
    return write


@pytest.fixture(scope="module")
def household():
    (game,) = generate_games(1, 1, "train")
    return game


def refused(task: str, module, *iteration: str, **options) -> str:
    """The message the stage ends with."""
    with pytest.raises(SystemExit) as stopped:
        run_stage(task, module.work, iterated=bool(iteration), arguments=iteration, **options)
    assert isinstance(stopped.value.code, str)  # sys.exit of a text prints it and exits with 1
    return stopped.value.code


def published(project, root: Path) -> None:
    games = {"published": str(root), "train": 1, "seen": 0, "unseen": 1}
    project(games=games, demos={"games": 1}, rollout={"games": 1}, method={"games": 1})


def test_more_demonstrations_than_games_that_are_demonstrated(project):
    few = {"published": None, "train": 4, "seen": 0, "unseen": 1}
    project(
        env={"world": "alfworld-training"}, games=few, demos={"games": 3}, rollout={"games": 1}, method={"games": 1}
    )
    run_stage("games", games.work, iterated=False, arguments=(), gated=True)
    says = "demos.games: 3 is not allowed: at most 2, the training games that alfworld-training has demonstrated"
    assert says in refused("demos", demos, gated=True)


def test_a_stage_under_a_launcher_of_several_processes(project, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SystemExit) as stopped:
        run_stage("games", games.work, iterated=False, arguments=())
    assert stopped.value.code == 2
    assert "WORLD_SIZE: 2 is not allowed: a stage is one process" in capsys.readouterr().err
    assert not layout.games("train").exists()


def test_an_empty_games_folder(project, tmp_path):
    published(project, tmp_path / "empty")
    said = refused("games", games)
    assert said.startswith("games: no split 'train' in")
    assert "run alfworld-download" in said
    assert not (tmp_path / "data").exists()


def test_a_truncated_game(project, tmp_path, household):
    published(project, tmp_path / "tree")
    path = write_game(household, tmp_path / "tree")
    path.write_text(path.read_text()[:2000])
    said = refused("games", games)
    assert str(path) in said
    assert "not a whole JSON file" in said
    assert "fetch it again with alfworld-download" in said
    assert not (tmp_path / "data").exists()


def test_a_game_in_the_old_dialect(project, tmp_path, household):
    published(project, tmp_path / "tree")
    path = write_game(household, tmp_path / "tree")
    path.write_text(path.read_text().replace("move {o} to {r}", "put {o} in/on {r}"))
    said = refused("games", games)
    assert "a game in the old dialect ('put {o} in/on {r}'" in said
    assert not (tmp_path / "data").exists()


def test_fewer_published_games_than_asked_for(project, tmp_path, household):
    write_game(household, tmp_path / "tree")
    few = {"published": "tree", "train": 2, "seen": 0, "unseen": 1}
    project(games=few, demos={"games": 1}, rollout={"games": 1}, method={"games": 1})
    assert refused("games", games) == (
        "games: params.yaml: games.train: 2 is not allowed: at most 1. tree has games: 1 of train; set games.train, "
        "games.seen and games.unseen to no more, then demos.games, rollout.games and method.games to at "
        "most games.train"
    )


def checkpoint(folder: Path, words: str = "you see a mug 1", kind: str = "policy") -> str:
    tokenizer = train_tokenizer([words], 64)
    model = new_model(tokenizer, width=8, layers=1, heads=2, kv_heads=1, context=64, seed=1)
    with atomic_write(folder) as aside:
        return save_checkpoint(model if kind == "policy" else new_prm(model), tokenizer, aside, kind)


def test_a_checkpoint_with_another_tokenizer(project, tmp_path, monkeypatch):
    checkpoint(tmp_path / "mine", "you see a mug 1")
    checkpoint(tmp_path / "other", "you see a pan 1")
    (tmp_path / "mine/tokenizer.json").write_text((tmp_path / "other/tokenizer.json").read_text())
    arguments = ["evaluate", "--policy", "mine", "--games", "tree", "--split", "valid_seen", "--json"]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit, match=r"^evaluate: mine: its tokenizer .* is not the one its weights were trained"):
        standalone.main()


ON_CPU = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate"
)
ON_GPU = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has 79.10 GiB")
"""torch's, of version 2.13."""


@pytest.mark.parametrize(
    ("task", "error", "said"),
    [
        (
            "sft",
            ON_GPU,
            "lower compute.pass_tokens (it is {compute[pass_tokens]}), and run the same again; CUDA out of",
        ),
        ("policy", RuntimeError(f"{ON_CPU} 8 bytes"), "lower compute.pass_tokens (it is {compute[pass_tokens]}), and"),
        ("prm", RuntimeError("CUDA error: out of memory"), "lower compute.pass_tokens (it is {compute[pass_tokens]})"),
        (
            "rollout",
            MemoryError(),
            "lower compute.cache_mb (it is {compute[cache_mb]}), then compute.slots (it is {compute[slots]}), and run "
            "the same again; MemoryError",
        ),
        ("demos", MemoryError(), "end other programs, or use a machine that has more, and run the same again"),
    ],
)
def test_too_little_memory_is_one_line_that_says_what_to_lower(project, task, error, said):
    """Of Python, of torch on a GPU and of torch on a CPU, whose error has no type of its own."""

    def work(stage) -> None:
        """Holds too much."""
        raise error

    line = refused(task, SimpleNamespace(work=work))
    expected = said.format(compute=raw_params("smoke")["compute"])
    assert line.startswith(f"{task}: not enough memory: {expected}") and "\n" not in line


def test_what_torch_and_numpy_say_of_too_little_memory_is_known():
    for ask in (torch.empty, np.empty):
        with pytest.raises((RuntimeError, MemoryError)) as raised:
            ask(10**15)
        assert out_of_memory(raised.value)
    assert not out_of_memory(RuntimeError("shapes do not match")) and not out_of_memory(ValueError("out of memory"))


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("std::bad_alloc"),
        ImportError("libarrow.so.2500: failed to map segment from shared object"),
        OSError("libtorch.so: cannot allocate memory in static TLS block"),
        OSError(12, "Cannot allocate memory"),
    ],
)
def test_a_library_that_is_loaded_with_too_little_memory_is_known(error):
    assert out_of_memory(error) and not out_of_memory(type(error)("no such file"))


def test_every_stage_but_the_first_two_has_a_key_to_lower(project):
    stages = {name.partition("@")[0] for name in all_stages(load_params())}
    assert {*FILLED_BY} == stages - {"games", "demos"}
    page = (ROOT / "docs/runbook.md").read_text().partition("## Out of memory")[2].partition("\n## ")[0]
    for task, keys in FILLED_BY.items():
        (line,) = [line for line in page.splitlines() if line.startswith("|") and task in line]
        assert all(f"`compute.{key}`" in line for key in keys)


def rollouts(policy_digest: str, won: int = 2) -> None:
    turns = tuple(Turn("you see a mug 1", f"go to mug {t}", ("look",), True, f"k{t}") for t in range(4))
    episodes = [Episode(f"g{g}", e, 1, turns, won=e < won) for g in range(8) for e in range(4)]
    table = episodes_to_table(episodes, iteration=1, method="policy", policy=policy_digest)
    write_table(table, layout.episodes(1))


def test_rollouts_of_another_policy(project):
    digest = checkpoint(layout.policy(0))
    rollouts("another")
    said = refused("label", label, "--iteration", "1", gated=True)
    assert said == (
        "label@1: data/rollouts/1/episodes.parquet: rollouts of another policy (another); "
        f"data/checkpoints/policy/0 is {digest}. Play them again: dvc repro rollout@1"
    )
    assert not layout.labels(1).exists()


def test_a_gate_that_fails(project, monkeypatch):
    monkeypatch.setattr(suites, "MIN_STD", 0.9)
    rollouts(checkpoint(layout.policy(0)))
    said = refused("label", label, "--iteration", "1", gated=True)
    assert said.startswith("label@1: the gate failed, no out was written (1 of 10 expectations")
    assert "label spread: q is not the same everywhere [expect_column_mean_to_be_between]: 0." in said
    assert not layout.labels(1).exists()
    assert not layout.metrics("label-1").exists()
    assert not json.loads(Path(".scratch/gates/label@1.json").read_text())[-1]["success"]


FOLLOWING = pytest.mark.parametrize("method", ["online_dpo", "expert_iteration"])
"""The methods that follow a PRM."""


def following(method: str) -> list[str]:
    """The profile that it needs over the smoke one."""
    return [] if method == "expert_iteration" else [method]


@FOLLOWING
def test_a_prm_that_does_not_rank(project, method):
    project(*following(method), critic={"require": "ranking_or_error"})
    checkpoint(layout.policy(0))
    checkpoint(layout.prm(1), kind="prm")
    rollouts("any")
    ranking = {"accuracy": 0.5, "accuracy_low": 0.41, "accuracy_high": 0.6, "pairs": 90, "states": 30, "games": 25}
    write_json({"ranking": {**ranking, "better_than_chance": False}}, layout.metrics("prm-1"))
    said = refused("collect", collect, "--iteration", "1", gated=True)
    assert "ranks actions no better than chance: it orders 50% [41%, 60%] of 90 pairs at 30 states of 25" in said
    assert "critic.require: nothing" in said
    assert not layout.collected(1).exists()


def test_too_few_games_for_two_sides(project):
    project(rollout={"validation_share": 1e-9})
    rollouts(checkpoint(layout.policy(0)))
    assert refused("label", label, "--iteration", "1", gated=True) == (
        "label@1: rollout.validation_share: with 8 games, share 1e-09 and seed 1 every game is for training; "
        "play more games or choose another seed (rollout.games, seed)"
    )
    assert not layout.labels(1).exists()


def test_nothing_won_to_imitate(project):
    project("rft")
    rollouts(checkpoint(layout.policy(0)), won=0)
    checkpoint(layout.prm(1), kind="prm")
    assert refused("collect", collect, "--iteration", "1", gated=True) == (
        "collect@1: none of the 32 episodes was won: nothing to imitate; play more of them (rollout.games, "
        "rollout.episodes_per_game)"
    )
    assert not layout.collected(1).exists()


def failing(error: Exception) -> SimpleNamespace:
    def work(stage):
        """Fail."""
        raise error

    return SimpleNamespace(work=work)


def test_a_training_that_diverges(project):
    error = FloatingPointError("the loss is nan at step 7; lower learning_rate")
    assert refused("sft", failing(error)) == "sft: the loss is nan at step 7; lower learning_rate"


def test_a_fault_of_the_code_is_no_bad_input(project):
    with pytest.raises(ValueError, match="not enough values to unpack"):
        run_stage("sft", failing(ValueError("not enough values to unpack")).work, iterated=False, arguments=())


@pytest.mark.parametrize("program", [standalone, search_curves])
def test_games_without_a_column(tmp_path, monkeypatch, household, program):
    checkpoint(tmp_path / "policy")
    write_table(games_to_table([household]).drop_columns(["goal"]), tmp_path / "train.parquet")
    name = "search_curves" if program is search_curves else "evaluate"
    arguments = [name, "--policy", f"{tmp_path}/policy", "--games", f"{tmp_path}", "--split", "train"]
    if program is search_curves:
        arguments += ["--prm", f"mine={tmp_path}/prm", "--out", f"{tmp_path}/out"]
        with atomic_write(tmp_path / "prm") as aside:
            trained = load_checkpoint(tmp_path / "policy")
            save_checkpoint(new_prm(trained.model), trained.tokenizer, aside, kind="prm")
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit, match=rf"^{name}: .*train\.parquet: lacks the columns goal$"):
        program.main()


@FOLLOWING
@pytest.mark.parametrize("wins", [("untrained_likelihood",), ("untrained_likelihood", "prm")])
def test_a_prm_that_gains_nothing(project, household, monkeypatch, wins, method):
    """Refused where choosing by it loses games, and where it changes none."""
    monkeypatch.setattr(trust, "GAMES", 3)
    project(*following(method), critic={"require": "gain_or_error"}, rollout={"validation_share": 0.5})
    checkpoint(layout.policy(0))
    checkpoint(layout.prm(1), kind="prm")
    rollouts("any")
    write_json({"ranking": {"better_than_chance": True}}, layout.metrics("prm-1"))
    write_table(games_to_table([dataclasses.replace(household, id=f"g{n}") for n in range(8)]), layout.games("train"))

    def play_games(policy, prm, chosen, search, seed):
        return [Episode(game.id, 0, seed, (), won=search.way.by in wins) for game in chosen]

    monkeypatch.setattr(trust, "play_games", play_games)
    said = refused("collect", collect, "--iteration", "1", gated=True)
    lost, search = 3 if len(wins) == 1 else 0, "beam_1x2" if method == "expert_iteration" else "best_of_4"
    assert said.startswith(
        f"collect@1: data/checkpoints/prm/1 does not make its policy win more: of 3 held-out games {search} under it "
        f"won 0 that it lost under the policy's own likelihood, and lost {lost} that it won so ("
    )
    assert "needed is a gain at p < 0.05" in said
    assert "critic.require: ranking" in said
    assert not layout.collected(1).exists()
    assert not layout.metrics("collect-1").exists()
