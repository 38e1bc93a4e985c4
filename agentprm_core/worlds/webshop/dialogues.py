"""Recorded dialogues, goals, ranks and rewards of the published environment against ours (``python -m
benchmarks.dialogues --world webshop``).

A dialogue's goal is its own. Prices that the recorded run drew from a range are read from the purchases it recorded. A
purchase of another product than the goal's has no recorded reward (it needs spaCy's model): its parts are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from agentprm_core.worlds.dialogues import Compared, Report, tally, whole
from agentprm_core.worlds.webshop.analysis import STOP_WORDS
from agentprm_core.worlds.webshop.catalogue import PUBLISHED, Catalogue, catalogue, look_beside
from agentprm_core.worlds.webshop.engine import WebShopWorld
from agentprm_core.worlds.webshop.games import make_game
from agentprm_core.worlds.webshop.goals import Goal, instruction_text, make_goals
from agentprm_core.worlds.webshop.reward import COLOURS, option_matches, type_share

__all__ = ["check", "look_beside"]


def check(records: Sequence[dict]) -> Report:
    """Plays the dialogues and compares every other record.

    Raises DataError: the published catalogue is not there, or a record is of an unknown kind.
    """
    shop = catalogue(PUBLISHED)
    goals = make_goals(shop.products)
    prices = _drawn_prices(records)
    checks: dict[str, Callable[[dict], Iterator[Compared]]] = {
        "goal": lambda record: _goal(record, goals, shop),
        "ranks": lambda record: _ranks(record, shop),
        "reward": _reward,
        "published": lambda record: _published(record, goals),
        "colours": lambda record: iter([(0, "colours", tuple(record["names"]), COLOURS)]),
        "stop_words": lambda record: iter([(0, "stop words", sorted(record["words"]), sorted(STOP_WORDS))]),
        "dialogue": lambda record: _dialogue(record, goals, prices),
    }

    def compared(record: dict) -> Iterator[Compared]:
        if record["kind"] not in checks:
            raise ValueError(f"its kind is {record['kind']!r}, and there are {', '.join(checks)}")
        return checks[record["kind"]](record)

    return tally(records, compared, lambda record: record["kind"] in ("dialogue", "published"))


def _goal_of(record: dict, goals: Sequence[Goal]) -> Goal:
    number = record["goal_index"]
    if not 0 <= number < len(goals):
        raise IndexError(f"goal_index {number}: the catalogue has {len(goals)} goals")
    return goals[number]


def _drawn_prices(records: Sequence[dict]) -> dict[str, float]:
    prices: dict[str, float] = {}
    for number, record in enumerate(records, 1):
        with whole(number, record):
            parts = [step.get("reward_parts") for step in record.get("steps", ())]
            prices |= {part["asin"]: part["price"] for part in parts if part and "price" in part}
    return prices


def _goal(record: dict, goals: Sequence[Goal], shop: Catalogue) -> Iterator[Compared]:
    """The goal that the published procedure makes; where the price was drawn, all but the limit, which must be one of
    the four multiples of ten above a price of the range."""
    ours, limit = _goal_of(record, goals), record["price_upper"]
    found = {"asin": ours.asin, "attributes": list(ours.attributes), "goal_options": dict(ours.options)}
    found |= {"price_upper": ours.price_upper, "instruction_text": ours.instruction}
    if record.get("price_random"):
        product = shop.product(ours.asin)
        assert product.instruction is not None, "a product with a goal has one"
        low, high = product.prices
        possible = low < limit <= high + 40
        text = instruction_text(product.instruction, ours.options, limit)
        found |= {"price_upper": limit if possible else None, "instruction_text": text}
    yield 0, "goal", {name: record[name] for name in found}, found


def _ranks(record: dict, shop: Catalogue) -> Iterator[Compared]:
    found = shop.find(record["query"].lower())
    assert found is not None, "recorded queries have words"
    ours = {rank: shop.products[found[int(rank) - 1]].asin for rank in record["ranks"] if int(rank) <= len(found)}
    yield 0, record["query"], record["ranks"], ours


def _reward(record: dict) -> Iterator[Compared]:
    """Rewards of products that are not in the catalogue: all that can be had from the record's own parts."""
    wanted, bought = record["goal_options"], record["bought"]
    options = option_matches(bought["options"].values(), wanted)
    r_type = type_share(record["query_match"], record["category_match"], record["title_score"])
    price_ok = bought["price"] <= record["price_upper"]
    attributes = round(record["r_att"] * len(record["attributes"]))
    reward = (attributes + options + price_ok) / (len(record["attributes"]) + len(wanted) + 1) * r_type
    names = ("r_type", "r_option", "r_price", "reward")
    ours = (r_type, options / len(wanted) if wanted else None, price_ok, reward)
    yield 0, "reward", tuple(map(record.get, names)), ours


def _published(record: dict, goals: Sequence[Goal]) -> Iterator[Compared]:
    yield from _play(record, _goal_of(record, goals), {})


def _dialogue(record: dict, goals: Sequence[Goal], prices: dict[str, float]) -> Iterator[Compared]:
    told = record.get("goal")
    if told:
        texts = told["asin"], told["instruction_text"], tuple(told["attributes"]), told["goal_options"]
        goal = Goal(*texts, told["price_upper"])
    else:
        goal = _goal_of(record, goals)
    yield from _play(record, goal, prices)


def _play(record: dict, goal: Goal, prices: dict[str, float]) -> Iterator[Compared]:
    world = WebShopWorld()
    seen = world.reset(make_game(goal, f"webshop/{PUBLISHED}/recorded", "recorded", PUBLISHED, prices))
    yield from _same_page(0, "", record, seen, world)
    for number, step in enumerate(record["steps"], 1):
        if step["done"]:
            yield from _same_parts(number, step, record, world)
        seen = world.step(step["action"])
        yield from _same_page(number, step["action"], step, seen, world)
        if "results" in step:
            yield number, f"{step['action']}: results", step["results"], world.found


def _same_page(number: int, action: str, recorded: dict, seen, world: WebShopWorld) -> Iterator[Compared]:
    """What a record leaves open (None, or absent) is not compared."""
    ours = {
        "observation": seen.text,
        "reward": seen.reward,
        "done": seen.done,
        "has_search_bar": seen.text.startswith("WebShop"),
        "clickables": list(world.clickables),
    }
    told = {name: recorded[name] for name in ours if recorded.get(name) is not None}
    if told:
        yield number, action, told, {name: ours[name] for name in told}


def _same_parts(number: int, step: dict, record: dict, world: WebShopWorld) -> Iterator[Compared]:
    told = step.get("reward_parts") or record.get("reward_parts")
    if told:
        parts = world.parts()
        ours = {
            "attribute_matches": parts.attribute_matches,
            "attributes": parts.attributes,
            "option_matches": parts.option_matches,
            "options_wanted": parts.options,
            "price_ok": parts.price_ok,
            "query_match": parts.query_match,
            "category_match": parts.category_match,
            "r_type": parts.r_type,
            "reward_without_type": parts.without_type,
            "options": dict(world.state.options),
        }
        common = [name for name in ours if name in told]
        yield number, f"{step['action']}: parts", {n: told[n] for n in common}, {n: ours[n] for n in common}
