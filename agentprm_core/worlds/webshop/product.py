"""A product of a catalogue, as the shop's pages and goals read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Product:
    """One product. Prices in dollars."""

    asin: str
    title: str
    description: str
    bullets: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]
    """Option name → its values, both as shown."""
    prices: tuple[float, ...]
    """The price, or the lowest and the highest."""
    category: str
    query: str
    product_category: str
    attributes: tuple[str, ...]
    instruction: str | None = None
    """What goals of this product begin with; None for a product that is nobody's goal."""
    wanted: tuple[str, ...] = ()
    """The attributes that the instruction names."""

    @property
    def price(self) -> float:
        """What it costs: of a range the middle, where the published engine draws from it at every start."""
        return sum(self.prices) / len(self.prices)

    @property
    def price_tag(self) -> str:
        return " to ".join(f"${price}" for price in self.prices)

    @property
    def text(self) -> str:
        """What the search knows of it."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        return " ".join([self.title, self.description, self.bullets[0] if self.bullets else "", options]).lower()
