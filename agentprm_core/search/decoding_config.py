"""Ways of playing by name: ``greedy``, ``sample``, ``best_of_16``, ``best_trajectory_of_16``, ``beam_4x4``,
``lookahead_of_8x1``. A temperature may follow: ``best_of_16@0.7``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SEARCHES = ("best_of_n", "best_trajectory", "beam", "lookahead")
"""Those that a PRM chooses in."""
METHODS = ("greedy", "sample", *SEARCHES)
CACHES = {"best_of_n": 2, "beam": 2, "lookahead": 4}
"""Key-value caches that a way of playing keeps beside each other: the policy's, the PRM's, the imagined turns'."""

_NAMES = {
    "best_of_n": r"best_of_(?P<n>\d+)",
    "best_trajectory": r"best_trajectory_of_(?P<n>\d+)",
    "beam": r"beam_(?P<width>\d+)x(?P<samples>\d+)",
    "lookahead": r"lookahead_of_(?P<n>\d+)x(?P<depth>\d+)",
    "greedy": "greedy",
    "sample": "sample",
}


@dataclass(frozen=True)
class DecodingConfig:
    """One way of playing. ``n`` is of ``best_of_n`` and ``lookahead`` (actions a turn) and ``best_trajectory``
    (episodes a game); ``beam`` keeps ``width`` nodes and draws ``samples`` actions from each; ``lookahead`` imagines
    ``depth`` steps."""

    method: str
    n: int = 1
    width: int = 1
    samples: int = 1
    depth: int = 0
    temperature: float | None = None
    """Of samples; None: that of whoever asks."""

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"{self.method!r} is not one of {', '.join(METHODS)}")
        if min(self.n, self.width, self.samples) < 1 or self.depth < 0:
            raise ValueError(f"{self.name}: needs numbers of at least 1, and a depth of at least 0")
        if self.method in ("best_of_n", "best_trajectory", "lookahead") and self.n < 2:
            raise ValueError(f"{self.name}: needs at least 2 to choose among")
        if self.method == "beam" and self.width == self.samples == 1:
            raise ValueError(f"{self.name}: of one sample nothing is chosen")

    @property
    def name(self) -> str:
        """What the ``decoding`` column says."""
        at = "" if self.temperature is None else f"@{self.temperature:g}"
        plain = {
            "best_of_n": f"best_of_{self.n}",
            "best_trajectory": f"best_trajectory_of_{self.n}",
            "beam": f"beam_{self.width}x{self.samples}",
            "lookahead": f"lookahead_of_{self.n}x{self.depth}",
        }.get(self.method, self.method)
        return plain + at

    @property
    def is_search(self) -> bool:
        return self.method in SEARCHES


def decoding(name: str) -> DecodingConfig:
    """The way of playing of this name. Raises ValueError where there is none; says which forms there are."""
    plain, _, temperature = name.partition("@")
    at = float(temperature) if re.fullmatch(r"\d+(\.\d+)?", temperature) else None
    for method, pattern in _NAMES.items():
        if (found := re.fullmatch(pattern, plain)) and (at is None) == ("@" not in name):
            sizes = {part: int(value) for part, value in found.groupdict().items()}
            return DecodingConfig(method, **sizes, temperature=at)
    raise ValueError(
        f"{name!r} is not one of greedy, sample, best_of_N, best_trajectory_of_N, beam_NxM (N nodes, M samples of "
        "each), lookahead_of_NxD (N samples, D steps ahead)"
    )
