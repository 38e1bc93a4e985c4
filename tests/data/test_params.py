"""params.yaml: what is wrong with it is one line that names the key, the value and what is allowed."""

import subprocess
import sys

import pytest

from tasks.frame.params import PARAMS, ParamsError, load_params, validate
from tasks.frame.profile import overridden
from tasks.frame.sections import Env
from tasks.frame.stage import run_stage
from tests.data.project import ROOT, raw_params, write_project

RAW = raw_params()


@pytest.fixture(autouse=True)
def _where_the_worlds_code_is(monkeypatch):
    monkeypatch.chdir(ROOT)


def nested(key: str, value: object) -> dict:
    for name in reversed(key.split(".")):
        value = {name: value}
    return value


def said_of(raw: object) -> str:
    with pytest.raises(ParamsError) as error:
        validate(raw, "params.yaml")
    assert "\n" not in str(error.value)
    return str(error.value)


def leaves(value: object) -> int:
    return sum(map(leaves, value.values())) if isinstance(value, dict) else 1


def test_the_default_parameters_are_valid():
    assert load_params(ROOT / PARAMS).as_dict().keys() == RAW.keys()


def test_the_code_of_ones_own_world_is_where_that_world_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "mine_alone.py").write_text("from tests.model.toy import TOY as SPEC")
    monkeypatch.syspath_prepend(tmp_path)
    for code in ("mine_alone.py", "."):
        assert Env("mine_alone:SPEC", code, 5).code == code
    line = "code: 'elsewhere' is not allowed: mine_alone.py, where mine_alone:SPEC is, or a folder that has it"
    with pytest.raises(ValueError, match=f"^{line}$"):
        Env("mine_alone:SPEC", "elsewhere", 5)


