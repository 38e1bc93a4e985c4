"""A toy world behind the world's contract, a tokenizer for it and small random policies, for tests of playing.

Cabinets hold objects; the task is to take one of them. It won't be confused with a household, but its commands branch
(``go to cabinet 2``, ``take mug 1 from cabinet 2``) and its observations differ in length.
"""

from __future__ import annotations

import copy
import random
from functools import cache
from typing import Self

import torch

from agentprm_core.credit.split import validation_games
from agentprm_core.policy.models import Checkpoint, new_model
from agentprm_core.policy.prompt import make_renderer
from agentprm_core.policy.tokenizer import train_tokenizer
from agentprm_core.types import Game
from agentprm_core.worlds import Observation, WorldSpec
from agentprm_core.worlds.alfworld.spec import ALFWORLD
from tests.model import text_world

KINDS = ("mug", "plate", "book", "apple", "pen")


def game(number: int) -> Game:
    return Game(f"toy/{number:03d}", "toy", "train", "take", "take it", str(number))


class ToyWorld:
    """``Game.payload`` seeds what lies where."""

    def reset(self, game: Game) -> Observation:
        rng = random.Random(game.payload)
        self.game, self.here, self.held = game, 0, ""
        self.places = {n: rng.sample(KINDS, rng.randint(0, 3)) for n in range(1, rng.randint(3, 7))}
        self.target = rng.choice(KINDS)
        seen = ", ".join(f"a cabinet {n}" for n in self.places)
        return self._observe(f"You see {seen}.\n\nYour task is to: take {self.target} 1.")

    def step(self, command: str) -> Observation:
        if command not in self._commands():
            return self._observe("Nothing happens.")
        if command.startswith("take"):
            self.held = command.split()[1]
            self.places[self.here].remove(self.held)
            return self._observe(f"You pick up the {self.held} 1 from the cabinet {self.here}.")
        if command.startswith("go"):
            self.here = int(command.split()[-1])
        lying = ", ".join(f"a {kind} 1" for kind in self.places.get(self.here, [])) or "nothing"
        return self._observe(f"You arrive at cabinet {self.here}. On it, you see {lying}.")

    def clone(self) -> Self:
        return copy.deepcopy(self)

    def state_key(self) -> str:
        return f"{self.game.id}/{self.here}/{self.held}/{self.places}"

    def _observe(self, text: str) -> Observation:
        won = self.held == self.target
        return Observation(text, tuple(sorted(self._commands())), float(won), won)

    def _commands(self) -> list[str]:
        commands = [f"go to cabinet {n}" for n in self.places if n != self.here] + ["look", "inventory"]
        if not self.held:
            commands += [f"take {kind} 1 from cabinet {self.here}" for kind in self.places.get(self.here, [])]
        return commands


TOY = WorldSpec(
    "toy",
    make=ToyWorld,
    generate=lambda count, seed, split: [game(number) for number in range(count)],
    kinds=("take",),
    instruction="You take things.",
)


@cache
def tokenizer(context: int = 512):
    texts, world = [], ToyWorld()
    for number in range(30):
        seen, rng = world.reset(game(number)), random.Random(number)
        for _ in range(30):
            texts += [seen.text, *seen.admissible]
            seen = world.step(rng.choice(seen.admissible))
    return train_tokenizer([*texts, "Nothing happens."], context, ALFWORLD.phrases)


def policy(seed: int = 0, context: int = 512, sharpness: float = 4.0) -> Checkpoint:
    """A random policy; ``sharpness`` scales its weights, so that it prefers some actions over others."""
    size = {"width": 32, "layers": 2, "heads": 4, "kv_heads": 2, "context": context}
    model = new_model(tokenizer(context), **size, seed=seed)
    text_world.quiet(model)
    with torch.no_grad():
        for weights in model.parameters():
            if weights.dim() > 1:
                weights.mul_(sharpness)
    return Checkpoint(model.eval(), tokenizer(context), make_renderer(tokenizer(context)), "toy")


def sides(episodes, games, share=0.5, seed=1):
    """(episodes of training games, episodes of validation games)."""
    ids = sorted(games)
    held_out = dict(zip(ids, validation_games(ids, share, seed)))
    return tuple([one for one in episodes if held_out[one.game_id] == side] for side in (False, True))
