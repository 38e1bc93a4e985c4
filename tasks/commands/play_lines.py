"""What one sees of a game, as lines of text: bars, options, a transcript for where there is no terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentprm_core.one_game import OneGame, Option, Outlook

EIGHTHS = " ▏▎▍▌▋▊▉"
SHOWN = 5
"""Options of a turn in a transcript."""
ENDS = {
    "won": "Won",
    "lost": "Lost",
    "out of turns": "Not won: no turns left",
    "out of context": "Not won: the episode has outgrown the model's context",
}


def bar(share: float, width: int) -> str:
    """A bar of up to ``width`` cells for a share in [0, 1]; blank for NaN."""
    if math.isnan(share):
        return " " * width
    whole, rest = divmod(round(max(0.0, min(share, 1.0)) * width * 8), 8)
    return ("█" * whole + (EIGHTHS[rest] if whole < width else "")).ljust(width)[:width]


def percent(chance: float) -> str:
    """Four cells: `` 62%``, `` <1%``, blank for NaN."""
    if math.isnan(chance):
        return "    "
    return " <1%" if 0 < chance < 0.005 else f"{chance:4.0%}"


def score(q: float) -> str:
    """Four cells: ``0.83``, blank for NaN."""
    return "    " if math.isnan(q) else f"{q:4.2f}"


def shown(outlook: Outlook, most: int) -> list[Option]:
    """At most so many options in their order: the choice, what was sampled, then the likeliest."""
    order = sorted(outlook.options, key=lambda option: (option.action != outlook.choice, -option.samples))
    kept = {option.action for option in order[:most]}
    return [option for option in outlook.options if option.action in kept]


def transcript(game: OneGame, players: str) -> Iterator[str]:
    """Plays the game to its end; a line each of what is seen, thought and done.

    Raises :class:`agentprm_core.policy.requests.ServerError` of a policy behind a server that has gone.
    """
    outlook = game.look()  # before anything is said: where nobody answers, the error is all there is to say
    yield f"{game.game.id}: {game.game.goal}"
    yield f"{players}, {game.way.name}"
    while outlook is not None:
        yield from ("", *seen_lines(game.seen.text))
        if outlook.reason:
            yield f"   because: {outlook.reason}"
        yield from _options(outlook)
        yield f"{len(game.steps) + 1:2}. > {outlook.choice}"
        game.do(outlook.choice, outlook.reason)
        outlook = game.look()
    yield from ("", *seen_lines(game.seen.text), "", how_it_ended(game))


def how_it_ended(game: OneGame) -> str:
    """``Won after 9 actions.``"""
    count = len(game.steps)
    return f"{ENDS[game.ended]}, after {count} action{'s' * (count != 1)}."


def seen_lines(text: str) -> list[str]:
    """An observation without its blank lines."""
    return [line for line in text.splitlines() if line.strip()]


def _options(outlook: Outlook) -> Iterator[str]:
    judged = any(not math.isnan(option.q) for option in outlook.options)
    known = any(not math.isnan(option.chance) for option in outlook.options)
    for option in shown(outlook, SHOWN):
        chance = f"policy {percent(option.chance)} {bar(option.chance, 10)}  " if known else ""
        q = f"Q {score(option.q)} {bar(option.q, 10)}  " if judged else ""
        sampled = f"  (sampled {option.samples}×)" if option.samples else ""
        yield f"    {chance}{q}{option.action}{sampled}"
