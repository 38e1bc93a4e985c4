"""A catalogue: products as WebShop's engine loads them, the search over them, and where published ones are found."""

from __future__ import annotations

import json
import math
import os
import random
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from hashlib import blake2b
from pathlib import Path

from agentprm_core.errors import DataError
from agentprm_core.worlds.published_files import read_member
from agentprm_core.worlds.webshop.generate import generate_products
from agentprm_core.worlds.webshop.product import Product
from agentprm_core.worlds.webshop.search import Index

PUBLISHED = "published"
"""The name of the catalogue of 1,000 products that AgentGym ships."""
GENERATED = "generated"
ROOT = "WEBSHOP_DATA"
"""Environment variable: the folder, or the ``.tar.xz`` with, :data:`PRODUCTS` and :data:`INSTRUCTIONS`."""
PRODUCTS, INSTRUCTIONS = "products_from_index_1000.json", "items_ins_v2_1000.json"
_ARCHIVE = "webshop_small.tar.xz"
_BESIDE = Path(__file__).resolve().parents[4] / "shared" / "data" / "later"


class Catalogue:
    """Products in file order, and the search."""

    def __init__(self, name: str, products: Sequence[Product], digest: str = "") -> None:
        self.name = name
        self.digest = digest
        """Of published products (:func:`products_digest`); empty for generated ones."""
        self.products = tuple(products)
        self.number = {product.asin: number for number, product in enumerate(self.products)}
        self._index = Index([product.text for product in self.products], [product.asin for product in self.products])
        self.find = lru_cache(maxsize=20_000)(self._find)
        """A query → the numbers of the products found; None for one at which the published engine breaks."""

    def product(self, asin: str) -> Product:
        """Raises KeyError for a product that is not there."""
        return self.products[self.number[asin]]

    def _find(self, query: str) -> tuple[int, ...] | None:
        first, *rest = query.split(" ")
        numbers = range(len(self.products))
        if first == "<r>":
            # the published engine draws anew at every search; here a query always finds the same
            return tuple(random.Random(query).sample(numbers, k=min(50, len(numbers))))
        if first == "<a>" or (first == "<c>" and not rest):
            return None
        if first == "<c>":
            return tuple(n for n in numbers if self.products[n].category == rest[0].strip())
        if first == "<q>":
            return tuple(n for n in numbers if self.products[n].query == " ".join(rest).strip())
        return self._index.search(query)


@cache
def catalogue(name: str) -> Catalogue:
    """The catalogue of a name, made once a process: ``published``, or ``generated-SEED``.

    Raises DataError: no such name; or the published products are not there, are cut, or lack a field.
    """
    if name == PUBLISHED:
        root = published_root()
        return Catalogue(name, read_products(root), products_digest(root))
    kind, _, seed = name.partition("-")
    if kind != GENERATED or not seed.isdecimal():
        raise DataError(
            f"webshop: catalogue {name!r} is neither {PUBLISHED!r} nor '{GENERATED}-SEED'; make the games anew"
        )
    return Catalogue(name, generate_products(int(seed)))


def published_root() -> Path:
    """Where the published catalogue lies: ``WEBSHOP_DATA``, or ``../shared/data/later``. Raises DataError: nowhere."""
    root = _asked()
    if not _holds(root):
        raise DataError(
            f"webshop: no published catalogue at {root}; set {ROOT} to the folder or .tar.xz with {PRODUCTS}"
        )
    return root


def _asked() -> Path:
    return Path(os.environ.get(ROOT) or _BESIDE)


def look_beside(folder: Path) -> None:
    """Has worlds of this process read published products in ``folder`` where ``WEBSHOP_DATA`` is not set and
    ``../shared/data/later`` has none."""
    if not os.environ.get(ROOT) and not _holds(_BESIDE) and _holds(folder):
        os.environ[ROOT] = str(folder)


def _holds(root: Path) -> bool:
    """Whether it may be a pack; a file is one, or is told that it is none when it is read."""
    return root.is_file() or any((root / name).exists() for name in (PRODUCTS, _ARCHIVE))


def products_digest(root: Path) -> str:
    """Of the two files of a pack. Raises DataError: a file is not there, or is cut."""
    return blake2b(_read(root, PRODUCTS) + _read(root, INSTRUCTIONS), digest_size=8).hexdigest()


def played_digest(root: Path) -> str:
    """The digest of the products of ``root``, for games that are played with them.

    Raises DataError: worlds would read other products, or none; says what to set.
    """
    digest, place = products_digest(root), _asked()
    found = products_digest(place) if _holds(place) else ""
    if found != digest:
        raise DataError(
            f"webshop: the games of {root} are played with the products at {place}, which are "
            f"{'others' if found else 'not there'}: set {ROOT} to {root.absolute()}"
        )
    return digest


