"""The tree of a beam search in words: turn by turn, what was weighed, what it scored and what became of it.

A drawing has no room for the actions. So each action is a line, which names the action before it by its number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from agentprm_core.search.recorded import (
    BACK,
    CROWDED,
    ENDED,
    FATES,
    KEPT,
    MERGED,
    PASSED,
    WON,
    Weighed,
    last_fates,
)

SAID = {
    WON: "the game is won; the path can be chosen at the end",
    KEPT: "one of the best of its turn: the search goes on from it",
    ENDED: "the game is over and not won; the path can be chosen at the end",
    MERGED: "leads to a state that a better one of its turn leads to",
    BACK: "refused: leads back to a state that its path has been in",
    CROWDED: "kept and then dropped: paths that have ended are worth more",
    PASSED: "not tried: enough better ones were found",
}
"""What each fate means, to a reader of the page."""
_OPEN = 30
"""Actions weighed in all, up to which nothing is folded."""


def tree(told: Sequence[Weighed], played: Sequence[str]) -> dict:
    """What the template lays out. ``told``: to the search's recorder; ``played``: the actions of the path that was
    found. An action's number is its place in its turn, the best first."""
    weighed = last_fates(told)
    numbers: dict[tuple[str, ...], int] = {}
    turns = []
    for depth in sorted({len(w.path) for w in weighed}):
        ranked = sorted((w for w in weighed if len(w.path) == depth), key=lambda w: -w.worth)
        numbers |= {w.path: number for number, w in enumerate(ranked, 1)}
        found = tuple(played[:depth]) if depth <= len(played) else None
        others = [w for w in ranked if w.path != found]
        turns.append({
            "number": depth,
            "played": [_row(w, numbers, played) for w in ranked if w.path == found],
            "others": [_row(w, numbers, played) for w in others],
            "counts": _counts(others),
        })  # fmt: skip
    return {
        "turns": turns,
        "counts": _counts(weighed),
        "open": len(weighed) <= _OPEN,
        "prior": any(w.worth != w.score for w in weighed),
    }


def _row(weighed: Weighed, numbers: dict[tuple[str, ...], int], played: Sequence[str]) -> dict:
    before, after = weighed.path[:-1], ""
    if before in numbers:
        after = f"{'→ ' if before == tuple(played[: len(before)]) else ''}{numbers[before]}. {before[-1]}"
    return {"number": numbers[weighed.path], "weighed": weighed, "action": weighed.path[-1], "after": after}


def _counts(weighed: Sequence[Weighed]) -> dict[str, int]:
    """{fate: how many}, in the order of :data:`FATES`."""
    counts = Counter(w.fate for w in weighed)
    return {fate: counts[fate] for fate in FATES if fate in counts}
