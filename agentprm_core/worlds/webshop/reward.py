"""What a purchase is worth (Yao et al. 2022, eq. 1): attributes, options and price that match, times the type's share.

``r = r_type · (attribute matches + option matches + [price ≤ limit]) / (attributes + options + 1)``
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from agentprm_core.worlds.webshop.fuzzy import alike
from agentprm_core.worlds.webshop.goals import Goal
from agentprm_core.worlds.webshop.product import Product

_COLOURS = """alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown
burgundy camel camo caramel champagne charcoal cheetah chestnut chocolate christmas coffee
cognac copper coral cranberry cream crystal dark denim eggplant elephant espresso fuchsia gold
granite grape graphite grass gray green grey heather indigo ivory ivy khaki lavender lemon
leopard light lilac lime magenta maroon mauve merlot midnight mint mocha multicolor mushroom
mustard natural navy nude olive orange peach pewter pink plum purple rainbow red rose royal rust
sand sapphire seashell silver skull slate steel stone stonewash sunflower tan taupe teal tiger
turquoise violet walnut wheat white wine yellow"""
COLOURS = tuple(_COLOURS.split())
"""In the order in which they are looked for."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a reward is made from."""

    attribute_matches: int
    attributes: int
    option_matches: int
    options: int
    price_ok: bool
    query_match: bool
    category_match: bool
    r_type: float

    @property
    def without_type(self) -> float:
        return (self.attribute_matches + self.option_matches + self.price_ok) / (self.attributes + self.options + 1)

    @property
    def reward(self) -> float:
        """In [0, 1]."""
        return self.without_type * self.r_type


def judge(bought: Product, chosen: Mapping[str, str], price: float, goal: Goal, wanted: Product) -> Parts:
    """The parts of the reward for buying ``bought`` at ``price`` with the options ``chosen``.

    ``wanted`` is the product of ``goal``.
    """
    query_match = bought.query == wanted.query
    category_match = _share_a_category(bought.product_category, wanted.product_category)
    return Parts(
        attribute_matches=attribute_matches(bought, goal.attributes),
        attributes=len(goal.attributes),
        option_matches=option_matches(chosen.values(), goal.options.items()),
        options=len(goal.options),
        price_ok=price <= goal.price_upper,
        query_match=query_match,
        category_match=category_match,
        r_type=type_share(query_match, category_match, title_score(bought.title, wanted.title)),
    )


@lru_cache(maxsize=100_000)
def _one_attribute(bought: tuple[str, tuple[str, ...], str, tuple[str, ...]], wanted: str) -> bool:
    title, bullets, description, attributes = bought
    return (
        any(alike(attribute, wanted) for attribute in attributes)
        or wanted in title.lower()
        or wanted in " ".join(bullets).lower()
        or wanted in description.lower()
    )


def attribute_matches(bought: Product, wanted: Iterable[str]) -> int:
    """How many ``wanted`` attributes the product has in its list, title, bullets or description."""
    texts = (bought.title, bought.bullets, bought.description, bought.attributes)
    return sum(_one_attribute(texts, attribute) for attribute in wanted)


def option_matches(chosen: Iterable[str], wanted: Iterable[tuple[str, str] | str]) -> int:
    """How many ``wanted`` options a ``chosen`` value is like.

    The published code hands over pairs of name and value. Such a pair becomes a colour only where its value is one;
    else the pair's whole text is compared: right values of long names fail, and wrong shades of a colour pass.
    """
    values = [_colour(value) for value in chosen]
    return sum(any(alike(value, option) for value in values) for option in map(_colour_of_option, wanted))


def _colour(text: str) -> str:
    return next((colour for colour in COLOURS if colour in text), text)


def _colour_of_option(option: tuple[str, str] | str) -> str:
    if isinstance(option, str):
        return _colour(option)
    return next((colour for colour in COLOURS if colour in option), str(option))


def type_share(query_match: bool, category_match: bool, score: float) -> float:
    """r_type: 1 where the kind of product is right, less where query, category and title all differ."""
    if score == 0:
        return 0.0
    if score < 0.1:
        return 0.1
    return 1.0 if query_match or category_match or score > 0.2 else 0.5


@lru_cache(maxsize=200_000)
def title_score(bought: str, wanted: str) -> float:
    """Shared distinct nouns of two titles over the nouns of ``wanted``, repeats counted; 0.2 where it has none.

    The published code finds nouns with spaCy's ``en_core_web_lg``. Here every word that is not on a list of common
    other words is one: the score is near, not the same, for a product that is not the goal's own.
    """
    if bought == wanted:
        return 1.0  # its own nouns are all there: with repeats the published score is lower but above 0.2
    nouns = _nouns(wanted)
    return len(set(_nouns(bought)) & set(nouns)) / len(nouns) if nouns else 0.2


_OTHER_WORDS = """a about adjustable all an and any are as at automatic available be best big black blue both
brown by can casual classic clear comfortable compatible cool cozy cute dark deep digital dual
durable easy eco elegant extra fashionable fit flat for free friendly from full funny gold gray
green grey heavy high hot in indoor into is it large light lightweight long loose low made men's
mini modern more multi natural new newest no non not of off on one only open or orange organic
original our outdoor over per perfect pink plus portable premium printed professional pure
purple red regular reusable round sexy short silver simple slim small smart soft solid sports
strong stylish super tall that the their these thick thin this to top two under up upgraded
vintage warm waterproof wearing white wide wireless with without women's yellow your"""
_NO_NOUN = frozenset(_OTHER_WORDS.split())
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")


@lru_cache(maxsize=20_000)
def _nouns(title: str) -> tuple[str, ...]:
    return tuple(word for word in _WORD.findall(title.lower()) if len(word) > 1 and word not in _NO_NOUN)


@lru_cache(maxsize=200_000)
def _share_a_category(one: str, other: str) -> bool:
    return len({part.strip() for part in one.split("›")} & {part.strip() for part in other.split("›")}) >= 2
