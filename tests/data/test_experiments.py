"""Experiments: every run.sh asks DVC for parameters that are valid, stages that exist and names of its own. What is
compared learns from the same plays. params.yaml stays as it was, and the newest experiment of a name is kept."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from dvc.utils.hydra import apply_overrides

from tasks.frame.params import PARAMS, Params, validate
from tasks.frame.profile import PROFILES, arguments

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "experiments").glob("*/run.sh"))
ON_DEVICES = [
    (path, device) for path in SCRIPTS for device in ("cpu", "cuda") if device == "cpu" or "DEVICE" in path.read_text()
]
DVC = '#!/bin/sh\nprintf "%s\\t" "$@" >> calls\necho >> calls\necho >> params.yaml\n'
PYTHON = f"""#!/bin/sh
[ "$2" = tasks.frame.profile ] && exec {sys.executable} "$@"
echo "$@" >> runs
"""
"""Profiles are looked up. Whatever else an experiment runs is written down."""
NOTING = """#!/bin/sh
[ "$2" = tasks.frame.profile ] || { echo "$@" >> runs && exit; }
shift 2
printf "%s\\t" "$@" >> words
echo >> words
echo -S "@$(wc -l <words)"
"""
"""Profiles are not looked up but written down: that takes seconds, and :func:`experiments` does it in this process."""
EQUAL_PLAYS = (
    *("05-training-signals", "06-success-against-compute", "07-labels", "12-rollouts", "13-shaping"),
    *("28-paper-b-worlds", "29-rivals"),
)
"""Experiments whose methods do not all learn from branched states."""


def project(folder: Path, dvc: str = DVC, python: str = PYTHON) -> Path:
    """The experiments with this tree's parameters, and these scripts in the tools' place."""
    (folder / PROFILES).mkdir()
    for path in (PARAMS, *(PROFILES / found.name for found in (ROOT / PROFILES).glob("*.yaml"))):
        (folder / path).write_text((ROOT / path).read_text())
    for made in ("checkpoints/prm/1", "evaluations", "games", "metrics"):
        (folder / "data" / made).mkdir(parents=True)
    tools = folder / ".venv/bin"
    tools.mkdir(parents=True)
    for name, script in (("dvc", dvc), ("python", python)):
        (tools / name).write_text(script)
        (tools / name).chmod(0o755)
    for name in ("experiments", "agentprm_core", "benchmarks"):  # env.code must be there
        (folder / name).symlink_to(ROOT / name)
    return folder


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Profiles are read where params.yaml is."""
    monkeypatch.chdir(ROOT)


