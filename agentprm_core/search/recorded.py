"""What a beam search did, to be looked at: every action that it weighed, and what became of it.

:class:`agentprm_core.search.beam.BeamSearch` tells a recorder, where it was given one. What it finds does not change by
that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from agentprm_core.rollout import Start

KEPT = "kept"
"""One of the N paths that go on."""
MERGED = "merged"
"""It leads to a state that a better path of this depth leads to."""
BACK = "goes back"
"""Refused, because it leads back to a state that its path has been in."""
PASSED = "passed over"
"""N better ones were found before it: nobody looked where it leads."""
CROWDED = "crowded out"
"""Kept, and dropped again: paths that have ended are worth more."""
WON = "won"
"""Kept, and the game is won."""
ENDED = "ended"
"""Kept, and over without being won: the world is done, or no turns are left."""
FATES = (WON, KEPT, ENDED, MERGED, BACK, CROWDED, PASSED)


class Weighed(NamedTuple):
    """An action at the end of a path, and what became of it."""

    path: tuple[str, ...]
    """The path's actions from the game's start, this one last."""
    samples: int
    """How many of the samples it stands for; 0 where a path is told of again."""
    score: float
    """Q_φ."""
    worth: float
    """What it was chosen by: the score and the prior."""
    fate: str
    """One of :data:`FATES`."""


Recorder = Callable[[Start, Weighed], None]


def last_fates(told: Iterable[Weighed]) -> list[Weighed]:
    """One entry a path, in the order first told, with the fate that it was told of last."""
    found: dict[tuple[str, ...], Weighed] = {}
    for weighed in told:
        before = found.get(weighed.path)
        if before is None or not weighed.samples:
            found[weighed.path] = weighed._replace(samples=before.samples if before else weighed.samples)
    return list(found.values())
