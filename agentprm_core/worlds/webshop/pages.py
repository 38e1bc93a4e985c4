"""WebShop's pages in ``text`` mode: what each says and what can be clicked on it.

A page's text is the stripped texts of the published HTML, joined by `` [SEP] ``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from agentprm_core.worlds.base import OPEN
from agentprm_core.worlds.webshop.catalogue import Catalogue
from agentprm_core.worlds.webshop.product import Product

SEP = " [SEP] "
BACK, PREVIOUS, NEXT, BUY = "back to search", "< prev", "next >", "buy now"
SUB_PAGES = ("description", "features", "reviews")
PER_PAGE = 10
SEARCH = f"search[{OPEN}]"
_AS_JSON = json.JSONEncoder(sort_keys=True)
_ACTION = re.compile(r"(.+)\[(.+)\]")


@dataclass(frozen=True, slots=True)
class Page:
    """A page without the instruction."""

    rest: str
    """What stands after the instruction."""
    clickables: Mapping[str, tuple[str, str]]
    """What can be clicked, as published and in that order → what it is (``button``, ``product``, ``option``) and of
    what: an option's name."""
    admissible: tuple[str, ...]


def parse(action: str) -> tuple[str, str] | None:
    """(verb, argument in lower case) as the published pattern reads them, greedily; None where it does not match."""
    found = _ACTION.match(action)
    return (found[1], found[2].lower()) if found else None


def _page(rest: str, clickables: Mapping[str, tuple[str, str]]) -> Page:
    clicks = (_click(text) for text in clickables)
    return Page(rest, clickables, tuple(sorted([*(click for click in clicks if click), SEARCH])))


@lru_cache(maxsize=100_000)
def _click(text: str) -> str | None:
    """The command that clicks ``text``; None where the published pattern reads another one."""
    command = f"click[{text}]"
    return command if text != "search" and parse(command) == ("click", text) else None


def _told(texts: Iterable[str]) -> str:
    return "".join(SEP + text.strip() for text in texts if text not in ("", "\n"))


def _buttons(*texts: str) -> dict[str, tuple[str, str]]:
    return {text: ("button", "") for text in texts}


SEARCH_PAGE = _page(_told(["Search"]), _buttons("search"))


class Pages:
    """The pages of one catalogue, each made once."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._products = catalogue.products
        self.results = lru_cache(maxsize=8_000)(self._results)
        self.item = lru_cache(maxsize=None)(self._item)
        self.sub_page = lru_cache(maxsize=None)(self._sub_page)
        self._listed = lru_cache(maxsize=None)(self._made_listed)

    def _results(self, found: tuple[int, ...], page: int) -> Page:
        """Page ``page`` of the products ``found``; empty past the end."""
        texts = ["Back to Search", f"Page {page} (Total results: {len(found)})"]
        texts += ["< Prev", "Next >"] if page > 1 else ["Next >"]
        listed = [self._listed(number) for number in found[(page - 1) * PER_PAGE : page * PER_PAGE]]
        clickables = _buttons(BACK, PREVIOUS, NEXT) if page > 1 else _buttons(BACK, NEXT)
        clickables.update(clickable for _, clickable in listed)
        return _page(_told(texts) + "".join(text for text, _ in listed), clickables)

    def _made_listed(self, number: int) -> tuple[str, tuple[str, tuple[str, str]]]:
        """What a page of results says of a product, and what can be clicked there."""
        product = self._products[number]
        text = _told((product.asin, product.title, product.price_tag))
        return text, (product.asin.lower(), ("product", product.asin))

    def _item(self, number: int) -> Page:
        product = self._products[number]
        texts = ["Back to Search", "< Prev"]
        clickables = _buttons(BACK, PREVIOUS, *SUB_PAGES, BUY)
        for name, values in product.options.items():
            texts += [name, *values]
            clickables |= {value: ("option", name) for value in values}
        texts += [product.title, f"Price: {product.price_tag}", "Rating: N.A.", "Description", "Features", "Reviews"]
        return _page(_told([*texts, "Buy Now"]), clickables)

    def _sub_page(self, number: int, name: str) -> Page:
        texts = ["Back to Search", "< Prev", *_shown(self._products[number], name)]
        return _page(_told(texts), _buttons(BACK, PREVIOUS))


def _shown(product: Product, name: str) -> tuple[str, ...]:
    if name == "description":
        return (product.description,)
    if name == "features":
        return tuple(f" {bullet}" for bullet in product.bullets)  # as the published template has it: no text is empty
    return ()  # the catalogue comes without reviews


def thanks(asin: str, options: Mapping[str, str], reward: float) -> str:
    """The page after a purchase."""
    chosen = _AS_JSON.encode(dict(options))
    for sign in "<>&'":
        chosen = chosen.replace(sign, f"\\u{ord(sign):04x}")
    nothing = ("attrs", "None", "category", "None", "query", "None", "product category", "None")
    target = ("asin", "options", "attrs", "price upper", "instuction text", "category", "product category", "query")
    return SEP.join(
        (
            *("Thank you for shopping with us!", "Your code:", "None", "(Paste it in your MTurk interface.)"),
            *("Purchased", "asin", asin, "options", chosen, *nothing, "Target", *target, "Goal", "None"),
            *("Reward", "Your score (min 0.0, max 1.0)", str(reward), "Reward Details", "None"),
        )
    )
