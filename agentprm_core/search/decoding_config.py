"""Ways of playing by name: ``greedy``, ``sample``, ``best_of_16``, ``best_trajectory_of_16``, ``beam_4x4``,
``lookahead_of_8x1``. A beam whose paths may return to states that they have been in is ``beam_4x4_back``. ``_path``
weighs all of a path's actions, and not the last one alone: ``beam_4x4_path``, ``best_trajectory_of_16_path``.

Searches are by the PRM. Another scorer in its place (:mod:`agentprm_core.search.scorers`) is named behind ``_by_``:
``best_of_16_by_random``. Of whole episodes only the policy's own likelihood can take its place:
``best_trajectory_of_16_by_untrained_likelihood`` takes the likeliest. A temperature may follow: ``best_of_16@0.7``,
``best_of_16_by_random@0.7``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

SEARCHES = ("best_of_n", "best_trajectory", "beam", "lookahead")
"""Those that a PRM chooses in."""
METHODS = ("greedy", "sample", *SEARCHES)
PRM, LIKELIHOOD = "prm", "untrained_likelihood"
SCORERS = (PRM, "head", "trained_likelihood", LIKELIHOOD, "implicit", "constant", "random", "true_q")
"""Who may choose in a search (:data:`agentprm_core.search.scorers.MAKERS`)."""
WITHOUT_PRM = (LIKELIHOOD, "constant", "random", "true_q")
"""Those that need no PRM."""
CACHES = {"best_of_n": 2, "beam": 2, "lookahead": 4}
"""Key-value caches that a way of playing keeps beside each other: the policy's, the PRM's, the imagined turns'."""

_NAMES = {
    "best_of_n": r"best_of_(?P<n>\d+)",
    "best_trajectory": r"best_trajectory_of_(?P<n>\d+)(?P<path>_path)?",
    "beam": r"beam_(?P<width>\d+)x(?P<samples>\d+)(?P<back>_back)?(?P<path>_path)?",
    "lookahead": r"lookahead_of_(?P<n>\d+)x(?P<depth>\d+)",
    "greedy": "greedy",
    "sample": "sample",
}

_FORMS = {
    "greedy": ("greedy",),
    "sample": ("sample",),
    "best_of_n": ("best_of_N", "best_of_N_by_SCORER"),
    "best_trajectory": (
        "best_trajectory_of_N",
        "best_trajectory_of_N_path",
        f"best_trajectory_of_N_by_{LIKELIHOOD}",
    ),
    "beam": ("beam_NxM (N nodes, M samples of each)", "beam_NxM_back", "beam_NxM_path", "beam_NxM_by_SCORER"),
    "lookahead": ("lookahead_of_NxD (N samples, D steps ahead)",),
}
"""What the names look like, as people are told."""


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
    back: bool = False
    """Of ``beam``: a path may go back to a state that it has been in."""
    path: bool = False
    """Of ``beam``: the prior is that of all of a path's actions. Of ``best_trajectory``: so is the prior, and the score
    is the mean of theirs."""
    by: str = PRM
    """Who chooses in a search, one of :data:`SCORERS`."""

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"{self.method!r} is not one of {', '.join(METHODS)}")
        if self.by not in SCORERS:
            raise ValueError(f"{self.by!r} is not one of {', '.join(SCORERS)}")
        likeliest = self.method == "best_trajectory" and not self.path and self.by == LIKELIHOOD
        if self.by != PRM and not (self.takes_scorers or likeliest):
            raise ValueError(
                f"{self.name}: only best_of_N and beam_NxM are played by another scorer than the PRM, and "
                f"best_trajectory_of_N by {LIKELIHOOD}"
            )
        if min(self.n, self.width, self.samples) < 1 or self.depth < 0:
            raise ValueError(f"{self.name}: needs numbers of at least 1, and a depth of at least 0")
        if self.method in ("best_of_n", "best_trajectory", "lookahead") and self.n < 2:
            raise ValueError(f"{self.name}: needs at least 2 to choose among")
        if self.temperature is not None and self.method == "greedy":
            raise ValueError(f"{self.name}: greedy play draws nothing, so it has no temperature; sample has")
        if self.temperature is not None and self.temperature <= 0:
            raise ValueError(f"{self.name}: needs a temperature above 0; greedy takes the likeliest action")
        if self.method == "beam" and self.width == self.samples == 1:
            raise ValueError(f"{self.name}: of one sample nothing is chosen")

    @property
    def name(self) -> str:
        """What the ``decoding`` column says."""
        at = "" if self.temperature is None else f"@{self.temperature:g}"
        plain = {
            "best_of_n": f"best_of_{self.n}",
            "best_trajectory": f"best_trajectory_of_{self.n}" + "_path" * self.path,
            "beam": f"beam_{self.width}x{self.samples}" + "_back" * self.back + "_path" * self.path,
            "lookahead": f"lookahead_of_{self.n}x{self.depth}",
        }.get(self.method, self.method)
        return plain + ("" if self.by == PRM else f"_by_{self.by}") + at

    @property
    def is_search(self) -> bool:
        return self.method in SEARCHES

    @property
    def needs_prm(self) -> bool:
        """Whether a PRM or a part of one chooses."""
        return self.is_search and self.by not in WITHOUT_PRM

    @property
    def takes_scorers(self) -> bool:
        """Whether any other one than the PRM may choose."""
        return self.method in ("best_of_n", "beam")

    def prior(self, tau: float) -> float:
        """The weight of the samples' log-share where the campaign's is ``tau``: 0 where the policy's own likelihood
        chooses. The share of the samples estimates that same likelihood, and makes the control weaker."""
        return 0.0 if self.by == LIKELIHOOD else tau

    def under(self, scorer: str) -> DecodingConfig:
        """The same search with this scorer choosing. Raises ValueError where there is no such scorer."""
        return replace(self, by=scorer)


def forms(methods: Sequence[str] = METHODS) -> str:
    """What names of these ways of playing look like, as words for a user."""
    return ", ".join(form for method in methods for form in _FORMS[method])


def decoding(name: str, offered: Sequence[str] = METHODS) -> DecodingConfig:
    """The way of playing of this name. Raises ValueError where there is none; says which forms there are of the
    methods ``offered``."""
    plain, _, temperature = name.partition("@")
    at = float(temperature) if re.fullmatch(r"\d+(\.\d+)?", temperature) else None
    search, named, scorer = plain.partition("_by_")
    for method, pattern in _NAMES.items():
        if (found := re.fullmatch(pattern, search)) and (at is None) == ("@" not in name):
            sizes = {part: int(value) for part, value in found.groupdict().items() if (value or "").isdigit()}
            kind = {part: bool(found.groupdict().get(part)) for part in ("back", "path")}
            return DecodingConfig(method, **sizes, temperature=at, **kind, by=scorer if named else PRM)
    raise ValueError(f"{name!r} is not one of {forms(offered)}")
