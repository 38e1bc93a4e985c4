"""An episode, or two of the same game side by side, as one page: what was seen and done, and what models say of it.

Two episodes are aligned by the states that both come to. Everything drawn is computed here; the template only lays it
out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import takewhile

from agentprm_core.opinions import Candidate
from agentprm_core.search.recorded import Weighed
from agentprm_core.types import Episode, Game
from tasks.report.pages import render
from tasks.report.tree import SAID, tree

_SHOWN = 4
"""Candidates of a turn that are not folded away."""


@dataclass(frozen=True)
class Label:
    """What the critic says that a turn was worth."""

    q: float
    visits: int
    variance: float


@dataclass(frozen=True)
class Branch:
    """What plays after an action at one state came to."""

    action: str
    mean: float
    """Of their rewards."""
    plays: int
    length: float
    """Turns played after it, mean."""


@dataclass(frozen=True)
class Shown:
    """One episode and what is said of it, by turn."""

    name: str
    """Who played, and how."""
    episode: Episode
    opinions: Sequence[tuple[Candidate, ...]]
    ending: str = ""
    """What the world said to the last action."""
    labels: Mapping[int, Label] = field(default_factory=dict)
    branches: Mapping[int, Sequence[Branch]] = field(default_factory=dict)
    tree: Sequence[Weighed] = ()
    """What its beam search weighed."""


@dataclass(frozen=True)
class Row:
    """Turns that stand beside each other, one of each episode; None where it has none here."""

    turns: tuple[int | None, ...]
    shared: bool
    """Whether both are in the same state."""
    parts: bool = False
    """Whether they part here: the first state that both share in which they do different things."""


def aligned(first: Sequence[str], second: Sequence[str]) -> list[Row]:
    """Two episodes by their turns' state keys. Turns between shared states stand beside each other in order.

    The states that both begin with are paired before the rest is matched. An action that changes nothing leaves the
    same state twice, and the longest common run could pair its second turn with the other's first.
    """
    begun = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))
    rows = [Row((turn, turn), True) for turn in range(begun)]
    matcher = SequenceMatcher(None, first[begun:], second[begun:], autojunk=False)
    for kind, *ends in matcher.get_opcodes():
        a, b, c, d = (begun + end for end in ends)
        for step in range(max(b - a, d - c)):
            left, right = (a + step if a + step < b else None), (c + step if c + step < d else None)
            rows.append(Row((left, right), kind == "equal"))
    return rows


def beside(episodes: Sequence[Episode]) -> list[Row]:
    """The rows of a page, with the first divergence marked."""
    if len(episodes) == 1:
        return [Row((t,), False) for t in range(episodes[0].length)]
    one, other = episodes
    rows, parted = aligned([t.state_key for t in one.turns], [t.state_key for t in other.turns]), False
    found = []
    for row in rows:
        a, b = row.turns
        here = row.shared and a is not None and b is not None and one.turns[a].action != other.turns[b].action
        found.append(Row(row.turns, row.shared, here and not parted))
        parted |= here
    return found


def episode_page(
    game: Game,
    shown: Sequence[Shown],
    prms: Sequence[str],
    *,
    sources: Sequence[tuple[str, str]] = (),
    back: str = "",
    note: str = "",
) -> str:
    """HTML of one or two episodes of ``game``. ``prms``: names of the PRMs whose scores the candidates have, in order;
    ``sources``: name and checkpoint of each policy and PRM; ``back``: the address of the page that leads here;
    ``note``: a sentence about why it is looked at."""
    rows = beside([one.episode for one in shown])
    return render(
        "episode",
        game=game,
        shown=[_player(number, one, prms) for number, one in enumerate(shown)],
        rows=[[_cell(shown[n], t, prms) if t is not None else None for n, t in enumerate(row.turns)] for row in rows],
        marks=[{"shared": row.shared, "parts": row.parts} for row in rows],
        chart=_chart(shown, prms),
        said=SAID,
        prms=prms,
        sources=sources,
        labelled=any(one.labels for one in shown),
        branched=any(one.branches for one in shown),
        back=back,
        note=note,
    )


def _player(number: int, one: Shown, prms: Sequence[str]) -> dict:
    episode, taken = one.episode, _taken(one)
    return {
        "name": one.name,
        "letter": "AB"[number],
        "won": episode.won,
        "reward": episode.reward,
        "turns": episode.length,
        "start": episode.start,
        "truncated": episode.truncated,
        "invalid": sum(not turn.valid for turn in episode.turns),
        "means": [(name, _mean([c.scores[i] for c in taken])) for i, name in enumerate(prms)],
        "ending": one.ending,
        "tree": tree(one.tree, tuple(turn.action for turn in episode.turns)) if one.tree else None,
    }


def _cell(one: Shown, turn: int, prms: Sequence[str]) -> dict:
    seen, label = one.episode.turns[turn], one.labels.get(turn)
    in_order = sorted(one.opinions[turn], key=lambda c: not c.taken)
    candidates = [_candidate(c, one.branches.get(turn, ()), prms) for c in in_order]
    front = [c for n, c in enumerate(candidates) if n < _SHOWN or c["measured"]]
    return {
        "turn": turn,
        "observation": seen.observation,
        "reason": seen.reason,
        "valid": seen.valid,
        "replayed": turn < one.episode.start,
        "label": label,
        "front": front,
        "folded": [c for c in candidates if c not in front],
    }


def _candidate(candidate: Candidate, branches: Sequence[Branch], prms: Sequence[str]) -> dict:
    said = [("policy", "π", candidate.probability)]
    said += [(f"prm{n}", name, q) for n, (name, q) in enumerate(zip(prms, candidate.scores, strict=True))]
    bars = [one for one in said if math.isfinite(one[-1])]
    measured = next((b for b in branches if b.action == candidate.action), None)
    if measured:
        bars.append(("measured", "played on", measured.mean))
    return {"action": candidate.action, "taken": candidate.taken, "measured": measured, "bars": bars}


def _taken(one: Shown) -> list[Candidate]:
    return [next(c for c in candidates if c.taken) for candidates in one.opinions]


def _mean(values: Sequence[float]) -> str:
    return f"{sum(values) / len(values):.2f}" if values else ""


def _chart(shown: Sequence[Shown], prms: Sequence[str]) -> dict:
    """Lines of Q of what was done, and points of labels, in a square of 100 × 100 that is stretched to the page. The
    first turn is at its left edge, the last at its right."""
    longest = max(one.episode.length for one in shown)
    lines, points = [], []
    for number, one in enumerate(shown):
        taken = _taken(one)
        for i, name in enumerate(prms):
            scored = [(t, c.scores[i]) for t, c in enumerate(taken) if math.isfinite(c.scores[i])]
            at = [(t, _x(t, longest), 100 - 100 * q) for t, q in scored]
            named = {"number": number, "kind": f"prm{i}", "name": f"{'AB'[number]}, {name}"}
            lines.append({**named, "path": "M" + "L".join(f"{x:.2f} {y:.2f}" for _, x, y in at)})
            points += [
                {**named, "x": f"{x:.2f}", "y": f"{y:.2f}", "turn": t, "says": f"{taken[t].scores[i]:.2f}"}
                for t, x, y in at
            ]
        for t, label in sorted(one.labels.items()):
            x, y = _x(t, longest), 100 - 100 * label.q
            says = f"label {label.q:.2f}"
            points.append({"number": number, "kind": "measured", "name": "label", "x": f"{x:.2f}", "y": f"{y:.2f}",
                           "turn": t, "says": says})  # fmt: skip
    return {"lines": lines, "points": points, "turns": longest}


def _x(turn: int, turns: int) -> float:
    return 100 * turn / max(1, turns - 1)


def told_apart(names: Sequence[str]) -> Iterator[str]:
    """The names, numbered where two are the same."""
    for number, name in enumerate(names):
        yield name if names.count(name) == 1 else f"{name} ({number + 1})"
