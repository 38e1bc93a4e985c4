"""WebShop as a world: the pages of one session, and the reward when something is bought.

Says what the published environment says in ``text`` mode. What means nothing on a page shows the page again.
"""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from typing import NamedTuple, Self

from agentprm_core.types import Game
from agentprm_core.worlds.base import Observation
from agentprm_core.worlds.webshop.catalogue import Catalogue
from agentprm_core.worlds.webshop.games import Task, read_task
from agentprm_core.worlds.webshop.pages import (
    BACK,
    BUY,
    NEXT,
    PREVIOUS,
    SEARCH_PAGE,
    SEP,
    SUB_PAGES,
    Page,
    Pages,
    parse,
    thanks,
)
from agentprm_core.worlds.webshop.reward import Parts, judge


class State(NamedTuple):
    """Where a session is. Nothing else of the past matters."""

    place: str = "search"
    """``search``, ``results``, ``item``, a sub page's name, or ``done``."""
    found: tuple[int, ...] = ()
    """What the last search found: numbers of products."""
    page: int = 0
    number: int = -1
    """The product that is open."""
    options: tuple[tuple[str, str], ...] = ()
    """Chosen options, sorted by name."""
    misread: str = ""
    """A page's name in the query: the published engine then takes the page for that one (:func:`_page_name`)."""


_START = State()


class _Session(NamedTuple):
    """What does not change in an episode."""

    game_id: str
    task: Task
    shop: Catalogue
    pages: Pages
    instruction: str


class WebShopWorld:
    """One session with one goal. A state is a tuple that clones share."""

    __slots__ = ("_page", "_session", "_state")

    def reset(self, game: Game) -> Observation:
        task, shop = read_task(game)
        instruction = f"Instruction:{SEP}{task.goal.instruction.strip()}"
        self._session = _Session(game.id, task, shop, _pages(shop), instruction)
        self._go(_START)
        return self._seen()

    def step(self, command: str) -> Observation:
        action = parse(command)
        if action is None or self._state.place == "done":
            return self._seen()
        verb, argument = action
        if verb == "search":
            self._search(argument)
        elif verb == "click" and argument in self._page.clickables and argument != "search":
            self._click(argument)
        return self._seen()

    def clone(self) -> Self:
        copy = object.__new__(type(self))
        copy._session, copy._state, copy._page = self._session, self._state, self._page
        return copy

    def state_key(self) -> str:
        return blake2b(f"{self._session.game_id}{self._state}".encode(), digest_size=16).hexdigest()

    def parts(self) -> Parts:
        """What the reward of buying here and now would be made from. Raises IndexError where no product is open."""
        task, shop, state = self._session.task, self._session.shop, self._state
        bought = shop.products[state.number]
        price = task.prices.get(bought.asin, bought.price)
        return judge(bought, dict(state.options), price, task.goal, shop.product(task.goal.asin))

    @property
    def state(self) -> State:
        """Where the session is."""
        return self._state

    @property
    def found(self) -> list[str]:
        """The product codes that the last search found, best first."""
        return [self._session.shop.products[number].asin for number in self._state.found]

    @property
    def clickables(self) -> tuple[str, ...]:
        """What can be clicked, as the published environment lists it."""
        return () if self._state.place == "done" else tuple(self._page.clickables)

    def _seen(self) -> Observation:
        session, state = self._session, self._state
        if state.place == "done":
            reward = self.parts().reward
            asin = session.shop.products[state.number].asin
            return Observation(thanks(asin, dict(state.options), reward), (), reward, True)
        opening = f"WebShop{SEP}{session.instruction}" if state.place == "search" else session.instruction
        return Observation(opening + self._page.rest, self._page.admissible)

    def _search(self, query: str) -> None:
        found = self._session.shop.find(query)
        if found is not None:
            misread = next((name for name in ("search_results", "item_page") if name in query), "")
            self._go(State("results", found, 1, misread=misread))

    def _click(self, text: str) -> None:
        """The order of the cases is the published one: an option that is called as a button is one."""
        state, (kind, of) = self._state, self._page.clickables[text]
        if text == BUY:
            self._go(State("done", number=state.number, options=state.options))
        elif text == BACK:
            self._go(_START)
        elif text in (PREVIOUS, NEXT) and (name := _page_name(state)) != "item_sub_page":
            if name == "search_results":
                self._results(state.page + (1 if text == NEXT else -1))
            elif text == PREVIOUS:
                self._results(state.page)
        elif text == PREVIOUS:
            self._go(state._replace(place="item"))
        elif text in SUB_PAGES:
            self._go(state._replace(place=text))
        elif kind == "product":
            self._go(state._replace(place="item", number=self._session.shop.number[of], options=()))
        else:
            options = dict(state.options) | {of.lower(): text}
            self._go(state._replace(options=tuple(sorted(options.items()))))

    def _results(self, page: int) -> None:
        self._go(State("results", self._state.found, page, misread=self._state.misread))

    def _go(self, state: State) -> None:
        self._state, self._page = state, _shown(self._session.pages, state)


def _shown(pages: Pages, state: State) -> Page:
    if state.place == "search":
        return SEARCH_PAGE
    if state.place == "results":
        return pages.results(state.found, state.page)
    if state.place in SUB_PAGES:
        return pages.sub_page(state.number, state.place)
    return pages.item(state.number)


def _page_name(state: State) -> str:
    """What the published engine takes the page for: the first of three names that the address holds, query included."""
    if state.place == "results" or state.misread == "search_results":
        return "search_results"
    if state.place == "item" or state.misread == "item_page":
        return "item_page"
    return "item_sub_page"


@cache
def _pages(shop: Catalogue) -> Pages:
    return Pages(shop)