def test_there_are_few_keys():
    assert leaves(RAW) <= 70


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("rollout.temprature", 1, "rollout.temprature: 1 is not allowed: unknown key; did you mean temperature? allow"),
        ("rollout.branch.x", 1, "rollout.branch.x: 1 is not allowed: unknown key; allowed: train_states"),
        ("rollouts", {}, "rollouts: {} is not allowed: unknown key; did you mean rollout?"),
        ("rollout.temperature", -1, "rollout.temperature: -1 is not allowed: should be greater than 0"),
        ("critic.gamma", 1.5, "critic.gamma: 1.5 is not allowed: should be less than or equal to 1"),
        ("env.world", "quick", "env.world: 'quick' is not allowed: one of alfworld, alfworld-textworld"),
        (
            "env.code",
            "worlds",
            "env.code: 'worlds' is not allowed: agentprm_core/worlds/alfworld, where",
        ),
        ("sft.epochs", "many", "sft.epochs: 'many' is not allowed: should be a valid number"),
        ("rollout", 3, "rollout: 3 is not allowed: a section with the keys games, episodes_per_game"),
        ("model.heads", 3, "model.heads: 3 is not allowed: a divisor of width, 128"),
        ("model.heads", 0, "model.heads: 0 is not allowed: should be greater than or equal to 1"),
        ("model.heads", "four", "model.heads: 'four' is not allowed: a section with the keys count, previous_token"),
        ("model.heads", {"count": 4}, "model.heads.previous_token: missing; every key is needed"),
        (
            "model.heads",
            {"count": 4, "previous_token": 5},
            "model.heads.previous_token: 5 is not allowed: at most count, 4",
        ),
        ("demos.games", 10**6, "demos.games: 1000000 is not allowed: at most games.train, 22000"),
        (
            "demos.games",
            {"count": 10, "by": "plan"},
            "demos.games.by: 'plan' is not allowed: none: demos.games is a number, for a world of one expert",
        ),
        ("method.games", 10**6, "method.games: 1000000 is not allowed: at most games.train, 22000"),
        ("critic.name", "montecarlo", "critic.name: 'montecarlo' is not allowed: one of monte_carlo, relative"),
        ("method.name", "reinforce", "method.name: 'reinforce' is not allowed: one of expert_iteration, online_dpo"),
        ("critic.init_from", "first", "critic.init_from: 'first' is not allowed: should be 'prm', 'policy', 'sft' or"),
        (
            "critic.init_from",
            3,
            "critic.init_from: 3 is not allowed: prm, policy, sft, scratch, or a section with the keys weights, mixing",
        ),
        (
            "critic.init_from",
            {"weights": "scratch", "mixing": 0.5},
            "critic.init_from.mixing: 0.5 is not allowed: 1 with weights scratch: its start is random",
        ),
        ("critic.init_from", {"weights": "prm"}, "critic.init_from.mixing: missing; every key is needed"),
        (
            "critic.init_from",
            {"weights": "prm", "mixing": 0},
            "critic.init_from.mixing: 0 is not allowed: should be greater than 0",
        ),
        (
            "critic.init_from",
            {"weights": "first", "mixing": 0.5},
            "critic.init_from.weights: 'first' is not allowed: should be 'prm', 'policy', 'sft' or 'scratch'",
        ),
        ("critic.prior", -0.1, "critic.prior: -0.1 is not allowed: should be greater than or equal to 0"),
        ("critic.prior", float("inf"), "critic.prior: inf is not allowed: should be a finite number"),
        ("method.search", "greedy", "method.search: 'greedy' is not allowed: a search, as beam_1x16"),
        ("method.search", "beam_200x2", "method.search: 'beam_200x2' is not allowed: a beam of at most compute.slots,"),
        ("method.search", "lookahead_of_8x1", "method.search: 'lookahead_of_8x1' is not allowed: a campaign trains no"),
        ("method.search", "beam_1x1", "method.search: beam_1x1: of one sample nothing is chosen"),
        ("method.keeps", "expert_like", "method.keeps: 'expert_like' is not allowed: won or ended_early, unless cri"),
        (
            "evaluate.also",
            {"root": "x", "split": "unseen"},
            "evaluate.also.split: 'unseen' is not allowed: another name than the campaign's own",
        ),
        ("evaluate.decoding", [], "evaluate.decoding: () is not allowed: at least one way of playing"),
        ("evaluate.decoding", ["greedily"], "evaluate.decoding: 'greedily' is not allowed: one of greedy, sample, bes"),
        ("evaluate.decoding", ["beam_200x2"], "evaluate.decoding: 'beam_200x2' is not allowed: a beam of at most"),
        ("model.lora", None, "model.lora: None is not allowed: unknown key; allowed: source, width"),
        ("compute.parallel", {"processes": 1, "sharding": "none"}, "compute.parallel.processes: 1 is not allowed: sh"),
        ("compute.parallel", {"processes": 2, "sharding": "fsdp"}, "compute.parallel.sharding: 'fsdp' is not allowed"),
        ("compute.parallel", {"processes": 2, "sharding": "fsdp2"}, "model.optimizer: 'muon' is not allowed: adamw"),
        ("games", {"seen": 0, "unseen": 0}, "games.unseen: 0 is not allowed: more than 0, or games.seen is: nothing"),
        ("rollout.explore", {"bonus": 0.5}, "rollout.explore.bonus: 0.5 is not allowed: null with one episode a game"),
        (
            "rollout.explore",
            {"resets": 0.5},
            "rollout.explore.resets: 0.5 is not allowed: only where every training game has a demonstration; "
            "alfworld-training has none of games in mixed rooms: another env.world",
        ),
        ("rollout.explore", {"steered": 0.5}, "rollout.explore.steered: 0.5 is not allowed: only with a model that r"),
        ("model.constrained", "yes", "model.constrained: 'yes' is not allowed: should be True, False or 'served'"),
        ("seed", 2**32, "seed: 4294967296 is not allowed: should be less than or equal to 4294967295"),
        (
            "rollout.explore",
            {"boni": 0.5},
            "rollout.explore.boni: 0.5 is not allowed: unknown key; did you mean bonus",
        ),
        (
            "rollout.explore",
            {"x": 0.5},
            "rollout.explore.x: 0.5 is not allowed: unknown key; allowed: resets, bon",
        ),
        ("iterations.7", {"prev": 6}, "iterations.7: {'prev': 6} is not allowed: iterations are"),
        ("policies.0.prm", 9, "policies.0.prm: 9 is not allowed: one of the iterations"),
    ],
)
def test_one_line_names_key_value_and_what_is_allowed(key, value, message):
    raw = raw_params()
    if key in ("rollout", "rollout.explore"):
        *outer, last = key.split(".")
        section = raw
        for name in outer:
            section = section[name]
        section[last] = value
    else:
        overridden_plainly(raw, nested(key, value))
    assert said_of(raw).startswith(f"params.yaml: {message}")


