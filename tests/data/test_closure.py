"""Code deps are the import closure: of the real dvc.yaml, and what the tool sees on a small repository."""

from pathlib import Path

import pytest
import yaml

from agentprm_core.errors import DataError
from tasks.frame.closure import CHOSEN, LOCK, NO_EFFECT, NO_EFFECT_HERE, amiss, closure, code_deps, rewritten
from tasks.frame.imports import Source

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "dvc.yaml").read_text()

MODULES = {
    "agentprm_core/__init__.py": "",
    "agentprm_core/evaluate.py": "import math",
    "agentprm_core/idle.py": "from agentprm_core import evaluate",
    "agentprm_core/credit/__init__.py": '"""Only words."""',
    "agentprm_core/credit/split.py": "def side(): ...",
    "agentprm_core/credit/branching.py": "from agentprm_core.credit import split\nimport agentprm_core.policy.sampler",
    "agentprm_core/policy/__init__.py": "from agentprm_core.policy.sampler import Sampler",
    "agentprm_core/policy/sampler.py": "import typing\nif typing.TYPE_CHECKING:\n    import agentprm_core.idle",
    "agentprm_core/policy/trie.py": "import torch",
    "agentprm_core/worlds/__init__.py": 'OURS = ["agentprm_core.worlds.a.spec:A", "agentprm_core.worlds.b:B"]',
    "agentprm_core/worlds/base.py": "",
    "agentprm_core/worlds/a/__init__.py": "",
    "agentprm_core/worlds/a/spec.py": "from agentprm_core.worlds.base import World\nfrom .rules import go",
    "agentprm_core/worlds/a/rules.py": "",
    "agentprm_core/worlds/a/words.txt": "mug",
    "agentprm_core/worlds/b/__init__.py": "from agentprm_core.worlds import shared",
    "agentprm_core/worlds/b/inner.py": "import agentprm_core.idle",
    "agentprm_core/worlds/shared.py": "",
    "agentprm_core/methods/one.py": "import agentprm_core.credit.split",
    "agentprm_core/methods/two.py": "",
    "tasks/frame/stage.py": "from tasks.frame.tracking import Tracker",
    "tasks/frame/tracking.py": "import tasks.frame.only_for_tracking",
    "tasks/frame/only_for_tracking.py": "",
    "tasks/rollout.py": "from tasks.frame.stage import run\ndef late():\n    import agentprm_core.credit.split",
    "tasks/search.py": "from tasks.rollout import share_of\nfrom agentprm_core import worlds",
    "tasks/label.py": "def branching():\n    from agentprm_core.credit.branching import label",
    "tasks/compare.py": "from agentprm_core.evaluate import wins",
    "tasks/policy.py": 'def method(name): return import_module(f"agentprm_core.methods.{name}")',
}

WORLDS = [
    "agentprm_core/worlds/__init__.py", "agentprm_core/worlds/a", "agentprm_core/worlds/b/__init__.py",
    "agentprm_core/worlds/base.py", "agentprm_core/worlds/shared.py",
]  # fmt: skip
"""Code deps of a stage that can play any world: all of ``a``, of ``b`` not what it cannot import."""

