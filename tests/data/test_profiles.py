"""Profiles: every one fits params.yaml, keeps its comments when written, and reaches ``dvc exp run`` unchanged."""

import sys
from pathlib import Path

import pytest
import yaml
from dvc.utils.hydra import apply_overrides

from tasks.frame.params import PARAMS, ParamsError, load_params, validate
from tasks.frame.profile import PROFILES, apply_profile, arguments, load_profile, main, overridden

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (ROOT / PROFILES).glob("*.yaml"))
MORE = {"alfworld": ["games.published_root=/data/alfworld"]}
"""What has to be said beside a profile."""


@pytest.fixture
def project(tmp_path):
    (tmp_path / PROFILES).mkdir()
    for path in [PARAMS, *(PROFILES / f"{name}.yaml" for name in NAMES)]:
        (tmp_path / path).write_text((ROOT / path).read_text())
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_written_is_the_profile_given_to_dvc(name, project):
    more = MORE.get(name, ())
    overrides = load_profile(name, ROOT / PROFILES, more)
    wanted = overridden(yaml.safe_load((ROOT / PARAMS).read_text()), overrides)
    valid = validate(wanted, name)
    apply_profile(name, project, more)
    assert load_params(project / PARAMS) == valid
    assert "# The one set of numbers" in (project / PARAMS).read_text()
    (project / PARAMS).write_text((ROOT / PARAMS).read_text())
    apply_overrides(project / PARAMS, list(arguments(overrides)))
    assert load_params(project / PARAMS) == valid


def test_a_profile_with_a_wrong_key_changes_nothing(project):
    before = (project / PARAMS).read_text()
    (project / PROFILES / "odd.yaml").write_text("rollout: {gams: 3}")
    with pytest.raises(
        ParamsError, match=r"^profiles/odd.yaml over params.yaml: rollout.gams: 3 is not allowed: unknown key"
    ):
        apply_profile("odd", project)
    assert (project / PARAMS).read_text() == before


def test_an_unknown_profile_names_those_there_are(project):
    with pytest.raises(ParamsError, match=r"no such profile; there are: .*smoke"):
        load_profile("smok", project / PROFILES)


def test_there_are_profiles_for_other_games_and_machines():
    assert {"alfworld", "gpu", "inverse", "llama3b", "smoke"} <= set(NAMES)


def test_published_games_are_somewhere(project):
    before = (project / PARAMS).read_text()
    with pytest.raises(ParamsError, match=r"games.published_root: None is not allowed: the folder alfworld-download"):
        apply_profile("alfworld", project)
    assert (project / PARAMS).read_text() == before


def test_more_overrides_win_over_the_profile(project):
    found = load_profile("smoke", project / PROFILES, ["games.train=2000", "model.lora.rank=4", "label.reference=null"])
    assert (found["games"], found["model"]["lora"]) == ({"train": 2000, "seen": 24, "unseen": 24}, {"rank": 4})
    assert found["label"]["reference"] is None and "min_std" in found["label"]
    with pytest.raises(ParamsError, match=r"^games.train: not an override like rollout.games=100"):
        load_profile("smoke", project / PROFILES, ["games.train"])


def test_the_command_line_takes_more_overrides(project, monkeypatch, capsys):
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "argv", ["profile", "alfworld", "games.published_root=/data/alfworld"])
    main()
    assert "-S games.published_root=/data/alfworld" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["profile", "alfworld"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2


def test_inverse_lets_no_outcome_decide():
    params = overridden(yaml.safe_load((ROOT / PARAMS).read_text()), load_profile("inverse", ROOT / PROFILES))
    valid = validate(params, "inverse")
    assert not valid.prm.require_ranking  # the ranking is measured by outcomes
    assert (valid.policy.imitation, valid.policy.margin, valid.rollout.branch.train_states) == (0, 0, 0)
    assert valid.rollout.branch.random_states == 0