def overridden_plainly(raw: dict, changes: dict) -> None:
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(raw.get(key), dict):
            overridden_plainly(raw[key], value)
        else:
            raw[key] = value


@pytest.mark.parametrize(
    ("profiles", "changes", "message"),
    [
        (["inverse"], {"critic": {"ends": "never"}}, "critic.ends: 'never' is not allowed: should be 'told' or 'cut'"),
        (["grpo"], {"rollout": {"episodes_per_game": 1}}, "rollout.episodes_per_game: 1 is not allowed: at least 2"),
        (["gigpo"], {"rollout": {"episodes_per_game": 1}}, "rollout.episodes_per_game: 1 is not allowed: at least 2"),
        (["loop"], {"rollout": {"episodes_per_game": 1}}, "rollout.episodes_per_game: 1 is not allowed: at least 2"),
        (["istar"], {"rollout": {"episodes_per_game": 1}}, "rollout.episodes_per_game: 1 is not allowed: at least 2"),
        (
            ["ppo"],
            {"method": {"refresh": {"games": 99999}}},
            "method.refresh.games: 99999 is not allowed: at most",
        ),
        (["grpo"], {"method": {"anchor": "first"}}, "method.anchor: 'first' is not allowed: unknown key"),
        (["online_dpo"], {"method": {"anchor": "second"}}, "method.anchor: 'second' is not allowed: should be 'previ"),
        (["online_dpo"], {"method": {"trainer": "trl"}}, "method.trainer: 'trl' is not allowed: ours, unless"),
        (["llama3b"], {"critic": {"init_from": "scratch"}}, "critic.init_from: 'scratch' is not allowed: policy, prm"),
        (
            ["llama3b"],
            {"critic": {"init_from": {"weights": "scratch", "mixing": 1.0}}},
            "critic.init_from: 'scratch' is not allowed: policy, prm",
        ),
        (["llama3b"], {"model": {"optimizer": "muon"}}, "model.optimizer: 'muon' is not allowed: unknown key"),
        (["llama3b"], {"model": {"reason_tokens": 256}}, "model.reason_tokens: 256 is not allowed: less than max_act"),
        (["llama3b"], {"method": {"replay": 0.5}}, "model.reason_tokens: 96 is not allowed: 0 with critic inverse or"),
        (["llama3b"], {"evaluate": {"decoding": ["lookahead_of_4x1"]}}, "evaluate.decoding: 'lookahead_of_4x1' is no"),
    ],
)
def test_what_one_choice_excludes_is_refused_beside_it(profiles, changes, message):
    raw = raw_params(*profiles)
    validate(raw, "params.yaml")
    assert said_of(overridden(raw, changes)).startswith(f"params.yaml: {message}")


@pytest.mark.parametrize(
    ("ends", "keeps", "allowed"),
    [
        ("told", "expert_like_cut", "expert_like with critic.ends told: that PRM was told where episodes end"),
        ("cut", "expert_like", "expert_like_cut with critic.ends cut, else it reads where episodes end"),
        ("told", "expert_like", None), ("cut", "expert_like_cut", None), ("told", "ended_early", None),
        ("cut", "won", None),
    ],
)  # fmt: skip
def test_what_is_kept_reads_no_more_of_the_ends_than_the_prm(ends, keeps, allowed):
    method = RAW["method"] | {"keeps": keeps}
    raw = raw_params("inverse", critic={"ends": ends, "likelihood": 0.3}) | {"method": method}
    if allowed is None:
        assert validate(raw, "params.yaml").critic.likelihood == 0.3
    else:
        assert said_of(raw) == f"params.yaml: method.keeps: {keeps!r} is not allowed: {allowed}"


MONITOR = {"every": 5, "episodes": 8, "auditor": False, "games": 0, "stop": False}


def test_a_monitor_is_refused_where_there_are_no_labels_to_compare_with():
    validate(raw_params("online_dpo", method={"monitor": MONITOR}), "params.yaml")
    for profile, critic, allowed in (
        ("inverse", {}, "null with critic inverse"),
        ("online_dpo", {"outcome": "signed"}, "null with critic.outcome signed"),
        ("online_dpo", {"gamma": 0.9}, "null unless critic.gamma is 0.95"),
    ):
        raw = raw_params(profile, method={"monitor": MONITOR}, critic=critic)
        assert said_of(raw).startswith(f"params.yaml: method.monitor: 'a monitor' is not allowed: {allowed}")


