"""Goals: what is to be bought. The published procedure makes them from a catalogue; a game carries one in full."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product as combinations

from agentprm_core.worlds.webshop.product import Product

NO_LIMIT = 1_000_000.0
"""The price limit of a goal that names none."""
_SEED = 233
_LIMITS = tuple(10.0 * i for i in range(1, 100))


@dataclass(frozen=True, slots=True)
class Goal:
    """One thing to buy."""

    asin: str
    """The product that the goal was made from."""
    instruction: str
    attributes: tuple[str, ...]
    options: Mapping[str, str]
    price_upper: float
    """In dollars, the price itself included."""


def make_goals(products: Iterable[Product]) -> list[Goal]:
    """The synthetic goals of a catalogue's products, in the order of the published environment (WebShop, ``goal.py``).

    One for each combination of option values of each product with an instruction. The limit of a product is drawn once.
    The published engine draws the price of a range at start-up, unseeded; here it is the middle, so limits of those
    products may differ from a published run's.
    """
    draws = random.Random(_SEED)
    goals = []
    for product in products:
        if product.instruction is None:
            continue
        above = [limit for limit in _LIMITS if limit > product.price][:4]
        limit = max(draws.sample(above, 2)) if len(above) >= 2 else NO_LIMIT
        names = sorted(product.options)
        for values in combinations(*(product.options[name] for name in names)):
            options = dict(zip(names, values))
            text = instruction_text(product.instruction, options, limit)
            goals.append(Goal(product.asin, text, product.wanted, options, limit))
    random.Random(_SEED).shuffle(goals)
    return goals


def instruction_text(opening: str, options: Mapping[str, str], limit: float) -> str:
    """``opening`` with the options and the price limit that the goal names."""
    named = ", and ".join(f"{name}: {value}" for name, value in options.items())
    return (
        opening
        + (f" with {named}" if named else "")
        + (f", and price lower than {limit:.2f} dollars" if limit != NO_LIMIT else "")
    )