def run(folder: Path, *command: str | Path, **variables: str) -> int:
    environment = os.environ | {"PATH": f"{folder / '.venv/bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment | variables).returncode


def calls(folder: Path) -> list[list[str]]:
    """Arguments of each call of dvc."""
    return [line.rstrip("\t").split("\t") for line in (folder / "calls").read_text().splitlines()]


def experiments(folder: Path) -> dict[str, tuple[Params, list[str]]]:
    """The valid parameters and the targets of each experiment that dvc was asked for, by its name in the end."""
    found = {}
    asked = calls(folder) if (folder / "calls").exists() else []
    for ran, renamed in zip(asked[::2], asked[1::2], strict=True):
        assert ran[:3] == ["exp", "run", "-n"]
        assert renamed[:-1] == ["exp", "rename", "-f", ran[3]]
        name, rest = renamed[-1], ran[4:]
        assert name not in found
        overrides = [rest[i + 1] for i, word in enumerate(rest) if word == "-S"]
        if overrides and overrides[0].startswith("@"):
            line = (folder / "words").read_text().splitlines()[int(overrides[0][1:]) - 1]
            overrides = arguments(line.rstrip("\t").split("\t"))
        targets = [word for i, word in enumerate(rest) if word != "-S" and (i == 0 or rest[i - 1] != "-S")]
        params = folder / "overridden.yaml"
        params.write_text((ROOT / PARAMS).read_text())
        apply_overrides(params, overrides)
        found[name] = validate(yaml.safe_load(params.read_text()), " ".join(ran)), targets
    return found


@pytest.mark.parametrize(
    ("script", "device"), ON_DEVICES, ids=[f"{path.parent.name}-{device}" for path, device in ON_DEVICES]
)
def test_an_experiment_asks_for_what_can_be(script, device, tmp_path):
    folder, name = project(tmp_path, python=NOTING), script.parent.name
    assert run(folder, "sh", "-eu", script, ALFWORLD_DATA="games", DEVICE=device) == 0
    assert (folder / PARAMS).read_text() == (ROOT / PARAMS).read_text()  # nothing is left to the next experiment
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    for params, targets in experiments(folder).values():
        for target in targets:
            stage, _, number = target.partition("@")
            assert ("foreach" in stages[stage]) == bool(number)
            if not number:
                continue
            assert number in (params.policies if stage == "evaluate" else params.iterations)
        if name in EQUAL_PLAYS:
            assert params.rollout.branch.train_states == params.rollout.branch.random_states == 0
        assert params.compute.device == (device if "DEVICE" in script.read_text() else "cpu")
    runs = folder / "runs"
    for line in runs.read_text().splitlines() if runs.exists() else []:
        module = line.split()[1]
        assert (ROOT / f"{module.replace('.', '/')}.py").exists()


def test_names_of_experiments_are_their_own(tmp_path):
    names = []
    for number, script in enumerate(SCRIPTS):
        (folder := tmp_path / str(number)).mkdir()
        assert run(project(folder, python=NOTING), "sh", "-eu", script, ALFWORLD_DATA="games") == 0
        names += experiments(folder)
    assert len(names) == len(set(names)) > 40


def test_a_model_has_one_command():
    """A recipe makes no folder of a model twice: the second command would find the first one's model there."""
    made = [
        (script, out) for script in SCRIPTS for out in re.findall(r"make_chat_model --out (\S+)", script.read_text())
    ]
    assert len(made) == len(set(made)) > 10


def test_signals_learn_from_the_same_episodes_in_groups(tmp_path):
    assert run(project(tmp_path, python=NOTING), "sh", "-eu", ROOT / "experiments/05-training-signals/run.sh") == 0
    asked = {name: params for name, (params, _) in experiments(tmp_path).items()}
    assert len(asked) == 7
    groups = asked["signals-grpo"].rollout
    assert {params.rollout for params in asked.values()} == {groups}
    assert (groups.games, groups.episodes_per_game) == (450, 8)


def test_words_are_profiles_keys_and_targets(tmp_path):
    words = ["rft", "rollout.games=900", "evaluate.decoding=[greedy, best_of_4]", "--", "evaluate@0", "evaluate@1"]
    assert run(project(tmp_path), "sh", "experiments/run", "few", *words) == 0
    (params, targets) = experiments(tmp_path)["few"]
    assert (params.method.name, params.rollout.games) == ("rft", 900)
    assert params.evaluate.decoding == ("greedy", "best_of_4")
    assert targets == ["evaluate@0", "evaluate@1"]


def test_a_recipe_runs_only_the_experiments_that_are_named(tmp_path):
    folder = project(tmp_path, python=NOTING)
    run(folder, "sh", ROOT / "experiments/23-worlds/run.sh", ONLY="webshop-400 babyai-few")
    assert list(experiments(folder)) == ["webshop-400", "babyai-few"]
    ran = (folder / "runs").read_text()
    assert "side_by_side babyai=." in ran and "handover" not in ran  # that follows webshop-half


def test_words_that_cannot_be_end_before_dvc(tmp_path):
    assert run(project(tmp_path), "sh", "experiments/run", "few", "rollout.gams=900", "--", "evaluate@0") == 2
    assert not (tmp_path / "calls").exists()


@pytest.mark.parametrize("words", [(), ("",), ("--", "sft"), ("seed=2",), ("seed=2", "smoke")])
def test_an_experiment_needs_a_name(words, tmp_path, capfd):
    assert run(project(tmp_path), "sh", "experiments/run", *words) == 2
    assert capfd.readouterr().err == "usage: sh experiments/run NAME [PROFILE or KEY=VALUE]… [-- TARGET…]\n"
    assert not (tmp_path / "calls").exists()


def test_a_prm_of_an_earlier_run_is_not_searched_with(tmp_path):
    folder = project(tmp_path, dvc="#!/bin/sh\nexit 1\n", python=NOTING)
    (folder / ".scratch/experiments/search/orm").mkdir(parents=True)
    run(folder, "sh", ROOT / "experiments/06-success-against-compute/run.sh")
    assert list((folder / ".scratch/experiments/search").iterdir()) == []


def test_commands_on_a_campaign_see_the_parameters_that_it_ran_with(tmp_path):
    folder = project(tmp_path)  # its dvc adds a line to params.yaml
    assert run(folder, "sh", "experiments/run", "one", "seed=2", THEN="cp params.yaml seen && false") == 1
    before = (ROOT / PARAMS).read_text()
    assert (folder / "seen").read_text() == before + 2 * "\n"  # a line by each call of dvc
    assert (folder / PARAMS).read_text() == before


def test_commands_on_a_campaign_name_its_files_by_patterns(tmp_path):
    """Recipes play each of ``data/checkpoints/policy/*``."""
    folder = project(tmp_path)
    assert run(folder, "sh", "experiments/run", "one", "seed=2", THEN="echo data/checkpoints/* >found") == 0
    assert (folder / "found").read_text() == "data/checkpoints/prm\n"


@pytest.mark.parametrize(("end", "code"), [("kill -TERM $PPID", -signal.SIGTERM), ("exit 3", 3)])
def test_an_experiment_that_is_stopped_leaves_params_as_they_were(end, code, tmp_path):
    folder = project(tmp_path, dvc=DVC + end)
    assert run(folder, "sh", "experiments/run", "one", "seed=2") == code
    assert (folder / PARAMS).read_text() == (ROOT / PARAMS).read_text()
    assert [call[:2] for call in calls(folder)] == [["exp", "run"]]  # an experiment of that name stays


def test_what_a_killed_dvc_staged_is_not_left_to_the_next_experiment(tmp_path):
    """With other parameters in git's index than in the file DVC starts no experiment: "Stash apply resulted in merge
    conflicts"."""
    folder = project(tmp_path, dvc=DVC + "git add params.yaml\nexit 137\n")
    assert run(folder, "sh", "-c", "git init -q . && git add params.yaml") == 0
    assert run(folder, "sh", "experiments/run", "one", "seed=2") == 137
    assert run(folder, "git", "diff", "--quiet", "--", "params.yaml") == 0


@pytest.mark.parametrize(("words", "name"), [("smoke rft seed=3", "smoke-rft"), ("rollout.games=32 seed=3 rft", "rft")])
def test_make_runs_profiles_as_an_experiment_of_their_names(words, name, tmp_path):
    folder = project(tmp_path)
    for file in ("Makefile", "requirements.lock", "pyproject.toml"):
        (folder / file).write_text((ROOT / file).read_text())
    (folder / ".venv/.installed").touch()
    assert run(folder, "make", "run", f"PROFILE={words}", MLFLOW_TRACKING_URI="elsewhere") == 0
    params, targets = experiments(folder)[name]
    assert (params.rollout.games, params.method.name, params.seed, targets) == (32, "rft", 3, [])
    assert (folder / PARAMS).read_text() == (ROOT / PARAMS).read_text()
    assert (folder / "runs").read_text() == "-m flows.mend\n-m flows.summary\n"


HOSTILE = (
    "x'; touch stolen; '", "seed=$(touch stolen)", "$(shell touch stolen)", "`touch stolen`", ";touch stolen *"
)  # fmt: skip


@pytest.mark.parametrize("word", HOSTILE)
def test_a_profile_is_never_run(word, tmp_path):
    """Neither make nor a shell takes any of it for a command; it is no profile, and that is said."""
    folder = project(tmp_path)
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        (folder / name).write_text((ROOT / name).read_text())
    (folder / ".venv/.installed").touch()
    assert run(folder, "make", "run", f"PROFILE=few {word}", MLFLOW_TRACKING_URI="elsewhere") == 2
    assert not (folder / "stolen").exists() and not (folder / "calls").exists()


@pytest.mark.slow
def test_an_experiment_replaces_that_of_its_name_and_runs_nothing_twice(tmp_path):
    """By DVC itself, on one stage that counts how often it ran."""
    binaries = Path(sys.executable).parent
    folder = project(tmp_path)
    for name in ("dvc", "python"):
        (folder / ".venv/bin" / name).unlink()
    stages = {"grow": {"cmd": "echo ran >> ran; cp params.yaml out", "params": ["seed"], "outs": ["out"]}}
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    (folder / ".gitignore").write_text("/ran\n/out\n/.venv\n/experiments\n/agentprm_core\n")
    environment = os.environ | {
        "PATH": f"{binaries}:{os.environ['PATH']}", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull,
        "PYTHONPATH": str(ROOT),
        **{f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }  # fmt: skip

    def do(command: str) -> str:
        done = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    do("git init -q . && dvc init -q && git add . && git commit -qm project")
    before = (folder / PARAMS).read_text()
    for seed in (2, 2, 3):
        do(f"sh experiments/run one seed={seed}")
        assert (folder / PARAMS).read_text() == before
        assert do("dvc exp list --name-only").split() == ["one"]
    assert (folder / "ran").read_text().split() == ["ran", "ran"]
    do("dvc exp apply one")
    assert yaml.safe_load((folder / PARAMS).read_text())["seed"] == 3


def test_every_experiment_is_told_and_listed():
    listed = re.findall(
        r"^\| \[\d\d\]\(([\w-]+)/README.md\) \|", (ROOT / "experiments/README.md").read_text(), re.MULTILINE
    )
    assert listed == [path.parent.name for path in SCRIPTS]
    for path in SCRIPTS:
        assert (path.parent / "README.md").read_text().startswith(f"# {path.parent.name[:2]}. ")
