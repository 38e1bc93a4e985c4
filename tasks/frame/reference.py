"""docs/reference/params.md from the dataclasses that params.yaml is read into: keys, types, ranges, what they say.

    python -m tasks.frame.reference            # print it
    python -m tasks.frame.reference --write    # into docs/reference/params.md

What is said of a key is the docstring under its field. A test holds the file to the code.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import types
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from agentprm_core.config import Range
from agentprm_core.datasets import atomic_write
from agentprm_core.methods.critic_base import CriticConfig
from agentprm_core.methods.critics import CRITICS, critic_module
from agentprm_core.methods.methods import METHODS, method_module
from agentprm_core.methods.update_base import UpdateConfig
from agentprm_core.policy.starting import PublishedModel, ScratchModel
from tasks.frame.params import Params

PAGE = Path("docs/reference/params.md")
_HEAD = """# Parameters

<!-- Made by `python -m tasks.frame.reference --write`. -->

Every key of `params.yaml`. None has a default: the file names them all. `critic`, `method` and `model` hold the keys of
whatever their `name` (or `source`) says.
"""
_PLAIN = {int: "integer", float: "number", bool: "true or false", str: "text"}
_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


_VARIED = {
    "critic": (CriticConfig, CRITICS, critic_module, "methods"),
    "method": (UpdateConfig, METHODS, method_module, "methods"),
}


def page() -> str:
    """The whole reference, as Markdown."""
    parts, alone = [_HEAD], []
    for name, hint in get_type_hints(Params, include_extras=True).items():
        if name in _VARIED:
            parts += _varied(name, *_VARIED[name])
        elif name == "model":
            parts += _models()
        elif isinstance(hint, type) and is_dataclass(hint):
            parts += [f"## {name}\n\n{_docstring(hint)}\n", _table(_rows(hint, name))]
        else:
            alone += [(name, hint, _said(Params).get(name, ""))]
    loop = [row for name, hint, said in alone for row in _row(name, hint, said)]
    return "\n".join([*parts, "## The rest\n", _table(loop)])


def _varied(section: str, shared: type, names: dict[str, str], find: Any, folder: str) -> Iterator[str]:
    named = ", ".join(f"`{name}`" for name in names)
    yield f"## {section}\n\n{_docstring(shared)} `{section}.name` is one of {named}.\n"
    yield _table(_rows(shared, section))
    common = {field.name for field in fields(shared)}
    for name in names:
        rows = [row for row in _rows(find(name).Config, section) if row[0].split(".")[1] not in common]
        yield f"### {section}.name: {name}\n\n[What it is](../{folder}/{name}.md).\n"
        yield _table(rows) if rows else "No keys of its own.\n"


def _models() -> Iterator[str]:
    yield "## model\n\nWhere a policy starts.\n"
    for said, cls in (("scratch", ScratchModel), ("a folder or a Hugging Face id", PublishedModel)):
        yield f"### model.source: {said}\n\n{_docstring(cls)}\n"
        yield _table(_rows(cls, "model"))


def _table(rows: list[tuple[str, str, str]]) -> str:
    lines = [f"| `{key}` | {kind} | {said} |" for key, kind, said in rows]
    return "\n".join(["| key | value | what |", "|---|---|---|", *lines]) + "\n"


def _rows(cls: type, prefix: str) -> list[tuple[str, str, str]]:
    """(key, type and range, what) of each field, those of inner sections after their own."""
    hints, said = get_type_hints(cls, include_extras=True), _said(cls)
    return [row for f in fields(cls) for row in _row(f"{prefix}.{f.name}", hints[f.name], said.get(f.name, ""))]


def _row(key: str, hint: Any, said: str) -> Iterator[tuple[str, str, str]]:
    yield key, _kind(hint), said
    if get_origin(hint) is dict:
        yield from _rows(get_args(hint)[1], f"{key}.N")
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for member in members:
        if isinstance(member, type) and is_dataclass(member):
            yield from _rows(member, key)


def _kind(hint: Any) -> str:
    """A type with its range, in words."""
    if get_origin(hint) is Annotated:
        plain, *notes = get_args(hint)
        limits = [
            f"{words} {_number(getattr(note, name))}"
            for note in notes
            if isinstance(note, Range)
            for name, words in _BOUNDS.items()
            if getattr(note, name) is not None
        ]
        return ", ".join([_kind(plain), *limits])
    if get_origin(hint) is Literal:
        values = (str(value).lower() if isinstance(value, bool) else value for value in get_args(hint))
        return ", ".join(f"`{value}`" for value in values)
    if get_origin(hint) in (Union, types.UnionType):
        parts = sorted(get_args(hint), key=lambda part: part is not type(None))
        return " or ".join(dict.fromkeys(_kind(part) for part in parts))
    if hint is type(None):
        return "null"
    if get_origin(hint) is tuple:
        return f"list of {_kind(get_args(hint)[0])}"
    return _PLAIN.get(hint, "section")


def _docstring(cls: type) -> str:
    return _plain(inspect.getdoc(cls) or "")


@cache
def _said(cls: type) -> dict[str, str]:
    """What stands under each field, those of the classes before it too."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not is_dataclass(base):
            continue
        (tree,) = ast.parse(inspect.cleandoc(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        for field, after in zip(tree.body, tree.body[1:]):
            words = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(words, str):
                found[field.target.id] = _plain(inspect.cleandoc(words)).replace("|", "\\|")
    return found


def _plain(text: str) -> str:
    """Markdown of a docstring."""
    return " ".join(re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`").split())


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tasks.frame.reference", description="docs/reference/params.md from the code"
    )
    parser.add_argument("--write", action="store_true", help=f"into {PAGE} instead of printing")
    if not parser.parse_args().write:
        print(page(), end="")
        return
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(PAGE) as aside:
        aside.write_text(page())


if __name__ == "__main__":
    main()
