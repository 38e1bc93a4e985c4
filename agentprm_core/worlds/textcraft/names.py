"""Names of generated items: a material and a form (``oak_planks``), words that Minecraft's names are made of.

A name belongs to train and seen games or to unseen games alone; every word occurs in both.
"""

from __future__ import annotations

_MATERIALS = (
    "oak dark_oak spruce birch jungle acacia crimson warped stone cobblestone granite diorite andesite blackstone "
    "sandstone quartz prismarine purpur brick glass iron gold golden diamond netherite leather wooden nether end "
    "white black gray light_gray red orange yellow lime green cyan blue light_blue purple magenta pink brown polished "
    "smooth mossy"
)
_FORMS = (
    "planks logs log wood stick slab stairs wall fence gate door trapdoor button sign boat plate block bricks dye wool "
    "carpet bed banner powder pane terracotta pickaxe axe sword shovel hoe helmet boots leggings chestplate rail "
    "minecart torch lantern table chest rod ingot nugget ball book bottle apple"
)
MATERIALS, FORMS = tuple(_MATERIALS.split()), tuple(_FORMS.split())
_PARTS = 4
"""One name in so many belongs to unseen games, and of the others one in so many is a goal of seen games alone."""


def names_of(split: str) -> tuple[str, ...]:
    """The items that a split's games may have."""
    return tuple(name for at, name in enumerate(_NAMES) if _unseen(at) == (split == "unseen"))


def goals_of(split: str) -> tuple[str, ...]:
    """The items that a split's games may ask for: no two splits share one."""
    if split == "unseen":
        return names_of(split)
    return tuple(name for at, name in enumerate(_NAMES) if not _unseen(at) and _kept_for_seen(at) == (split == "seen"))


_NAMES = tuple(f"{material}_{form}" for material in MATERIALS for form in FORMS)


def _unseen(at: int) -> bool:
    material, form = divmod(at, len(FORMS))
    return (material + form) % _PARTS == 0


def _kept_for_seen(at: int) -> bool:
    material, form = divmod(at, len(FORMS))
    return (material + form // _PARTS) % _PARTS == 0