@pytest.mark.parametrize("kind", ["train_states", "random_states"])
def test_shaped_labels_go_without_branched_states(kind):
    off = {"train_states": 0, "random_states": 0}
    shaping = {"shaping": {"kind": "blend", "alpha": 0.5, "reference": None}}
    validate(raw_params(critic=shaping, rollout={"branch": off}), "params.yaml")
    raw = raw_params(critic=shaping, rollout={"branch": off | {kind: 5}})
    assert said_of(raw).startswith("params.yaml: critic.shaping: 'blend' is not allowed: null, or set rollout.branch.")
    signed = raw_params(critic=shaping | {"outcome": "signed"}, rollout={"branch": off})
    assert said_of(signed) == "params.yaml: critic.outcome: 'signed' is not allowed: binary where shaping is a blend"


def test_shards_are_for_adamw():
    several = {"parallel": {"processes": 2, "sharding": "fsdp2"}}
    found = validate(raw_params(compute=several, model={"optimizer": "adamw"}), "params.yaml")
    assert (found.compute.parallel.processes, found.compute.parallel.sharding) == (2, "fsdp2")


def test_a_misspelt_key_is_named_before_the_missing_one():
    raw = raw_params()
    raw["demos"]["knowlege"] = raw["demos"].pop("knowledge")
    said = said_of(raw)
    assert said.startswith("params.yaml: demos.knowlege: ") and said.endswith("(and 1 more problem)")


def test_a_missing_key_is_named():
    raw = raw_params()
    del raw["critic"]["gamma"]
    assert said_of(raw).startswith("params.yaml: critic.gamma: missing; every key is needed")


def test_several_mistakes_are_counted():
    assert said_of(raw_params(critic={"gamma": 2}, seed="one")).endswith("(and 1 more problem)")


@pytest.mark.parametrize("raw", [None, 3, [], "text"])
def test_a_file_that_is_no_mapping(raw):
    said = said_of(raw)
    assert said.startswith("params.yaml: (the whole file): ") and "a section with the keys seed, compute" in said


@pytest.mark.parametrize("section", ["critic", "method", "model"])
def test_a_section_that_names_nothing_says_that_the_name_is_missing(section):
    raw = raw_params()
    del raw[section]["source" if section == "model" else "name"]
    assert f"{section}." in said_of(raw)


def test_a_file_that_is_not_yaml_or_not_there(tmp_path):
    with pytest.raises(ParamsError, match="no such file; run this where"):
        load_params(tmp_path / "params.yaml")
    (tmp_path / "params.yaml").write_text("seed: [1")
    with pytest.raises(ParamsError, match="not readable as YAML"):
        load_params(tmp_path / "params.yaml")
    (tmp_path / "params.yaml").write_text("seed: 1\ngames:\n  train: 1\n  seen: 2\n  train: 3\n")
    with pytest.raises(ParamsError, match=r"params\.yaml: .*key 'train' is there twice, in lines 3 and 5$"):
        load_params(tmp_path / "params.yaml")


@pytest.mark.integration
def test_a_stage_stops_before_any_work(tmp_path):
    write_project(tmp_path, raw_params(rollout={"temperature": 99}))
    command = [sys.executable, "-m", "tasks.games"]
    done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 2
    said = "params.yaml: rollout.temperature: 99 is not allowed: should be less than or equal to 10"
    assert done.stderr == f"{said}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agentprm_core", "params.yaml"]


def test_an_iteration_that_params_do_not_have(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path, raw_params())
    with pytest.raises(SystemExit) as stopped:
        run_stage("label", lambda stage: None, iterated=True, arguments=["--iteration", "9"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "--iteration: 9 is not allowed: params.yaml has 1, 2, 3\n"


def test_other_games_that_are_not_there_stop_the_first_stage(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path, raw_params(evaluate={"also": {"root": "nowhere", "split": "valid_seen"}}))
    with pytest.raises(SystemExit, match="2"):
        run_stage("games", lambda stage: None, iterated=False, arguments=[])
    assert capsys.readouterr().err == "evaluate.also.root: 'nowhere' is not allowed: a folder that is there\n"
