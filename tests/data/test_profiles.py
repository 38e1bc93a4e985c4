"""Profiles: every one fits params.yaml, several go together, and they reach ``dvc exp run`` unchanged."""

import sys

import pytest
import yaml
from dvc.utils.hydra import apply_overrides

from agentprm_core.search.decoding_config import LIKELIHOOD, PRM, decoding
from tasks.frame.params import PARAMS, ParamsError, load_params, validate
from tasks.frame.profile import PROFILES, apply, arguments, asked_for, differences, load_profile, main, overridden
from tests.data.project import ROOT, raw_params

NAMES = sorted(path.stem for path in (ROOT / PROFILES).glob("*.yaml"))
WORLDS = ["all_worlds", "arithmetic", "babyai", "textcraft", "webshop"]
TOGETHER = [
    *([name] for name in NAMES),
    *(["smoke", world] for world in WORLDS),
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


def test_an_unknown_profile_names_those_there_are(project):
    with pytest.raises(ParamsError, match=r"no such profile; there are: .*smoke"):
        load_profile("smok", project / PROFILES)


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
