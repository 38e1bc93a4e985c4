"""From what a file says to frozen dataclasses: every key there, none besides, each in its range.

Sections are dataclasses of plain values with ranges beside them (:mod:`agentprm_core.config`). Each is made into a
pydantic model that checks types and ranges, and built again as the dataclass, whose own ``__post_init__`` may refuse
values that do not go together. A union is decided by what the file says: null, or the member that has its keys."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model

from agentprm_core.config import Range
from agentprm_core.errors import nearest


class Refused(ValueError):
    """What a file says cannot be used. One line: the key, its value, what is allowed."""


def build(cls: type, raw: object) -> Any:
    """``raw`` as an instance of the dataclass ``cls``. Raises :class:`Refused`."""
    model = _model(cls, raw)
    try:
        return _built(cls, model.model_validate(raw))
    except ValidationError as error:
        raise Refused(_line(error, cls, raw)) from None
    except ValueError as error:
        raise Refused(str(error)) from None


def _model(cls: type, raw: object) -> type[BaseModel]:
    """The pydantic model of a dataclass, unions decided by ``raw``."""
    given = raw if isinstance(raw, Mapping) else {}
    hints = get_type_hints(cls, include_extras=True)
    found = {}
    for field in fields(cls):
        required = field.default is MISSING and field.default_factory is MISSING
        found[field.name] = (_checked(hints[field.name], given.get(field.name)), ... if required else field.default)
    return create_model(cls.__name__, __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=True), **found)


def _checked(hint: Any, raw: object) -> Any:
    """The type that pydantic checks."""
    if get_origin(hint) is Annotated:
        plain, *notes = get_args(hint)
        ranges = [note for note in notes if isinstance(note, Range)]
        (bounds,) = ranges or [Range()]
        limits: dict[str, Any] = {
            name: getattr(bounds, name) for name in Range.__slots__ if getattr(bounds, name) is not None
        }
        others = [note for note in notes if isinstance(note, AfterValidator)]
        strict: dict[str, Any] = (
            {"strict": True} if plain is int else {"allow_inf_nan": False} if plain is float else {}
        )
        return Annotated[_checked(plain, raw), Field(**limits, **strict), *others]
    if get_origin(hint) in (Union, types.UnionType):
        member = _member(hint, raw)
        return hint if member is hint else _checked(member, raw)
    if isinstance(hint, type) and is_dataclass(hint):
        model = _model(hint, raw)
        return Annotated[model, AfterValidator(partial(_built, hint))]
    if get_origin(hint) is dict:
        key, value = get_args(hint)
        one = next(iter(raw.values()), None) if isinstance(raw, Mapping) else None
        return dict[key, _checked(value, one)]
    return Annotated[hint, Field(strict=True)] if hint in (int, bool, str) else hint


def _member(union: Any, raw: object) -> Any:
    """The part of a union that ``raw`` is meant as."""
    parts = get_args(union)
    if raw is None and type(None) in parts:
        return type(None)
    classes = [part for part in parts if is_dataclass(part)]
    if not classes:
        return union
    for part in parts:
        if get_origin(part) is Literal and isinstance(raw, str):
            return part
        if type(raw) is (get_args(part)[0] if get_origin(part) is Annotated else part):
            return part
    keys = set(raw) if isinstance(raw, Mapping) else set()
    return max(classes, key=lambda part: len(keys & {field.name for field in fields(part)}))


def _built(cls: type, value: BaseModel) -> Any:
    return cls(**{field.name: getattr(value, field.name) for field in fields(cls)})


def _line(error: ValidationError, cls: type, raw: object) -> str:
    # a key that is unknown comes first: where it is a misspelling, the one that is missing follows from it
    faults: list[Any] = sorted(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden")
    first, *others = faults
    key = ".".join(str(part) for part in first["loc"]) or "(the whole file)"
    more = f" (and {len(others)} more {'problems' if others[1:] else 'problem'})" if others else ""
    if first["type"] == "extra_forbidden":
        there = keys_of(cls, raw, first["loc"][:-1])
        near = nearest(str(first["loc"][-1]), there)
        hint = f"did you mean {near}? " if near else ""
        return f"{key}: {first['input']!r} is not allowed: unknown key; {hint}allowed: {', '.join(there)}{more}"
    if first["type"] == "missing":
        return f"{key}: missing; every key is needed{more}"
    if first["type"] == "value_error":  # of a section's __post_init__: the line begins with the key in the section
        return f"{key}.{first['ctx']['error']}{more}" if first["loc"] else f"{first['ctx']['error']}{more}"
    allowed = first["msg"].removeprefix("Input ")
    if first["type"] in ("model_type", "dict_type", "model_attributes_type"):
        allowed = f"a section with the keys {', '.join(keys_of(cls, raw, first['loc'])) or '1, 2 …'}"
        if words := _words(cls, first["loc"]):
            allowed = f"{', '.join(words)}, or {allowed}"
    return f"{key}: {first['input']!r} is not allowed: {allowed}{more}"


def _words(cls: type, location: tuple) -> tuple[str, ...]:
    """What may stand in place of the section at ``location``."""
    found: Any = cls
    for part in location:
        found = get_type_hints(found).get(part) if is_dataclass(found) else None
    literals = [one for one in get_args(found) if get_origin(one) is Literal]
    return tuple(word for one in literals for word in get_args(one))


def keys_of(cls: type, raw: object, location: tuple) -> list[str]:
    """The keys that the section at ``location`` may have. One of several forms: those of the form that ``raw`` is meant
    as, or of every form where it has a key of none."""
    found: Any = cls
    forms: list[Any] = [cls]
    for part in location:
        if get_origin(found) is dict:
            found = get_args(found)[1]
        else:
            found = get_type_hints(found).get(part) if is_dataclass(found) else None
        raw = raw.get(part) if isinstance(raw, Mapping) else None
        forms = [found]
        if get_origin(found) in (Union, types.UnionType):
            forms = [one for one in get_args(found) if is_dataclass(one)]
            found = _member(found, raw if raw is not None else {})
            if isinstance(raw, Mapping) and raw.keys() & _names(found):
                forms = [found]
    return list(dict.fromkeys(name for form in forms for name in _names(form)))


def _names(section: Any) -> list[str]:
    return [field.name for field in fields(section)] if is_dataclass(section) else []
