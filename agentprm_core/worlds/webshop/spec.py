"""What the rest of the system knows of WebShop."""

from __future__ import annotations

from agentprm_core.types import Game
from agentprm_core.worlds.base import Between, OneOf, World, WorldSpec
from agentprm_core.worlds.webshop.catalogue import PUBLISHED
from agentprm_core.worlds.webshop.games import CATALOGUES, KINDS, SPLITS, generate_games, load_games
from agentprm_core.worlds.webshop.generate import phrases

_PHRASES = (
    "webshop [sep] instruction: [sep] find me",
    "instruction: [sep] find me",
    "[sep] back to search [sep] page",
    "[sep] back to search [sep] < prev [sep]",
    "(total results: 50) [sep] next > [sep]",
    "(total results: 50) [sep] < prev [sep] next > [sep]",
    # where a product's number begins: the first token that tells it from others then comes right after these
    "(total results: 50) [sep] next > [sep] b0",
    "(total results: 50) [sep] < prev [sep] next > [sep] b0",
    "[sep] b0",
    "click[b0",
    # the tokenizer takes "a " of "n.a. [sep]" for an article
    "[sep] rating: n.[sep] description [sep] features [sep] reviews [sep] buy now",
    "[sep] price:",
    "[sep] search",
    "[sep]",
    "price lower than",
    "back to search",
    "buy now",
    "< prev",
    "next >",
    "search[",
    "click[",
    "]",
    "dollars",
)
_PAIR = "[a-z0-9]{2}"
_PRODUCT = "|".join(rf"(?<=\bb0{_PAIR * before}){_PAIR}(?={_PAIR * (3 - before)}\b)" for before in range(4))
"""A product's number (``b09xfkn71d``) two characters at a time, after its ``b0``: one never seen has tokens, too."""


def _make() -> World:
    from agentprm_core.worlds.webshop.engine import WebShopWorld

    return WebShopWorld()


def _expert(world: World, game: Game, seed: int, knowledge: float):
    from agentprm_core.worlds.webshop.expert import Shopper

    return Shopper(game.goal)


WEBSHOP = WorldSpec(
    name="webshop",
    make=_make,
    generate=generate_games,
    kinds=KINDS,
    instruction=(
        "You shop in a web store: search[words] finds products, click[text] opens a product, chooses an option or "
        "presses a button; buy what the instruction asks for with click[buy now]."
    ),
    expert=_expert,
    load=load_games,
    published_splits={split: split for split in SPLITS},
    phrases=(*_PHRASES, *phrases()),
    entity=rf"\bb0(?={_PAIR * 4}\b)|{_PRODUCT}",
    attributes={
        "constraints": Between(1, 20, "attributes, options and a price limit: what a goal may ask for"),
        "catalogue": OneOf((*CATALOGUES, PUBLISHED), "the products that are searched"),
    },
    max_turns=6,
    expert_turns=10,
)
"""The exact engine; success is the full reward, and tables report the mean reward too."""
