"""Minecraft's recipe files as a book of recipes, by the rules of TextCraft's published loader.

The files are read in an order that matters: of two recipes that undo each other (nine nuggets to an ingot, an ingot to
nine nuggets) the first stays. The published loader takes ``os.listdir``'s order, which is the host's own. Here files
are read by name, and :data:`FIRST` names those that must have come before in the run behind ADaPT's published starts.
"""

from __future__ import annotations

import json
import lzma
import os
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from agentprm_core.errors import DataError
from agentprm_core.worlds.published_files import read_member
from agentprm_core.worlds.textcraft.recipes import Ingredient, MadeFromItself, Recipe, RecipeBook

VARIABLE = "TEXTCRAFT_RECIPES"
ARCHIVE = "textcraft_recipes.tar.xz"
SHARED = Path(__file__).resolve().parents[4] / "shared" / "data" / "later"
"""``../shared/data/later`` beside the repository."""
FIRST = {"adapt": ("gold_nugget.json", "honey_bottle.json", "iron_nugget.json"), "agentgym": ()}
"""Variant of the published environment → files read before all others."""
_PREFIX = "minecraft:"
_HOW = f"set {VARIABLE} to the folder of recipes or to {ARCHIVE}"
_MEND = "mend it, or take the file out of the pack"


def find_pack(root: Path | None = None) -> Path:
    """Where the recipe files are: ``root`` where it is an archive, else in it; without a root, what the environment
    variable says, else in :data:`SHARED`.

    Raises DataError where they are not.
    """
    if root is None and (given := os.environ.get(VARIABLE)):
        return Path(given)
    if root is not None and root.is_file():
        return root
    place = SHARED if root is None else root
    if found := _pack_in(place):
        return found
    other = f", or {_HOW}" if root is None else ", or name the folder or archive that has them"
    raise DataError(f"TextCraft: neither {ARCHIVE} nor a folder recipes is in {place}: put them there{other}")


def look_beside(folder: Path) -> None:
    """Has this process find the recipes in ``folder`` where the environment variable is not set and :data:`SHARED` has
    none."""
    if not os.environ.get(VARIABLE) and not _pack_in(SHARED) and (found := _pack_in(folder)):
        os.environ[VARIABLE] = str(found)


def _pack_in(folder: Path) -> Path | None:
    return next((found for found in (folder / ARCHIVE, folder / "recipes") if found.exists()), None)


@lru_cache(maxsize=4)
def load_book(pack: Path, variant: str) -> RecipeBook:
    """The book of a folder or tar archive of recipe files (``*.json``).

    Raises:
        DataError: no or unreadable files, a recipe that makes itself; says which file and what to do.
    """
    files = _read_files(pack)
    first = [name for name in FIRST[variant] if name in files]
    order = first + sorted(files.keys() - set(first))
    return make_book(((name, _parsed(name, files[name], pack)) for name in order), pack)


def make_book(files: Iterable[tuple[str, dict]], pack: Path | None = None) -> RecipeBook:
    """The book of recipe files (name, content) in this order. ``pack``: where they lie, for errors.

    Raises:
        DataError: a file of another shape, a recipe that makes itself; names the file, or those of the circle.
    """
    kept: list[Recipe] = []
    kept_of: list[str] = []
    items: set[str] = set()
    tags: set[str] = set()
    tag_of: dict[str, str] = {}
    needs: dict[str, set[str]] = {}
    where = "" if pack is None else f"{pack}: "
    for name, content in files:
        try:
            recipe = _recipe(content)
        except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError) as error:
            raise DataError(f"{where}{name}: no recipe as Minecraft 1.16.5 writes them ({error!r}): {_MEND}") from error
        if recipe is None:
            continue
        parts = recipe.ingredients
        if any(recipe.output == each.name and not each.tag for each in parts):
            raise DataError(f"{where}{name}: makes {recipe.output} from itself: take the file out of the pack")
        items.add(recipe.output)
        items.update(each.name for each in parts if not each.tag)
        tags.update(each.name for each in parts if each.tag)
        if len(parts) == 1 and parts[0].name.endswith("_block"):
            continue
        if recipe.tag not in (None, recipe.output):
            tags.add(recipe.tag)
            tag_of[recipe.output] = recipe.tag
        deeper = needs.setdefault(recipe.output, set())
        if any(recipe.output in needs.get(each.name, ()) for each in parts):
            continue
        kept.append(recipe)
        kept_of.append(name)
        for each in parts:
            deeper |= {each.name, *needs.get(each.name, ())}
    book = _with_plain_items(RecipeBook(tuple(kept), frozenset(items), frozenset(tags), tag_of))
    if not _depths(book, kept_of, where):
        none = "not one recipe for the crafting table among the files"
        raise DataError(f"{where or 'TextCraft: '}{none}: take the pack of Minecraft's recipes (*.json)")
    return book


