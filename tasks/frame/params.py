"""Reading params.yaml. No key has a default: it is the one set of numbers.

What is wrong with it is one line that names the key, the value and what is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import make_dataclass
from pathlib import Path
from typing import get_type_hints

import yaml

from agentprm_core.errors import DataError
from agentprm_core.methods.critics import critic_module
from agentprm_core.methods.methods import method_module
from agentprm_core.policy.starting import PublishedModel, ScratchModel
from tasks.frame.odds import at_odds
from tasks.frame.sections import Params, refused
from tasks.frame.validation import Refused, build

PARAMS = Path("params.yaml")


class ParamsError(ValueError):
    """params.yaml cannot be used. One line: the key, its value, what is allowed."""


def load_params(path: Path = PARAMS) -> Params:
    """The whole of params.yaml, validated.

    Raises:
        ParamsError: not there, not YAML, a key too many or too few, a value out of range, or values at odds.
    """
    return validate(read_mapping(path), path.name)


class _Loader(yaml.SafeLoader):
    """Refuses a key that a mapping has twice; PyYAML takes the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        lines: dict[str, int] = {}
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            line = key.start_mark.line + 1
            if key.value in lines:
                raise yaml.constructor.ConstructorError(
                    problem=f"key {key.value!r} is there twice, in lines {lines[key.value]} and {line}"
                )
            lines[key.value] = line
        return super().construct_mapping(node, deep)


def read_mapping(path: Path) -> dict:
    """A file of YAML that holds one mapping. Raises ParamsError for one that is not there, or anything else."""
    try:
        found = yaml.load(path.read_text(), _Loader)
    except FileNotFoundError:
        raise ParamsError(f"{path}: no such file; run this where dvc.yaml is") from None
    except OSError as error:
        raise ParamsError(f"{path}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ParamsError(f"{path}: not readable as YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict):
        raise ParamsError(f"{path}: must be a mapping of sections; it is {found!r:.60}")
    return found


def validate(raw: object, name: str) -> Params:
    """``raw`` as :class:`Params`. Raises ParamsError, whose line starts with ``name``."""
    try:
        read = build(_with_methods(raw), raw)
    except (Refused, DataError) as error:
        raise ParamsError(f"{name}: {refused(error)}") from None
    params = Params(**{field: getattr(read, field) for field in Params.__dataclass_fields__})
    for key, value, allowed in at_odds(params):
        raise ParamsError(f"{name}: {key}: {value!r} is not allowed: {allowed}")
    return params


def _with_methods(raw: object) -> type:
    """Params with the configuration of the critic, the method and the kind of model that ``raw`` names."""
    hints = get_type_hints(Params, include_extras=True)
    chosen = {
        "critic": _config(raw, "critic", critic_module, hints["critic"]),
        "method": _config(raw, "method", method_module, hints["method"]),
        "model": ScratchModel if _said(raw, "model", "source") == "scratch" else PublishedModel,
    }
    return make_dataclass("Params", [(name, chosen.get(name, hint)) for name, hint in hints.items()], frozen=True)


def _config(raw: object, section: str, find, otherwise: type) -> type:
    name = _said(raw, section, "name")
    return find(name).Config if isinstance(name, str) else otherwise


def _said(raw: object, section: str, key: str) -> object:
    inner = raw.get(section) if isinstance(raw, Mapping) else None
    return inner.get(key) if isinstance(inner, Mapping) else None
