"""params.yaml: what is wrong with it is one line that names the key, the value and what is allowed."""

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tasks.frame.params import PARAMS, ParamsError, load_params, validate
from tasks.frame.profile import load_profile, overridden
from tasks.frame.stage import run_stage

ROOT = Path(__file__).parents[2]
RAW = yaml.safe_load((ROOT / PARAMS).read_text())
LORA = {"rank": 16, "alpha": 32, "modules": ["q_proj", "v_proj"]}
ADAMW = {name: {"optimizer": "adamw"} for name in ("sft", "prm", "policy")}
PUBLISHED = {**ADAMW, "prm": {"optimizer": "adamw", "likelihood": 0.0}}


def changed(key: str, value: object) -> dict:
    raw = copy.deepcopy(RAW)
    *sections, last = key.split(".")
    section = raw
    for name in sections:
        section = section[name]
    section[last] = value
    return raw


def test_the_default_parameters_are_valid():
    assert load_params(ROOT / PARAMS).model_dump(mode="json").keys() == RAW.keys()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "rollout.temprature",
            1,
            "rollout.temprature: 1 is not allowed: unknown key; did you mean temperature? allowed:",
        ),
        ("rollout.branch.x", 1, "rollout.branch.x: 1 is not allowed: unknown key; allowed: train_states"),
        ("rollouts", {}, "rollouts: {} is not allowed: unknown key; did you mean rollout?"),
        ("rollout.temperature", -1, "rollout.temperature: -1 is not allowed: should be greater than 0"),
        ("label.gamma", 1.5, "label.gamma: 1.5 is not allowed: should be less than or equal to 1"),
        (
            "env.world",
            "quick",
            "env.world: 'quick' is not allowed: should be one of alfworld, alfworld-textworld",
        ),
        ("env.code", "worlds", "env.code: 'worlds' is not allowed: should be agentprm_core/worlds/alfworld"),
        ("sft.epochs", "many", "sft.epochs: 'many' is not allowed: should be a valid number"),
        ("rollout", 3, "rollout: 3 is not allowed: a section with the keys games, episodes_per_game"),
        ("model.heads", 3, "model.heads: 3 is not allowed: a divisor of model.width"),
        ("demos.games", 10**6, "demos.games: 1000000 is not allowed: at most games.train"),
        ("games.source", "published", "games.published_root: None is not allowed: the folder alfworld-download filled"),
        ("prm.loss", "inverse", "label.credit: 'monte_carlo' is not allowed: inverse with prm.loss inverse, and only"),
        ("label.shaping", "potentials", "label.shaping: 'potentials' is not allowed: should be 'none', 'blend' or"),
        ("policy.anchor", "second", "policy.anchor: 'second' is not allowed: should be 'previous' or 'first'"),
        ("label.shaping", "blend", "label.shaping: 'blend' is not allowed: none, or set rollout.branch.train_sta"),
        ("label.discount_from", "start", "label.discount_from: 'start' is not allowed: end, or set rollout.branch.tr"),
        ("model.source", "some/model", "sft.optimizer: 'muon' is not allowed: set it to adamw in sft, prm and policy"),
        ("evaluate.prior", -0.1, "evaluate.prior: -0.1 is not allowed: should be greater than or equal to 0"),
        ("evaluate.prior", float("inf"), "evaluate.prior: inf is not allowed: should be a finite number"),
        ("model.lora.rank", 16, "model.lora.rank: 16 is not allowed: 0 for a policy trained from scratch, whole; an"),
        ("model.lora", None, "model.lora: None is not allowed: a section with the keys rank, alpha, modules"),
        ("compute.processes", 2, "sft.accumulation: 1 is not allowed: a multiple of compute.processes, 2, which share"),
        ("compute.processes", 0, "compute.processes: 0 is not allowed: should be greater than or equal to 1"),
        ("iterations.7", {"prev": 6}, "iterations.7: {'prev': 6} is not allowed"),
        ("policies.0.prm", 9, "policies.0.prm: 9 is not allowed: one of the iterations"),
    ],
)
def test_one_line_names_key_value_and_what_is_allowed(key, value, message):
    with pytest.raises(ParamsError) as error:
        validate(changed(key, value), "params.yaml")
    assert str(error.value).startswith(f"params.yaml: {message}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"imitation": 0.5}, "policy.imitation: 0.5 is not allowed: 0 with label.credit inverse"),
        ({"monitor": {"every": 5}}, "policy.monitor.every: 5 is not allowed: 0 with label.credit inverse"),
        ({"method": "rft"}, "policy.method: 'rft' is not allowed: online_dpo or expert_iteration with label.credit"),
        (
            {"method": "expert_iteration"},
            "policy.imitates: 'won' is not allowed: expert_like with label.credit inverse",
        ),
        ({"imitates": "expert_like"}, "policy.imitates: 'expert_like' is not allowed: won, or expert_iteration with"),
    ],
)
def test_what_reads_outcomes_is_refused_beside_inverse(change, message):
    raw = overridden(copy.deepcopy(RAW), load_profile("inverse", ROOT / "profiles"))
    validate(raw, "params.yaml")
    with pytest.raises(ParamsError, match=message):
        validate(overridden(raw, {"policy": change}), "params.yaml")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": {"anchor": "first"}}, r"policy.anchor: 'first' is not allowed: previous with policy.method grpo"),
        ({"policy": {"replay": 0.5}}, r"policy.replay: 0.5 is not allowed: 0 with policy.method grpo"),
        ({"rollout": {"exploration": 0.0}}, r"rollout.episodes_per_game: 1 is not allowed: at least 2 with policy.met"),
        ({"prm": {"require_gain": True}}, r"prm.require_gain: True is not allowed: false with policy.method grpo"),
    ],
)
def test_what_online_dpo_alone_heeds_is_refused_beside_others(changes, message):
    several = {} if "rollout" in changes else {"rollout": {"episodes_per_game": 2}}
    raw = overridden(copy.deepcopy(RAW), load_profile("online_dpo", ROOT / "profiles"))
    overridden(overridden(raw, several), changes)
    validate(raw, "params.yaml")
    with pytest.raises(ParamsError, match=message):
        validate(overridden(raw, {"policy": {"method": "grpo"}}), "params.yaml")