def _depths(book: RecipeBook, files: Sequence[str], where: str) -> Mapping[str, int]:
    """Those of the book. Raises DataError for a circle: names its ``files``, of which each recipe has one, in order."""
    try:
        return book.depths
    except MadeFromItself as error:
        named = [files[book.recipes.index(recipe)] for recipe in error.recipes]
        one = "one of these files" if len(named) > 1 else "the file"
        raise DataError(f"{where}{', '.join(named)}: {error}: take {one} out of the pack") from error


def _with_plain_items(book: RecipeBook) -> RecipeBook:
    """A family in a recipe without a craftable member becomes an item that can be got."""
    craftable = {tag for item, tag in book.tag_of.items() if item in book.of_item}
    plain = {each.name for recipe in book.recipes for each in recipe.ingredients if each.tag} - craftable

    def settled(recipe: Recipe) -> Recipe:
        parts = (Ingredient(each.name, each.count, each.tag and each.name not in plain) for each in recipe.ingredients)
        return recipe._replace(ingredients=tuple(parts))

    return replace(book, recipes=tuple(map(settled, book.recipes)), items=book.items | plain, tags=book.tags - plain)


def _recipe(content: dict) -> Recipe | None:
    """One file as a recipe; None for what is not made on the crafting table."""
    match content["type"]:
        case "minecraft:crafting_shaped":
            pattern = content["pattern"]
            parts = [(each, sum(row.count(key) for row in pattern)) for key, each in content["key"].items()]
            ingredients = [_ingredient(each, count) for each, count in parts]
        case "minecraft:crafting_shapeless":
            counted: dict[str, Ingredient] = {}
            for each in content["ingredients"]:
                found = _ingredient(each, 1)
                before = counted.get(found.name)
                counted[found.name] = found._replace(count=before.count + 1 if before else 1)
            ingredients = list(counted.values())
        case _:
            return None
    result = content["result"]
    output, count = (result, 1) if isinstance(result, str) else (result["item"], int(result.get("count", 1)))
    if not ingredients or count < 1 or any(each.count < 1 for each in ingredients):
        raise ValueError("it takes nothing, makes nothing, or takes none of what its key names")
    group = content.get("group")
    if not isinstance(group, str | None):
        raise ValueError(f"group is {group!r:.40}, not a text")
    return Recipe(_bare(output), count, tuple(ingredients), group)


def _ingredient(entry: dict | list, count: int) -> Ingredient:
    first = entry[0] if isinstance(entry, list) else entry
    if "item" in first:
        return Ingredient(_bare(first["item"]), count)
    return Ingredient(_bare(first["tag"]), count, tag=True)


def _bare(name: str) -> str:
    if not name.startswith(_PREFIX):
        raise ValueError(f"{name!r} does not begin with {_PREFIX!r}")
    return name.removeprefix(_PREFIX)


def _read_files(pack: Path) -> dict[str, bytes]:
    try:
        if pack.is_dir():
            folder = pack / "recipes" if (pack / "recipes").is_dir() else pack
            return {file.name: file.read_bytes() for file in folder.glob("*.json")}
        with tarfile.open(pack) as archive:
            return dict(_members(archive))
    except FileNotFoundError as error:
        raise DataError(f"{pack}: no such folder or archive of recipes: {_HOW}") from error
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise DataError(f"{pack}: the archive of recipes is cut off or broken ({error}): copy it again") from error


def _members(archive: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    for member in archive:
        if member.isfile() and member.name.endswith(".json"):
            yield member.name.rpartition("/")[2], read_member(archive, member)


def _parsed(name: str, content: bytes, pack: Path) -> dict:
    try:
        return json.loads(content)
    except ValueError as error:
        raise DataError(f"{pack}: {name} is cut off or broken ({error}): copy the pack again") from error
