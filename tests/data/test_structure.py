"""The shape of the tree: who imports whom, and how long things are."""

import ast
import re
from pathlib import Path

import pytest

from tasks.frame.imports import Source

ROOT = Path(__file__).parents[2]
SOURCE = Source(ROOT)
ORDER = ("agentprm_core", "tasks", "flows")
"""A package imports itself and those before it."""


def top(module: str) -> str:
    return module.partition(".")[0]


def named(module: str) -> set[str]:
    """What a module imports by statements; names in strings are looked up when they are asked for."""
    tree = ast.parse((ROOT / SOURCE.paths[module]).read_text())
    text = {
        node.value.partition(":")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return {other for other in SOURCE.imports[module] if other not in text and other != module}


def leading(packages: tuple[str, ...]) -> dict[str, set[str]]:
    modules = [module for module in SOURCE.paths if top(module) in packages]
    return {module: {other for other in named(module) if other in SOURCE.paths} & {*modules} for module in modules}


@pytest.mark.parametrize("package", ORDER)
def test_arrows_point_to_the_core(package):
    later = ORDER[ORDER.index(package) + 1 :]
    inside = [module for module in SOURCE.paths if top(module) == package]
    assert inside
    back = [(module, other) for module in inside for other in SOURCE.imports[module] if top(other) in later]
    assert back == []


def test_the_core_imports_no_orchestration():
    others = "prefect|dvc|mlflow|great_expectations|pydantic|tasks|flows"
    found = re.compile(rf"^\s*(import|from) ({others})\b", re.MULTILINE)
    core = [path for module, path in SOURCE.paths.items() if top(module) == "agentprm_core"]
    assert [str(path) for path in core if found.search((ROOT / path).read_text())] == []


def cycles(leads: dict[str, set[str]]) -> list[list[str]]:
    """Each module that leads back to itself, with what lies between: shortest first."""
    found = []
    for start in leads:
        before: dict[str, str] = {}
        waiting = [start]
        while waiting and start not in before:
            module = waiting.pop(0)
            for other in sorted(leads[module] - before.keys()):
                before[other] = module
                waiting.append(other)
        if start in before:
            path = [start]
            while before[path[-1]] != start:
                path.append(before[path[-1]])
            found.append([start, *reversed(path)])
    return found


def test_a_cycle_is_found():
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [["b", "c", "b"], ["c", "b", "c"]]
    assert cycles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_no_module_leads_back_to_itself():
    assert [" → ".join(path) for path in cycles(leading(ORDER))] == []


def test_a_stage_is_short():
    lengths = {path.name: len(path.read_text().splitlines()) for path in (ROOT / "tasks").glob("*.py")}
    assert lengths and {name: lines for name, lines in lengths.items() if lines >= 120} == {}


def test_a_check_of_params_is_short():
    tree = ast.parse((ROOT / "tasks/frame/odds.py").read_text())
    lengths = {node.name: node.end_lineno - node.lineno + 1 for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert lengths and {name: lines for name, lines in lengths.items() if lines > 20} == {}


COMMANDS = [path for folder in ("benchmarks", "flows", "tasks/commands") for path in (ROOT / folder).glob("*.py")]


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_numbers_and_lists_of_a_command_line_are_checked(path):
    """By a type of ``agentprm_core.arguments``: a negative limit or a name that is there twice is said at once."""
    assert not re.search(r"type=(int|float|lambda)\b", path.read_text())
