"""Profiles: every one fits params.yaml, several go together, and they reach ``dvc exp run`` unchanged."""

import sys

import pytest
import yaml
from dvc.utils.hydra import apply_overrides

from agentprm_core.search.decoding_config import LIKELIHOOD, PRM, decoding
from tasks.frame.params import PARAMS, ParamsError, load_params, validate
from tasks.frame.profile import (
    PROFILES,
    apply,
    arguments,
    asked_for,
    composed,
    differences,
    load_profile,
    main,
    overridden,
)
from tests.data.project import ROOT, raw_params

NAMES = sorted(path.stem for path in (ROOT / PROFILES).glob("*.yaml"))
WORLDS = ["all_worlds", "arithmetic", "babyai", "textcraft", "webshop"]
TOGETHER = [
    *([name] for name in NAMES),
    ["textcraft", "smoke"],
    *([world, "smoke", "demos.games=500"] for world in ("babyai", "webshop")),
    ["arithmetic", "smoke", "demos.games=2500", "games.train=2700"],
    ["all_worlds", "smoke", "demos.games=3000", "games.train=4000", "sft.observation_weight=0"],
    ["smoke", "inverse"],
    ["gpu", "promise_progress", "online_dpo"],
    ["smoke", "gigpo", "rollout.games=9", "method.steps=3"],
    ["alfworld", "games.published=/data"],
]


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / PROFILES).mkdir()
    for path in [PARAMS, *(PROFILES / f"{name}.yaml" for name in NAMES)]:
        (tmp_path / path).write_text((ROOT / path).read_text())
    (tmp_path / "agentprm_core").symlink_to(ROOT / "agentprm_core")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("words", TOGETHER, ids=" ".join)
def test_profiles_written_are_the_profiles_given_to_dvc(words, project):
    told = arguments(words)
    apply(words, project)
    valid = load_params(project / PARAMS)
    assert "# The one set of numbers" in (project / PARAMS).read_text()
    (project / PARAMS).write_text((ROOT / PARAMS).read_text())
    apply_overrides(project / PARAMS, told)
    assert load_params(project / PARAMS) == valid


def test_another_name_replaces_the_block_and_the_same_one_changes_it():
    raw = raw_params("online_dpo")
    assert raw["method"] == load_profile("online_dpo", ROOT / PROFILES)["method"]
    assert "keeps" not in raw["method"]
    changed = raw_params("smoke")
    assert changed["critic"] == raw_params()["critic"] | {"epochs": 1, "require": "nothing"}
    assert raw_params("llama3b")["model"].keys() == load_profile("llama3b", ROOT / PROFILES)["model"].keys()
    other = overridden(raw_params("llama3b"), {"model": {"source": "another/model"}})["model"]
    assert other == raw_params("llama3b")["model"] | {"source": "another/model"}, "another published one has the same"


def test_a_profile_may_have_fewer_iterations():
    raw = raw_params("chat")
    assert list(raw["iterations"]) == ["1", "2"] and list(raw["policies"]) == ["0", "1", "2"]
    assert validate(raw, "chat").model.revision is None


def test_a_later_profile_wins():
    assert raw_params("online_dpo", "rft")["method"] == load_profile("rft", ROOT / PROFILES)["method"]


def test_what_goes_and_comes_is_told_in_hydras_grammar():
    before = {"seed": 1, "method": {"name": "a", "keeps": "won", "monitor": None}, "also": None}
    after = {"seed": 1, "method": {"name": "b", "beta": 0.5}, "also": {"root": "x", "split": "y"}, "more": [1, None]}
    assert list(differences(before, after)) == [
        "method.name=b", "~method.keeps", "method.monitor=0", "~method.monitor",
        "++method.beta=0.5", "also={root:x,split:y}", "++more=[1,null]",
    ]  # fmt: skip
    assert list(differences(after, after)) == []
    assert list(differences({"a": 1, "b": True}, {"a": 1.0, "b": True})) == ["a=1.0"]


def test_text_that_a_shell_would_read_is_refused():
    with pytest.raises(ParamsError, match="is printed for the shell and must not need quotes"):
        list(differences({"a": "b"}, {"a": "b c"}))