@pytest.mark.parametrize(
    ("beam", "message"),
    [
        ({"width": 200}, "search.beam.width: 200 is not allowed: at most rollout.slots, 128"),
        ({"samples": 1}, "search.beam.samples: 1 is not allowed: more than 1 where search.beam.width is 1"),
    ],
)
def test_a_beam_must_have_room_and_a_choice(beam, message):
    with pytest.raises(ParamsError, match=message):
        validate(overridden(copy.deepcopy(RAW), {"search": {"beam": beam}}), "params.yaml")


def test_exploration_by_visits_needs_two_episodes_a_game():
    message = r"rollout.exploration: 0.5 is not allowed: 0 with one episode a game"
    with pytest.raises(ParamsError, match=message):
        validate(changed("rollout.exploration", 0.5), "params.yaml")


def test_processes_share_the_accumulation_of_what_trains_on_them():
    """An update by online_dpo stays one process, and may accumulate as it likes."""
    several = {"compute": {"processes": 2}, "sft": {"accumulation": 2}, "prm": {"accumulation": 4}}
    several["policy"] = {"method": "online_dpo"}
    raw = overridden(copy.deepcopy(RAW), several)
    validate(raw, "params.yaml")
    with pytest.raises(ParamsError, match=r"policy.accumulation: 1 is not allowed: a multiple of compute.processes, 2"):
        validate(overridden(copy.deepcopy(raw), {"policy": {"method": "rft"}}), "params.yaml")
    with pytest.raises(ParamsError, match=r"prm.accumulation: 3 is not allowed: a multiple of compute.processes, 2"):
        validate(overridden(copy.deepcopy(raw), {"prm": {"accumulation": 3}}), "params.yaml")


SHARDED = {"compute": {"processes": 2, "sharding": "fsdp2"}} | {
    name: {"optimizer": "adamw", "accumulation": 2} for name in ("sft", "prm", "policy")
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"compute": {"sharding": "fsdp"}}, "compute.sharding: 'fsdp' is not allowed: should be 'none' or 'fsdp2'"),
        ({"compute": {"processes": 1}}, "compute.sharding: 'fsdp2' is not allowed: none with compute.processes 1: sha"),
        ({"prm": {"optimizer": "muon"}}, "prm.optimizer: 'muon' is not allowed: adamw with compute.sharding fsdp2: m"),
    ],
)
def test_shards_are_among_processes_and_for_adamw(changes, message):
    raw = overridden(copy.deepcopy(RAW), SHARDED)
    validate(raw, "params.yaml")
    alone = {"policy": {"method": "online_dpo", "optimizer": "muon"}}  # one process without shards
    validate(overridden(copy.deepcopy(raw), alone), "params.yaml")
    with pytest.raises(ParamsError) as error:
        validate(overridden(raw, changes), "params.yaml")
    assert str(error.value).startswith(f"params.yaml: {message}")


@pytest.mark.parametrize("section", ADAMW)
def test_muon_is_refused_in_every_stage_that_trains_a_published_model(section):
    raw = overridden(copy.deepcopy(RAW), {"model": {"source": "some/model", "lora": LORA}, **PUBLISHED})
    validate(raw, "params.yaml")
    with pytest.raises(ParamsError, match=rf"^params.yaml: {section}.optimizer: 'muon' is not allowed"):
        validate(overridden(raw, {section: {"optimizer": "muon"}}), "params.yaml")


