"""Worlds by name: ``world_spec("alfworld")``, ``world_spec("package.module:SPEC")`` for anybody's own.

A world's module is imported only when it is asked for, so the core needs no world's package. A package of somebody else
adds a name by an entry point in the group ``agentprm.worlds``.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from agentprm_core.errors import DataError
from agentprm_core.worlds.base import Observation, UnsupportedGame, World, WorldSpec

GROUP = "agentprm.worlds"
_OURS = {
    "alfworld": "agentprm_core.worlds.alfworld.spec:ALFWORLD",
    "alfworld-textworld": "agentprm_core.worlds.alfworld.spec:TEXTWORLD",
    "alfworld-remembering": "agentprm_core.worlds.alfworld.spec:REMEMBERING",
    "alfworld-training": "agentprm_core.worlds.alfworld.spec:TRAINING",
    "alfworld-unlisted": "agentprm_core.worlds.alfworld.spec:UNLISTED",
    "textcraft": "agentprm_core.worlds.textcraft.spec:TEXTCRAFT",
    "webshop": "agentprm_core.worlds.webshop.spec:WEBSHOP",
    "babyai": "agentprm_core.worlds.babyai.spec:BABYAI",
    "arithmetic": "agentprm_core.worlds.arithmetic.spec:ARITHMETIC",
    "arithmetic-plain": "agentprm_core.worlds.arithmetic.spec:PLAIN",
    "gsm8k": "agentprm_core.worlds.gsm8k.spec:GSM8K",
    "mmlu": "agentprm_core.worlds.mmlu.spec:MMLU",
    "all_worlds": "agentprm_core.worlds.all_worlds.spec:ALL_WORLDS",
}
_PACKAGES = {
    "regex": "pip install regex",
    "minigrid": "pip install minigrid==3.2.0 gymnasium==1.4.0",
    "gymnasium": "pip install gymnasium==1.4.0",
    "alfworld": "pip install alfworld==0.4.2",
}
"""Module that a world of ours imports → how to install it. A stranger's module may be of a package of another name."""


def world_names() -> tuple[str, ...]:
    """The worlds that have a name here: ours, and those of installed packages."""
    return (*_OURS, *sorted(point.name for point in entry_points(group=GROUP)))


def world_module(name: str) -> str:
    """The module that has the spec of a world of ours, or of anybody's ``package.module:ATTRIBUTE``."""
    return _OURS.get(name, name).partition(":")[0]


def world_of(named: str, trained: str) -> str:
    """The name that the world ``named`` can be imported by. Games have their world's own name, which for somebody's own
    world is no name here: then it is ``trained``, the world that a policy was trained in, where that one plays them.

    Raises DataError where neither is; says what to give.
    """
    if ":" in named or named in world_names():
        return named
    with suppress(DataError):
        spec = world_spec(trained)
        if named in (spec.name, spec.texts, *spec.members):
            return trained
    raise DataError(f"{named!r} is no world's name here: give --world package.module:SPEC, as env.world has it")


@cache
def world_spec(name: str) -> WorldSpec:
    """The spec of a world by its name, or by ``package.module:ATTRIBUTE``.

    Raises:
        DataError: nothing of this name; says which there are.
    """
    theirs = {point.name: point.value for point in entry_points(group=GROUP)}
    where = name if ":" in name else ({**theirs, **_OURS}).get(name)
    if where is None:
        raise DataError(f"{name!r} is not one of {', '.join(world_names())}, nor package.module:SPEC{_hint(name)}")
    module, _, attribute = where.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        unknown = f"{module}.".startswith(f"{error.name}.")  # the module that is asked for, not one that it imports
        there = "; is the folder that it lies in the current one, or on PYTHONPATH?" if unknown else ""
        raise DataError(f"{name!r} cannot be imported: {error}{to_install(error) or there}") from error
    except (ImportError, AttributeError) as error:
        raise DataError(f"{name!r} cannot be imported: {error}") from error
    except Exception as error:  # a stranger's module may raise anything while it is read
        raise DataError(f"{name!r} cannot be imported: {type(error).__name__}: {error}") from error
    if not isinstance(found, WorldSpec):
        raise DataError(f"{name!r} is a {type(found).__name__}, not a WorldSpec")
    return found


def _hint(name: str) -> str:
    """What is missing where ``name`` is that of a module, or of its file."""
    is_file = name.endswith(".py") and not name.startswith("/")
    module = ".".join(Path(name).with_suffix("").parts) if is_file else name
    if not all(part.isidentifier() for part in module.split(".")):
        return "; a world of your own is named by its module and its spec, as in my_module:SPEC"
    with suppress(ValueError):  # of __main__
        if is_file or "." in module or find_spec(module):
            return f"; did you mean {module}:SPEC?"
    return ""


def to_install(error: ModuleNotFoundError) -> str:
    """How to install a missing package that a world of ours needs, to be put behind the error; empty for any other."""
    how = _PACKAGES.get(error.name or "")
    return f": {how}" if how else ""


def measured_in(name: str) -> str:
    """The world that policies trained in the world ``name`` are measured in: itself, but for one with an aid
    (``WorldSpec.measured_in``). A name that cannot be imported stays as it is."""
    try:
        return world_spec(name).measured_in or name
    except DataError:
        return name


def make_world(name: str) -> World:
    """A fresh, un-reset world. Raises as :func:`world_spec`."""
    return world_spec(name).make()


__all__ = [
    "Observation",
    "UnsupportedGame",
    "World",
    "WorldSpec",
    "make_world",
    "measured_in",
    "to_install",
    "world_module",
    "world_names",
    "world_of",
    "world_spec",
]
