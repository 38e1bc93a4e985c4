"""TextCraft read a second time, slowly and literally from its rules: what the engine is held against.

Nothing is shared with the engine but the published pack's or a generated game's recipes as plain tuples.
"""

from __future__ import annotations

import re


class SlowTextCraft:
    """``recipes``: (output, count, [(name, count, is a family)]) in load order; ``families``: item → its family."""

    def __init__(self, recipes, items, tags, families, goal, in_place: bool) -> None:
        self.lists: dict[str, list] = {}
        self.items, self.tags, self.families, self.goal = set(items), set(tags), dict(families), goal
        self.family_lists: dict[str, list] = {}
        for output, count, parts, family in recipes:
            self.lists.setdefault(output, []).append((output, count, parts))
            if family is not None:
                self.family_lists.setdefault(family, []).append((output, count, parts))
        self.inventory: list[list] = []  # [name, number]
        if in_place:
            self.look_up(goal, set())

    def look_up(self, name: str, above: set) -> list:
        """ADaPT's traversal: the very list that crafting reads grows while it is read."""
        if name in above:
            return []
        found = self.lists.get(name) or self.family_lists.get(name) or []
        for _, _, parts in found:
            for part, _, _ in parts:
                found.extend(self.look_up(part, above | {name}))
        return found

    def number_of(self, name: str) -> int | None:
        return next((number for held, number in self.inventory if held == name), None)

    def add(self, name: str, number: int) -> None:
        for entry in self.inventory:
            if entry[0] == name:
                entry[1] += number
                return
        self.inventory.append([name, number])

    def step(self, action: str) -> tuple[str, int, bool]:
        if match := re.match(r"craft (.*) using (.*)", action):
            return self.craft(*match.groups())
        if match := re.match(r"get ([0-9]+) (.*)", action):
            return self.get(*match.groups()), 0, False
        if re.match(r"inventory", action):
            shown = [f"[{name.replace('_', ' ')}] ({number}) " for name, number in self.inventory]
            return "Inventory: " + ("".join(shown) or "You are not carrying anything."), 0, False
        return f"Could not execute {action}", 0, False

    def get(self, number: str, item: str) -> str:
        name = item.replace(" ", "_")
        if name in self.lists or name in self.family_lists or name in self.tags or name not in self.items:
            return f"Could not find {item}"
        self.add(name, int(number))
        return f"Got {int(number)} {item}"

    def craft(self, output: str, ingredients: str) -> tuple[str, int, bool]:
        counted = re.match("([0-9]+) (.*)", output)
        count, wanted = (int(counted[1]), counted[2]) if counted else (1, output)
        wanted = wanted.replace(" ", "_")
        typed = []
        for piece in ingredients.split(","):
            match = re.match("([0-9]+) (.*)", piece.strip())
            if not match:
                return f"Wrong item format: {piece.strip()}", 0, False
            typed.append((match[2].replace(" ", "_"), int(match[1])))
        is_tag = wanted in self.tags
        for name, number in typed:
            held = None if name in self.tags else self.number_of(name)
            if held is None or held < number:
                named = "None" if is_tag else f"minecraft:{wanted}"
                return f"Could not find enough items to craft {named}", 0, False
        made = None if is_tag else self.first_recipe(wanted, typed)
        if made is None:
            inside = (
                f"tag='minecraft:{wanted}', item_id=None" if is_tag else f"tag=None, item_id={'minecraft:' + wanted!r}"
            )
            text = f"Could not find a valid recipe for ItemTagWithCount(item_tag=ItemTag({inside}), count={count})"
            return text, 0, False
        for name, number in typed:
            for entry in self.inventory:
                if entry[0] == name:
                    entry[1] -= number
            self.inventory = [entry for entry in self.inventory if entry[0] != name or entry[1] != 0]
        self.add(made[0], made[1])
        return f"Crafted {made[1]} minecraft:{made[0]}", int(made[0] == self.goal), made[0] == self.goal

    def first_recipe(self, wanted: str, typed: list) -> tuple | None:
        for recipe in self.lists.get(wanted, []):
            left, good = list(typed), True
            for name, count, is_family in recipe[2]:
                fits = [one for one in left if (self.families.get(one[0]) == name if is_family else one[0] == name)]
                if not fits or fits[0][1] != count:
                    good = False
                    break
                left.remove(fits[0])
            if good and not left:
                return recipe
        return None