def test_the_likelihood_is_refused_where_the_output_need_not_be_the_embedding():
    raw = overridden(copy.deepcopy(RAW), {"model": {"source": "some/model"}, **PUBLISHED})
    validate(raw, "params.yaml")
    with pytest.raises(ParamsError, match=r"^params.yaml: prm.likelihood: 0.3 is not allowed: 0 with a published"):
        validate(overridden(raw, {"prm": {"likelihood": 0.3}}), "params.yaml")


@pytest.mark.parametrize("label", [{"shaping": "potential"}, {"discount_from": "start"}])
def test_other_labels_than_plain_ones_go_without_branched_states(label):
    off = {"train_states": 0, "random_states": 0}
    changes = {"label": label, "rollout": {"branch": off}}
    validate(overridden(copy.deepcopy(RAW), changes), "params.yaml")
    for kind in ("train_states", "random_states"):
        branched = overridden(copy.deepcopy(RAW), {**changes, "rollout": {"branch": {**off, kind: 5}}})
        with pytest.raises(ParamsError, match=r"or set rollout.branch.train_states and random_states to 0"):
            validate(branched, "params.yaml")


@pytest.mark.parametrize(
    ("key", "fits", "odd"), [("reset_share", (0.5, 4), (0.5, 3)), ("reset_share", (0.29, 100), (0.3, 4)),
                             ("steered", (0.25, 8), (0.25, 6))]
)  # fmt: skip
def test_shares_of_a_games_episodes_are_whole_episodes(key, fits, odd):
    def params(share: float, episodes: int) -> dict:
        raw = overridden(copy.deepcopy(RAW), {"model": {"source": "some/model"}, **PUBLISHED})
        raw["demos"]["games"] = raw["games"]["train"]
        return overridden(raw, {"rollout": {key: share, "episodes_per_game": episodes}})

    validate(params(*fits), "params.yaml")
    message = rf"rollout.{key}: {odd[0]} is not allowed: a share of rollout.episodes_per_game, {odd[1]}, that is"
    with pytest.raises(ParamsError, match=message):
        validate(params(*odd), "params.yaml")


def test_reasons_are_refused_where_nobody_writes_or_reads_them():
    chat = {
        "model": {"source": "a/chat-model", "max_action_tokens": 64}, "sft": {"reason_tokens": 40},
        "policy": {"replay": 0.0},
        "rollout": {"constrained": False}, "evaluate": {"constrained": False, "decoding": ["greedy", "sample"]},
    }  # fmt: skip
    raw = overridden(overridden(copy.deepcopy(RAW), PUBLISHED), chat)
    validate(raw, "params.yaml")
    inverse = {"label": {"credit": "inverse"}, "prm": {"loss": "inverse"}, "policy": {"imitation": 0}}
    for changes, allowed in (
        ({"model": {"source": "scratch"}}, "0 for a policy trained from scratch"),
        ({"evaluate": {"constrained": True}}, "0 with evaluate.constrained"),
        ({"model": {"max_action_tokens": 40}}, "less than model.max_action_tokens, 40"),
        (inverse, "0 with label.credit inverse"),
    ):
        with pytest.raises(ParamsError) as error:
            validate(overridden(copy.deepcopy(raw), changes), "params.yaml")
        assert f"sft.reason_tokens: 40 is not allowed: {allowed}" in str(error.value)


def test_a_misspelt_key_is_named_before_the_missing_one():
    raw = copy.deepcopy(RAW)
    raw["demos"]["knowlege"] = raw["demos"].pop("knowledge")
    with pytest.raises(ParamsError, match=r"^params.yaml: demos.knowlege: .*\(and 1 more\)$"):
        validate(raw, "params.yaml")


def test_a_missing_key_is_named():
    raw = copy.deepcopy(RAW)
    del raw["label"]["gamma"]
    with pytest.raises(ParamsError, match=r"^params.yaml: label.gamma: missing"):
        validate(raw, "params.yaml")


def test_several_mistakes_are_counted():
    raw = changed("label.gamma", 2)
    raw["seed"] = "one"
    with pytest.raises(ParamsError, match=r"\(and 1 more\)$"):
        validate(raw, "params.yaml")


def test_a_file_that_is_not_yaml_or_not_there(tmp_path):
    with pytest.raises(ParamsError, match="no such file; run this where"):
        load_params(tmp_path / "params.yaml")
    (tmp_path / "params.yaml").write_text("seed: [1")
    with pytest.raises(ParamsError, match="not YAML"):
        load_params(tmp_path / "params.yaml")


@pytest.mark.integration
def test_a_stage_stops_before_any_work(tmp_path):
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(changed("rollout.temperature", 99)))
    command = [sys.executable, "-m", "tasks.games"]
    done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "params.yaml: rollout.temperature: 99 is not allowed: should be less than or equal to 10\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["params.yaml"]


def test_an_iteration_that_params_do_not_have(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(RAW))
    with pytest.raises(SystemExit) as stopped:
        run_stage("label", lambda stage: None, iterated=True, arguments=["--iteration", "9"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "--iteration: 9 is not allowed: params.yaml has 1, 2, 3\n"