def test_a_profile_with_a_wrong_key_changes_nothing(project):
    before = (project / PARAMS).read_text()
    (project / PROFILES / "odd.yaml").write_text("rollout: {gams: 3}")
    said = r"^odd over params.yaml: rollout.gams: 3 is not allowed: unknown key"
    with pytest.raises(ParamsError, match=said):
        apply(["odd"], project)
    with pytest.raises(ParamsError, match=r"^odd: rollout.gams"):
        arguments(["odd"])
    assert (project / PARAMS).read_text() == before


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("mine", r"profiles/mine.yaml: no such profile; there are: alfworld, .*smoke"),
        ("smok", r"no such profile; did you mean smoke\?$"),
        ("SMOKE", r"no such profile; did you mean smoke\?$"),
        ("smoke.yaml", "^'smoke.yaml': a profile is named without folder and ending: smoke$"),
        ("profiles/smoke.yaml", "^'profiles/smoke.yaml': a profile is named without folder and ending: smoke$"),
        ("rollout.games", "^'rollout.games': no such profile; a key is given with its value: rollout.games=VALUE$"),
        ("seed", "a key is given with its value: seed=VALUE$"),
    ],
)
def test_what_is_no_profile_is_told_what_was_meant(project, word, said):
    with pytest.raises(ParamsError, match=said):
        arguments([word])


OTHERS = {
    "own": {
        "env": {"world": "benchmarks.held_out_types:NO_PICK_TWO", "code": "benchmarks/held_out_types.py",
                "max_turns": 10},
        "games": {"train": 1500, "seen": 100, "unseen": 100},
        "demos": {"games": 1000}, "rollout": {"games": 200}, "method": {"games": 200},
    },
    **{world: load_profile(world, ROOT / PROFILES) for world in WORLDS},
}  # fmt: skip
"""Worlds that params.yaml may be written for."""
SMALLER = {"all_worlds", "arithmetic", "gpu", "more_demonstrations", "no_memory", "textcraft"}
"""Profiles that play more games than the first of these has."""


@pytest.mark.parametrize("world", OTHERS)
def test_every_profile_fits_a_params_yaml_of_another_world(project, world):
    (project / "benchmarks").symlink_to(ROOT / "benchmarks")
    env = OTHERS[world]["env"]
    for name in NAMES:
        raw = raw_params(**OTHERS[world])
        if world == "own" and name in SMALLER:
            with pytest.raises(ParamsError, match=r"^x: \w+\.games: \d+ is not allowed: at most games.train, 1500$"):
                composed(raw, [name], "x")
            continue
        there = composed(raw, [name], name).env
        own = load_profile(name).get("env", {})
        assert (there.world, there.max_turns) == tuple(own.get(key, env[key]) for key in ("world", "max_turns"))


@pytest.mark.parametrize("method", ["rft", "ppo", "gigpo", "dagger", "online_dpo"])
@pytest.mark.parametrize(("name", "key"), [("gpu", "games"), ("textcraft", "games"), ("smoke", "games")])
def test_a_profile_that_does_not_fit_the_method_says_that_it_comes_first(project, name, key, method):
    said = (
        f"profiles/{name}.yaml sets method.{key}, which method.name {method} does not have: put {name} before {method}"
    )
    with pytest.raises(ParamsError) as error:
        arguments([method, name])
    assert str(error.value) == said
    assert arguments([name, method])


def test_one_that_comes_first_keeps_its_world_by_a_key(project):
    rft = load_profile("rft", ROOT / PROFILES) | {"env": {"world": "alfworld", "code": "agentprm_core/worlds/alfworld"}}
    (project / PROFILES / "mine.yaml").write_text(yaml.safe_dump(rft))
    said = "put textcraft before mine, and after both (env.world=textcraft env.code=agentprm_core/worlds/textcraft .*)$"
    with pytest.raises(ParamsError, match=said) as error:
        arguments(["mine", "textcraft"])
    own = str(error.value).partition("after both ")[2].split()
    assert {"env.world=textcraft", "env.max_turns=20"} <= {*arguments(["textcraft", "mine", *own])}


def test_what_does_not_fit_the_method_of_params_yaml_is_named_too(project):
    apply(["rft"], project)
    said = "which method.name rft does not have: give those of its keys that fit one by one, as rollout.games=100"
    with pytest.raises(ParamsError, match=rf"^profiles/gpu.yaml sets method.games, {said}$"):
        arguments(["gpu"])


def test_another_methods_name_alone_is_told_the_profile(project):
    with pytest.raises(
        ParamsError, match=r"^method\.name=rft: another method has other keys; in its place use the pro"
    ):
        arguments(["method.name=rft"])
    assert arguments(["method.name=expert_iteration", "seed=2"]) == ["seed=2"]


@pytest.mark.parametrize("world", WORLDS)
def test_a_world_leaves_the_sizes_of_a_language_model_alone(project, world):
    """Its model, and how much it plays and trains."""
    own = load_profile("llama3b", ROOT / PROFILES)["model"]
    apply(["llama3b"], project)
    before = yaml.safe_load((project / PARAMS).read_text())
    apply([world], project)
    after = yaml.safe_load((project / PARAMS).read_text())
    assert after["env"]["world"] == world and after["model"] == own
    assert all(after[section] == before[section] for section in ("sft", "rollout", "method"))
    apply([world, "model.context=2048"], project)
    assert yaml.safe_load((project / PARAMS).read_text())["model"] == own | {"context": 2048}