def read_products(root: Path) -> list[Product]:
    """The products of a folder or of a ``.tar.xz``, in file order.

    Raises DataError: a file is not there, is cut, a product lacks a field or is there twice; says which.
    """
    listed, instructions = _json(root, PRODUCTS), _json(root, INSTRUCTIONS)
    if not (isinstance(listed, list) and listed and isinstance(instructions, dict) and instructions):
        raise DataError(
            f"webshop: {root}: {PRODUCTS} must be a list and {INSTRUCTIONS} an object, with something in them; fetch "
            "the pack again"
        )
    products = [_product(number, entry, instructions, root) for number, entry in enumerate(listed)]
    first: dict[str, int] = {}
    for number, product in enumerate(products):
        if (before := first.setdefault(product.asin, number)) != number:
            raise DataError(
                f"webshop: {PRODUCTS} of {root}: products {before} and {number} are both {product.asin}; fetch the "
                "pack again, or take one out"
            )
    return products


def _json(root: Path, name: str):
    text = _read(root, name)
    try:
        return json.loads(text)
    except ValueError as error:
        raise _cut(root, name, error) from error


def _read(root: Path, name: str) -> bytes:
    archive = root if root.is_file() else root / _ARCHIVE
    try:
        if root.is_dir() and (root / name).exists():
            return (root / name).read_bytes()
        with tarfile.open(archive) as opened:
            members = {Path(member.name).name: member for member in opened.getmembers()}
            return read_member(opened, members[name])
    except (FileNotFoundError, KeyError) as error:
        raise DataError(
            f"webshop: {root} holds neither {name} nor {_ARCHIVE} with it; put it there, or name the folder or .tar.xz "
            f"with {PRODUCTS} and {INSTRUCTIONS}"
        ) from error
    except (ValueError, EOFError, OSError, tarfile.TarError) as error:
        raise _cut(root, name, error) from error


def _cut(root: Path, name: str, error: Exception) -> DataError:
    return DataError(f"webshop: {name} of {root} is cut or not what it should be ({error}); fetch the pack again")


def _product(number: int, entry: dict, instructions: dict, root: Path) -> Product:
    with _sound(root, PRODUCTS, f"product {number}"):
        asin = _text(entry, "asin")
        with _sound(root, INSTRUCTIONS, f"the entry {asin}"):
            instruction, wanted = _told(_object(instructions, asin) if asin in instructions else {})
        options = _object(entry, "options")
        return Product(
            asin=asin,
            title=_text(entry, "Title"),
            description=_text(entry, "Description"),
            bullets=_list(entry, "BulletPoints", str),
            options={name: _list(options, name, str) for name in options},
            prices=_prices(entry),
            category=_text(entry, "category"),
            query=_text(entry, "query"),
            product_category=_text(entry, "product_category"),
            attributes=_list(entry, "Attributes", str),
            instruction=instruction,
            wanted=wanted,
        )


def _told(entry: dict) -> tuple[str | None, tuple[str, ...]]:
    """What the product is asked for with, and the attributes that are wanted; nobody asks for many products."""
    given = {name for name, value in entry.items() if value is not None}
    return (
        _text(entry, "instruction") if "instruction" in given else None,
        _list(entry, "instruction_attributes", str) if "instruction_attributes" in given else (),
    )


@contextmanager
def _sound(root: Path, name: str, what: str) -> Iterator[None]:
    """Says of an entry with other contents than the pack's which one it is, and of which file."""
    try:
        yield
    except (KeyError, TypeError) as error:
        wrong = f"lacks {error}" if isinstance(error, KeyError) else f"is damaged: {error}"
        raise DataError(f"webshop: {name} of {root}: {what} {wrong}; fetch the pack again") from error


def _object(entry: dict, name: str) -> dict:
    if not isinstance(entry[name], dict):
        raise TypeError(f"{name} is {entry[name]!r:.40}, not an object")
    return entry[name]


def _text(entry: dict, name: str) -> str:
    if not isinstance(entry[name], str):
        raise TypeError(f"{name} is {entry[name]!r:.40}, not a text")
    return entry[name]


def _list(entry: dict, name: str, *kinds: type) -> tuple:
    value = entry[name]
    if not isinstance(value, list) or not all(isinstance(one, kinds) and not isinstance(one, bool) for one in value):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name} is {value!r:.40}, not a list of {wanted}")
    return tuple(value)


def _prices(entry: dict) -> tuple[float, ...]:
    """One, or the ends of a range."""
    prices = _list(entry, "pricing", int, float)
    if len(prices) not in (1, 2) or not all(0 <= price < math.inf for price in prices):
        raise TypeError(f"pricing is {entry['pricing']!r:.40}, not one price or two")
    return prices
