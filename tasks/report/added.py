"""What the PRM adds, in a table and in words; and the champion, chosen on other games than it is reported on.

What the same search wins with the policy's own likelihood in the PRM's place is not the PRM's merit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentprm_core.evaluate import LEVEL
from tasks.frame.sections import Params
from tasks.report.text import P_VALUES, aligned, markdown

HEAD = ("policy", "PRM", "search", "in its place", "split", "games", "the PRM adds", "95 % interval", "p", "p Holm")
UNKNOWN = (
    "What the PRM adds was not measured: evaluate.decoding has no search that is also played by another scorer, as "
    "best_of_16 and best_of_16_by_untrained_likelihood."
)


def adds_text(added: Sequence[Mapping], params: Params) -> str:
    """The table and a sentence for each policy. ``added``: rows of :func:`agentprm_core.comparing.prm_adds`."""
    if not added:
        return UNKNOWN
    table = aligned(HEAD, [[str(cell) for cell in _cells(row, params)] for row in added])
    return "\n".join([table, P_VALUES, *sentences(added, params)])


def adds_report(iteration: int, added: Sequence[Mapping], params: Params) -> list[str]:
    """The same for one policy, as lines of Markdown."""
    own = [row for row in added if row["iteration"] == iteration]
    lines = ["## What the PRM adds", ""]
    if not own:
        return [*lines, UNKNOWN, ""]
    return [*lines, *sentences(own, params), "", *markdown(HEAD, (_cells(row, params) for row in own)), ""]


def champion_text(champion: int, chosen: Sequence[Mapping], told: Sequence[Mapping]) -> str:
    """A line. ``chosen`` and ``told``: what :func:`agentprm_core.comparing.choosing` gives."""
    by = next(row for row in chosen if row["iteration"] == champion)
    line = f"champion: iteration {champion}, chosen by {by['decoding']} on {by['games']} games ({by['split']})"
    for row in told:
        if row["iteration"] == champion:
            interval = f"[{row['ci_low']:.1%}, {row['ci_high']:.1%}]"
            return f"{line}; on {row['games']} others ({row['split']}) {row['success']:.1%} {interval}"
    return f"{line}; no other game is left to report it on"


def sentences(added: Sequence[Mapping], params: Params) -> list[str]:
    """Of all games together, whether the PRM adds anything: by the p that is corrected for the number of ``added``."""
    return [_sentence(row, params) for row in added if row["split"] == "all"]


def _sentence(row: Mapping, params: Params) -> str:
    prm = params.policies[str(row["iteration"])].prm
    rival = row["control"].replace("_", " ")
    figures = f"{_points(row)} points {_interval(row)} on {row['games']} games, p Holm = {row['p_holm']:.2g}"
    who, where = f"PRM {prm}", f"{row['decoding']} of policy {row['iteration']} over {rival}"
    if row["p_holm"] >= LEVEL:  # the interval excludes 0 too easily where few games differ
        return f"{who} adds nothing that shows to {where}: {figures}."
    if row["difference"] > 0:
        return f"{who} adds {figures}, to {where}."
    return f"{who} costs: {figures}, to {where}."


def _cells(row: Mapping, params: Params) -> tuple[object, ...]:
    played = (row["iteration"], params.policies[str(row["iteration"])].prm, row["decoding"], row["control"])
    won = f"{_points(row)} ({row['gained']} won, {row['lost']} lost)"
    return (*played, row["split"], row["games"], won, _interval(row), f"{row['p_value']:.3g}", f"{row['p_holm']:.3g}")


def _points(row: Mapping) -> str:
    return f"{100 * row['difference']:+.1f}"


def _interval(row: Mapping) -> str:
    return f"[{100 * row['ci_low']:+.1f}, {100 * row['ci_high']:+.1f}]"
