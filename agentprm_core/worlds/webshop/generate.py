"""A catalogue without a download: products with titles, options, prices, attributes, and what goals of them say."""

from __future__ import annotations

import random

from agentprm_core.worlds.webshop.product import Product

COUNT = 1000
"""Products of a catalogue, as many as the published small one has."""

_COLOURS = ("black", "white", "navy", "red", "green", "grey", "pink", "blue", "brown", "purple", "yellow", "khaki")
_CLOTHES = ("small", "medium", "large", "x-large", "xx-large")
_SHOES = ("6", "6.5", "7", "7.5", "8", "8.5", "9", "10", "11")
_PACKS = ("1 count", "2 count", "4 count", "6 count", "12 count")
_FLAVOURS = ("vanilla", "chocolate", "strawberry", "lemon", "salted caramel", "original", "peanut butter")
_SCENTS = ("lavender", "rose", "unscented", "coconut", "citrus", "sandalwood")
_RUGS = ("2 ft x 3 ft", "3 ft x 5 ft", "4 ft x 6 ft", "5 ft x 8 ft")
_FITS = ("men", "women", "youth")
_BRANDS = (
    "Avelo",
    "Birchen",
    "Corvane",
    "Dunmoor",
    "Elstra",
    "Fennick",
    "Galdor",
    "Hestia",
    "Ivorel",
    "Jorvik",
    "Kestrel",
)
_STYLES = (
    "Classic",
    "Modern",
    "Everyday",
    "Lightweight",
    "Premium",
    "Compact",
    "Outdoor",
    "Casual",
    "Vintage",
    "Deluxe",
)

_KINDS = {
    # category › parts: (types, attributes, options)
    "Clothing, Shoes & Jewelry › Tops": (
        ("women's blouses", "men's t-shirts", "men's dress shirts", "women's sweaters", "hooded sweatshirts"),
        ("long sleeve", "short sleeve", "machine wash", "classic fit", "slim fit", "button closure", "quick drying"),
        {"color": _COLOURS, "size": _CLOTHES, "fit type": _FITS},
    ),
    "Clothing, Shoes & Jewelry › Bottoms": (
        ("men's shorts", "women's leggings", "men's pants", "women's jeans"),
        ("elastic waist", "high waist", "tummy control", "drawstring closure", "machine wash", "stretch fabric"),
        {"color": _COLOURS, "size": _CLOTHES},
    ),
    "Clothing, Shoes & Jewelry › Shoes": (
        ("women's sandals", "men's loafers", "running shoes", "ankle boots"),
        ("rubber sole", "arch support", "open toe", "memory foam", "anti slip", "leather sole"),
        {"color": _COLOURS, "size": _SHOES},
    ),
    "Beauty & Personal Care › Care": (
        ("hair masks", "face creams", "body lotions", "lip balms", "shampoos"),
        ("sulfate free", "cruelty free", "dry skin", "natural ingredients", "fine lines", "tea tree", "sensitive skin"),
        {"scent": _SCENTS, "size": _PACKS},
    ),
    "Grocery & Gourmet Food › Snacks": (
        ("protein bars", "trail mixes", "breakfast cereals", "fruit snacks", "rice crackers"),
        ("gluten free", "low sugar", "high protein", "non gmo", "certified organic", "dairy free", "low calorie"),
        {"flavor name": _FLAVOURS, "size": _PACKS},
    ),
    "Home & Kitchen › Decor": (
        ("throw blankets", "decorative pillows", "window curtains", "area rugs"),
        ("super soft", "machine washable", "living room", "easy clean", "double sided", "eco friendly", "dining room"),
        {"color": _COLOURS, "size": _RUGS},
    ),
    "Home & Kitchen › Furniture": (
        ("table lamps", "console tables", "bar stools", "coffee tables"),
        ("solid wood", "steel frame", "easy assembly", "mid century", "bronze finish", "space saving"),
        {},
    ),
    "Electronics › Accessories": (
        ("screen protectors", "phone cases", "wireless earbuds", "portable speakers", "charging cables"),
        ("tempered glass", "fast charging", "noise cancelling", "high speed", "water resistant", "wireless charging"),
        {"color": _COLOURS},
    ),
}


def phrases() -> tuple[str, ...]:
    """What generated products are called and have, as far as it is more than one word: kinds, attributes, options."""
    named = {
        text
        for kinds, attributes, options in _KINDS.values()
        for text in (*kinds, *attributes, *(value for values in options.values() for value in values))
    }
    return tuple(sorted(text for text in named if " " in text))


def generate_products(seed: int) -> list[Product]:
    """:data:`COUNT` products; the same for the same ``seed``."""
    draws, codes, products = random.Random(f"webshop catalogue {seed}"), set(), []
    for _ in range(COUNT):
        place, (types, attributes, options) = draws.choice(list(_KINDS.items()))
        products.append(_product(draws, _code(draws, codes), place, draws.choice(types), attributes, options))
    return products


def _product(draws: random.Random, asin: str, place: str, kind: str, attributes: tuple, options: dict) -> Product:
    has = draws.sample(attributes, draws.randint(2, 4))
    wanted = draws.sample(has, draws.randint(1, len(has)))
    titled = draws.sample(has, draws.randint(1, len(has)))
    named = draws.sample(sorted(options), draws.randint(0, len(options)))
    offered = {name: tuple(draws.sample(options[name], draws.randint(2, min(5, len(options[name]))))) for name in named}
    low = draws.randint(4, 120) + 0.99
    style = draws.choice(_STYLES)
    title = f"{draws.choice(_BRANDS)} {style} {kind.title()} with {', '.join(map(str.title, titled))}"
    return Product(
        asin=asin,
        title=title.replace("'S", "'s"),
        description=f"{style} {kind} for every day.",
        bullets=tuple(f"{attribute.capitalize()}: made for it." for attribute in has),
        options=offered,
        prices=(low, round(low + draws.randint(2, 20), 2)) if draws.random() < 0.1 else (low,),
        category=place.split(" ")[0].strip(",").lower(),
        query=kind,
        product_category=f"{place} › {kind.title()}",
        attributes=tuple(has),
        instruction=_instruction(kind, wanted),
        wanted=tuple(wanted),
    )


def _instruction(kind: str, wanted: list[str]) -> str:
    before, after = wanted[: (len(wanted) + 1) // 2], wanted[(len(wanted) + 1) // 2 :]
    return f"Find me {', '.join(before)} {kind}" + (f" with {', '.join(after)}" if after else "")


def _code(draws: random.Random, taken: set[str]) -> str:
    """A product code of the published form: ``B0`` and eight signs."""
    while True:
        code = "B0" + "".join(draws.choices("0123456789BCDFGHJKLMNPQRSTVWXYZ", k=8))
        if code not in taken:
            taken.add(code)
            return code
