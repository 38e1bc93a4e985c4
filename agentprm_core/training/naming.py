"""Functions and classes by name, so that another process finds the same ones."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any


def described(function: Callable) -> dict:
    """A function of a module, or a partial one, as JSON."""
    if not isinstance(function, partial):
        return {"function": name_of(function)}
    keywords = {name: described(value) if callable(value) else value for name, value in function.keywords.items()}
    return {**described(function.func), "keywords": keywords}


def restored(description: dict) -> Callable:
    """The function that :func:`described` described."""
    keywords = {
        name: restored(value) if isinstance(value, dict) else value
        for name, value in description.get("keywords", {}).items()
    }
    function = named(description["function"])
    return partial(function, **keywords) if keywords else function


def name_of(thing: type | Callable) -> str:
    """``module:name`` of a class or function at the top of a module."""
    return f"{thing.__module__}:{thing.__qualname__}"


def named(name: str) -> Any:
    """What :func:`name_of` named."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