def test_a_world_with_an_adapter_of_its_own_changes_a_language_model(project):
    own = load_profile("llama3b", ROOT / PROFILES)["model"]
    mine = {
        "env": {"world": "babyai", "code": "agentprm_core/worlds/babyai"},
        "model": {"context": 4096, "lora": {"rank": 2}},
    }
    (project / PROFILES / "mine.yaml").write_text(yaml.safe_dump(mine))
    apply(["llama3b", "mine"], project)
    told = yaml.safe_load((project / PARAMS).read_text())["model"]
    assert told == own | {"context": 4096, "lora": own["lora"] | {"rank": 2}}


def test_what_is_written_looks_as_before(project):
    apply(["smoke", "seed=2"], project)
    before, after = (ROOT / PARAMS).read_text().splitlines(), (project / PARAMS).read_text().splitlines()
    before = [line for line in before if not line.startswith('  "3":')]  # smoke has two iterations
    assert len(before) == len(after) and before != after
    for old, new in zip(before, after):
        _, space, comment = old.partition(" #")
        value, *_ = new.partition(" #")
        assert new == old or (new == value + space + comment and value == value.rstrip())
    assert "  learning_rate: 4.0e-3" in after, "as the profile has it"
    assert "  learning_rate: 1.0e-3" in after and "  explore: null # null | {resets: SHARE}" in "\n".join(after)
    assert "  decoding: [greedy, best_of_2, best_of_2_by_untrained_likelihood]" in after
    apply(["rft"], project)
    written = (project / PARAMS).read_text()
    assert "learning_rate: 1.0e-3, steps: 840" in written


def test_there_are_profiles_for_other_games_and_machines():
    assert {"alfworld", "gpu", "inverse", "llama3b", "smoke"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_best_of_n_by_the_prm_has_its_control_beside_it(name):
    """From the two comes ``prm.adds``, which every campaign is to log."""
    ways = [decoding(way) for way in raw_params(name)["evaluate"]["decoding"]]
    chosen = [way for way in ways if way.method == "best_of_n" and way.by == PRM]
    assert chosen and all(way.under(LIKELIHOOD) in ways for way in chosen)


def test_the_command_line_prints_or_writes(project, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["profile", "rft", "method.steps=3"])
    main()
    said = capsys.readouterr().out
    assert "-S method.name=rft" in said and "-S method.steps=3" in said and "-S ~method.search" in said
    monkeypatch.setattr(sys, "argv", ["profile", "rft", "--write"])
    main()
    assert yaml.safe_load((project / PARAMS).read_text())["method"]["name"] == "rft"
    monkeypatch.setattr(sys, "argv", ["profile", "rft", "method.step=3"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "method.step: 3 is not allowed: unknown key; did you mean steps?" in capsys.readouterr().err


def test_inverse_lets_no_outcome_decide(monkeypatch):
    monkeypatch.chdir(ROOT)
    valid = validate(raw_params("inverse"), "inverse")
    assert valid.critic.require == "nothing"  # the ranking is measured by outcomes
    assert (valid.method.imitation, valid.rollout.branch.train_states, valid.rollout.branch.random_states) == (0, 0, 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["seed=[1"], r"^'seed=\[1': the value is no YAML"),
        (["=3"], "^'=3': no key before the ="),
        (["cut"], "cut.yaml: not readable as YAML"),
        (["listed"], "listed.yaml: must be a mapping"),
        (["empty"], "empty.yaml: must be a mapping"),
        (["bytes"], "bytes.yaml: not readable as YAML"),
    ],
)
def test_words_and_profiles_that_cannot_be_read_are_one_line(tmp_path, words, said):
    for name, text in (("cut", b"a: ["), ("listed", b"[1]"), ("empty", b""), ("bytes", b"\xff\xfe\xff")):
        (tmp_path / f"{name}.yaml").write_bytes(text)
    with pytest.raises(ParamsError, match=said) as error:
        asked_for(words, tmp_path)
    assert "\n" not in str(error.value)


def test_params_that_are_not_there_are_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParamsError, match=r"^params.yaml: no such file; run this where dvc.yaml is$"):
        arguments(["seed=2"])


def test_params_that_are_a_folder_are_one_line(tmp_path, monkeypatch):
    (tmp_path / "params.yaml").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParamsError, match=r"^params.yaml: cannot be read: Is a directory$"):
        arguments(["seed=2"])
