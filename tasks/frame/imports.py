"""The modules of this repository and what each imports, read from the source.

Imports at the top and inside functions count, those under ``if TYPE_CHECKING`` do not. A string that names a module of
this repository (``"agentprm_core.worlds.alfworld.spec:ALFWORLD"``, as registries have it) counts as an import of it,
and an f-string that begins with a package (``f"agentprm_core.methods.{name}"``) as an import of all of it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeGuard

PACKAGES = ("agentprm_core", "tasks", "flows", "benchmarks")
"""The top packages of this repository."""

_MODULE = re.compile(r"\w+(\.\w+)+(:\w+)?")
_PACKAGE = re.compile(rf"({'|'.join(PACKAGES)})\.(\w+\.)*")


@dataclass(frozen=True)
class Source:
    """The Python files of a repository, each read once. Paths are relative to the root."""

    root: Path

    @cached_property
    def paths(self) -> Mapping[str, Path]:
        """Module → its file."""
        files = [file.relative_to(self.root) for top in PACKAGES for file in sorted((self.root / top).rglob("*.py"))]
        return {_module(file): file for file in files}

    @cached_property
    def imports(self) -> Mapping[str, frozenset[str]]:
        """Module → the modules of this repository that it names."""
        return {name: frozenset(self._resolved(name)) for name in self.paths}

    def content(self, folder: Path) -> set[Path]:
        """The files in a folder and below that can decide something: modules, and data beside them."""
        inside = {file for file in self.paths.values() if file.is_relative_to(folder)}
        data = {file for below in {file.parent for file in inside} for file in self.data(below)}
        return {file for file in inside if not self.says_nothing(file)} | data

    def data(self, folder: Path) -> set[Path]:
        """The files of a folder that are not Python."""
        files = (file for file in (self.root / folder).iterdir() if file.is_file())
        return {file.relative_to(self.root) for file in files if file.suffix not in (".py", ".pyc")}

    def says_nothing(self, file: Path) -> bool:
        """Whether this is the ``__init__`` of a package, and has no code."""
        return file.name == "__init__.py" and all(map(_is_text, self._trees[_module(file)].body))

    @cached_property
    def _trees(self) -> Mapping[str, ast.Module]:
        return {name: ast.parse((self.root / file).read_text(), str(file)) for name, file in self.paths.items()}

    def _resolved(self, name: str) -> Iterator[str]:
        package = name if self.paths[name].name == "__init__.py" else name.rpartition(".")[0]
        for node in _running(self._trees[name]):
            for named in _named(node, package):
                if named.endswith("."):
                    yield from (module for module in self.paths if module.startswith(named))
                elif named in self.paths:
                    yield named


def _module(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all below it that can run."""
    yield node
    for child in node.orelse if _for_types(node) else ast.iter_child_nodes(node):
        yield from _running(child)


def _for_types(node: ast.AST) -> TypeGuard[ast.If]:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def _named(node: ast.AST, package: str) -> Iterator[str]:
    """What a node may name of this repository's modules; with a dot at its end: all modules of a package."""
    match node:
        case ast.Import():
            yield from (alias.name for alias in node.names)
        case ast.ImportFrom():
            parts = package.split(".")
            above = parts[: len(parts) + 1 - node.level] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        case ast.Constant(value=str(text)) if _MODULE.fullmatch(text):
            yield text.partition(":")[0]
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]) if _PACKAGE.fullmatch(text):
            yield text


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
