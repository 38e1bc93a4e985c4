"""Generated word problems: a chain of 2 to 8 operations on what one person has, and sentences that do not matter.

Splits are disjoint by construction. ``unseen`` has the pairs of consecutive operations of :data:`HELD_OUT`, one at
least in each problem, and the other splits have none of them. ``train`` and ``seen`` share all pairs of operations, and
each problem belongs to one of them by the digest of its text, whatever seed it was drawn with.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from itertools import pairwise

from agentprm_core.errors import DataError
from agentprm_core.types import Game
from agentprm_core.worlds.arithmetic.engine import LIMIT, after

SPLITS = ("train", "seen", "unseen")
STEPS = range(2, 9)
DISTRACTORS = range(4)
"""Sentences about somebody else, or about another thing."""

HELD_OUT = frozenset({("times", "take"), ("share", "add")})
"""Pairs of consecutive operations that only ``unseen`` has."""

SIGNS = {"add": "+", "take": "-", "times": "*", "share": "/"}

_SENTENCES = {
    "has": ("{who} has {n} {what}.",),
    "add": ("{who} buys {n} more {what}.", "{who} finds {n} more {what}.", "{who} is given {n} more {what}."),
    "take": ("{who} loses {n} {what}.", "{who} sells {n} {what}.", "{who} gives away {n} of the {what}."),
    "times": ("{who} then has {n} times as many {what}.", "{who} makes that {n} times as many {what}."),
    "share": ("{who} splits the {what} into {n} equal parts, one of which is kept.",),
}
_PEOPLE = ("Ann", "Ben", "Carla", "Dan", "Eva", "Finn", "Gina", "Hugo", "Ida", "Jack", "Kim", "Leo")
_THINGS = ("apples", "books", "cards", "coins", "eggs", "marbles", "pears", "pens", "shells", "stamps", "toys")

_ATTEMPTS = 10_000
_SEEN = 8
"""One problem in so many belongs to ``seen``."""


def generate_games(count: int, seed: int, split: str, distractors: Sequence[int] = DISTRACTORS) -> list[Game]:
    """``count`` problems of ``split`` (one of :data:`SPLITS`), no two alike, sorted by id; the same for the same
    arguments. Those of a smaller count are among those of a larger. ``distractors``: how many sentences that do not
    matter a problem may have. Raises DataError for another split."""
    if split not in SPLITS:
        raise DataError(f"games: {split!r} is not a split of arithmetic: {', '.join(SPLITS)}")
    found: dict[str, Game] = {}
    for index in range(count):
        game = _generate(index, seed, split, found, distractors)
        found[game.id] = game
    return sorted(found.values(), key=lambda game: game.id)


def _generate(index: int, seed: int, split: str, taken: dict[str, Game], distractors: Sequence[int]) -> Game:
    steps = random.Random(f"{split}/{seed}/{index}").choice(STEPS)  # apart: a long chain fails more often
    for attempt in range(_ATTEMPTS):
        game = _draw(random.Random(f"{split}/{seed}/{index}/{attempt}"), split, steps, distractors)
        if game is not None and game.id not in taken:
            return game
    raise DataError(f"games.{split}: no {steps}-step problem is left after {index} games: ask for fewer")


def _draw(rng: random.Random, split: str, steps: int, distractors: Sequence[int]) -> Game | None:
    """One problem; None where the numbers do not come out, or it is another split's."""
    operations = rng.choices(tuple(SIGNS), k=steps)
    if split == "unseen":
        at = rng.randrange(steps - 1)
        operations[at : at + 2] = rng.choice(sorted(HELD_OUT))
    elif not HELD_OUT.isdisjoint(pairwise(operations)):
        return None
    value = rng.randint(5, 60)
    numbers, chain = [value], []
    for operation in operations:
        number = _number(rng, operation, value)
        if number is None:
            return None
        numbers.append(number)
        chain.append(f"compute {value} {SIGNS[operation]} {number}")
        value = after((value, number), chain[-1])[0]
    who, what = rng.choice(_PEOPLE), rng.choice(_THINGS)
    told = [_say(rng, kind, who, what, number) for kind, number in zip(("has", *operations), numbers)]
    beside = rng.choice(distractors)
    for _ in range(beside):
        told.insert(rng.randrange(len(told) + 1), _distract(rng, who, what))
    story = " ".join(text for text, _ in told)
    payload = {"story": story, "numbers": [n for _, n in told], "chain": [*chain, f"answer {value}"], "answer": value}
    digest = hashlib.blake2b(json.dumps(payload).encode(), digest_size=8).digest()
    if split != "unseen" and (digest[-1] % _SEEN == 0) != (split == "seen"):
        return None
    return Game(
        id=f"{split}/{steps}-steps/{digest.hex()}",
        world="arithmetic",
        split=split,
        kind=f"{steps} steps",
        goal=f"say how many {what} {who} has now.",
        payload=json.dumps(payload),
        attributes={"length": steps, "distractor": beside},
    )


def _number(rng: random.Random, operation: str, value: int) -> int | None:
    """What the operation is done with; None where nothing fits."""
    if operation == "add":
        return rng.randint(2, 40) if value + 40 <= LIMIT else None
    if operation == "take":
        return rng.randint(2, min(value - 2, 60)) if value > 4 else None
    if operation == "times":
        fits = [n for n in range(2, 6) if value * n <= LIMIT]
    else:
        fits = [n for n in range(2, 6) if value % n == 0 and value // n > 1]
    return rng.choice(fits) if fits else None


def _say(rng: random.Random, kind: str, who: str, what: str, number: int) -> tuple[str, int]:
    return rng.choice(_SENTENCES[kind]).format(who=who, what=what, n=number), number


def _distract(rng: random.Random, who: str, what: str) -> tuple[str, int]:
    """A sentence about another person, another thing or both."""
    other = rng.choice([person for person in _PEOPLE if person != who])
    another = rng.choice([thing for thing in _THINGS if thing != what])
    person, thing = rng.choice(((other, what), (who, another), (other, another)))
    return _say(rng, rng.choice(("has", "add", "take")), person, thing, rng.randint(2, 60))