BY_HAND = """\
stages:  # with holes
  rollout:
    foreach: ${iterations}
    do:
      cmd: python -m tasks.rollout --iteration ${key}
      deps:
        - tasks/rollout.py
        - data/games  # the games
      params: [seed]
  search:
    cmd: python -m tasks.search
    deps:
      - data/games
      - tasks/search.py
      - agentprm_core/worlds
    outs: [data/searches]

  label:
    cmd: python -m tasks.label
    deps:
      - tasks/label.py
      - agentprm_core/credit
      - requirements.lock
  compare:
    cmd: python -m tasks.compare
    deps:
      - tasks/compare.py
      - agentprm_core/idle.py
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    for name, text in MODULES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / LOCK).touch()
    return tmp_path


def test_dvc_has_the_closure_and_nothing_beside():
    assert amiss(TEXT, ROOT) == {}, "python -m tasks.frame.closure --write"


def test_written_anew_dvc_yaml_stays():
    assert rewritten(TEXT, ROOT) == TEXT


def test_every_stage_depends_on_the_versions():
    assert all(deps[0] == LOCK for deps in code_deps(TEXT, ROOT).values())


def test_what_has_no_effect_is_there():
    source = Source(ROOT)
    assert NO_EFFECT.keys() <= source.paths.keys()
    assert all(imported in source.imports[importer] for importer, imported in NO_EFFECT_HERE)


@pytest.mark.parametrize(
    ("stage", "hole"),
    [
        ("search", "tasks/rollout.py"),
        ("search", "agentprm_core/credit/split.py"),
        ("search", "requirements.lock"),
        ("rollout", "agentprm_core/credit/split.py"),
        ("rollout", "tasks/frame/stage.py"),
        ("rollout", "requirements.lock"),
        ("label", "agentprm_core/policy/sampler.py"),
        ("label", "agentprm_core/policy/__init__.py"),
        ("compare", "agentprm_core/evaluate.py"),
        ("compare", "requirements.lock"),
    ],
)
def test_a_hole_is_found(small, stage, hole):
    missing, _ = amiss(BY_HAND, small)[stage]
    assert hole in missing


def test_what_a_stage_cannot_import_is_found(small):
    assert amiss(BY_HAND, small)["compare"][1] == ["agentprm_core/idle.py"]


def test_a_dep_that_is_not_there_is_named(small):
    with pytest.raises(DataError, match=r"dvc.yaml: tasks/gone.py: no such file or folder"):
        amiss(BY_HAND.replace("tasks/label.py", "tasks/gone.py"), small)


def test_a_module_that_is_not_there_is_named(small):
    with pytest.raises(DataError, match=r"tasks.gone: no such module"):
        code_deps(BY_HAND.replace("tasks.label", "tasks.gone"), small)


def test_deps_are_written_line_by_line_and_all_else_stays(small):
    text = rewritten(BY_HAND, small)
    assert amiss(text, small) == {}
    assert rewritten(text, small) == text
    before, after = yaml.safe_load(BY_HAND)["stages"], yaml.safe_load(text)["stages"]
    assert after["search"]["deps"] == [
        "requirements.lock", "agentprm_core/credit/split.py", *WORLDS, "tasks/frame/stage.py", "tasks/rollout.py",
        "tasks/search.py", "data/games",
    ]  # fmt: skip
    assert [line for line in text.splitlines() if "- " not in line] == [
        line for line in BY_HAND.splitlines() if "- " not in line
    ]
    assert "data/games  # the games" in text
    assert before["rollout"]["do"]["params"] == after["rollout"]["do"]["params"]


def test_deps_in_one_line_are_refused(small):
    with pytest.raises(DataError, match="deps of compare: write one a line"):
        rewritten("stages: {compare: {cmd: python -m tasks.compare, deps: [tasks/compare.py, data/x]}}", small)


def test_the_world_that_params_choose_stands_for_all(small):
    text = BY_HAND.replace("- agentprm_core/worlds", f"- {CHOSEN}")
    deps = code_deps(text, small)
    assert deps["search"] == [
        "requirements.lock", "agentprm_core/credit/split.py", "agentprm_core/worlds/__init__.py",
        "agentprm_core/worlds/base.py", "agentprm_core/worlds/shared.py", "tasks/frame/stage.py", "tasks/rollout.py",
        "tasks/search.py", CHOSEN,
    ]  # fmt: skip
    assert CHOSEN not in deps["compare"]
    written = rewritten(text, small)
    assert amiss(written, small) == {}
    assert (
        "agentprm_core/worlds/b/__init__.py"
        in amiss(written.replace(f"- {CHOSEN}\n", f"- {LOCK}\n"), small)["search"][0]
    )


def test_what_another_world_imports_of_a_world_does_not_stand_apart(small):
    (small / "agentprm_core/worlds/b/__init__.py").write_text("from agentprm_core.worlds.a import rules")
    (small / "agentprm_core/worlds/a/rules.py").write_text("from agentprm_core.worlds.a import more")
    (small / "agentprm_core/worlds/a/more.py").touch()
    deps = code_deps(BY_HAND.replace("- agentprm_core/worlds", f"- {CHOSEN}"), small)["search"]
    assert {"agentprm_core/worlds/a/rules.py", "agentprm_core/worlds/a/more.py", CHOSEN} <= set(deps)
    assert "agentprm_core/worlds/a/spec.py" not in deps


def test_a_registry_of_names_and_a_name_that_is_put_together_count(small):
    source = Source(small)
    assert "agentprm_core.worlds.a.spec" in closure(source, "tasks.search")
    assert {"agentprm_core.methods.one", "agentprm_core.methods.two"} <= closure(source, "tasks.policy")
    assert "agentprm_core/worlds/a/words.txt" in {str(file) for file in source.content(Path("agentprm_core/worlds"))}


def test_imports_for_types_and_what_has_no_effect_do_not_count(small):
    source = Source(small)
    assert "agentprm_core.idle" not in closure(source, "tasks.label")
    assert not {"tasks.frame.tracking", "tasks.frame.only_for_tracking"} & closure(source, "tasks.rollout")
