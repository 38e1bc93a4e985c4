"""What a stranger's world raised, and where in its own code."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

_CORE = Path(__file__).resolve().parents[1]
_WORLDS = Path(__file__).resolve().parent
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))


def said_of(error: BaseException) -> str:
    """``KeyError: 'the third door' (lamps.py:24)``: the error, and the innermost frame of the world's own code, which
    is neither this package's nor, where there is another, a library's. No place where there is no such frame."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _a_worlds(frame.filename)]
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)] or frames
    place = f" ({short_path(own[-1].filename)}:{own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {error}{place}"


def _a_worlds(file: str) -> bool:
    """Whether the code may be a world's: of this package, the folders of the worlds alone."""
    path = Path(file).resolve()
    ours = path.is_relative_to(_CORE) and not (path.is_relative_to(_WORLDS) and path.parent != _WORLDS)
    return not ours and not file.startswith("<")


def short_path(file: str) -> str:
    """A path, as short as it is from the current folder."""
    path = Path(file).resolve()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
