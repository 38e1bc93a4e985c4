"""Profiles: every one fits params.yaml, keeps its comments when written, and reaches ``dvc exp run`` unchanged."""

from pathlib import Path

import pytest
import yaml
from dvc.utils.hydra import apply_overrides

from tasks.params import PARAMS, ParamsError, validate
from tasks.profile import PROFILES, apply_profile, arguments, load_profile, overridden

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (ROOT / PROFILES).glob("*.yaml"))


@pytest.fixture
def project(tmp_path):
    (tmp_path / PROFILES).mkdir()
    for path in [PARAMS, *(PROFILES / f"{name}.yaml" for name in NAMES)]:
        (tmp_path / path).write_text((ROOT / path).read_text())
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_written_is_the_profile_given_to_dvc(name, project):
    wanted = overridden(yaml.safe_load((ROOT / PARAMS).read_text()), load_profile(name, ROOT / PROFILES))
    validate(wanted, name)
    apply_profile(name, project)
    assert yaml.safe_load((project / PARAMS).read_text()) == wanted
    assert "# The one set of numbers" in (project / PARAMS).read_text()
    (project / PARAMS).write_text((ROOT / PARAMS).read_text())
    apply_overrides(project / PARAMS, list(arguments(load_profile(name, ROOT / PROFILES))))
    assert yaml.safe_load((project / PARAMS).read_text()) == wanted


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
