"""A fake text world for tests of training: look for an object in numbered cabinets, then take it.

The first observation tells where the object is, so a policy has something to learn by copying.
"""

from __future__ import annotations

import random

import torch
from transformers import LlamaForCausalLM

from agentprm_core.policy.models import EMBEDDING_STD, new_model
from agentprm_core.policy.prompt import Renderer, make_renderer
from agentprm_core.policy.tokenizer import train_tokenizer
from agentprm_core.types import Episode, Turn
from agentprm_core.worlds.alfworld.spec import ALFWORLD

OBJECTS = ("mug", "plate", "book")
CABINETS = 4


def task(game: int) -> tuple[str, int]:
    """What is looked for, and in which cabinet it is."""
    world = random.Random(game)
    return world.choice(OBJECTS), world.randint(1, CABINETS)


def best(game: int, here: int) -> str:
    """The right action in front of cabinet ``here`` (0: in the middle of the room)."""
    target, place = task(game)
    return f"take {target}" if here == place else f"go to cabinet {place}"


def is_right(turn: Turn) -> bool:
    game, here = map(int, turn.state_key.split(":"))
    return turn.action == best(game, here)


def play(game: int, seed: int, skill: float = 0.7, turns: int = 6) -> Episode:
    """One episode: with chance ``skill`` the next action is the right one, else a random admissible one."""
    rng = random.Random(f"{game}-{seed}")
    target, place = task(game)
    cabinets = ", ".join(f"cabinet {n}" for n in range(1, CABINETS + 1))
    text = f"You see {cabinets}. The {target} is in cabinet {place}. Your task is to: take {target}."
    here, done, won = 0, [], False
    admissible = tuple(sorted([f"go to cabinet {n}" for n in range(1, CABINETS + 1)] + [f"take {o}" for o in OBJECTS]))
    while not won and len(done) < turns:
        action = best(game, here) if rng.random() < skill else rng.choice(admissible)
        done.append(Turn(text, action, admissible, True, f"{game}:{here}"))
        if action.startswith("go to"):
            here = int(action[-1])
            text = f"You arrive at cabinet {here}. You see {target if here == place else 'nothing'}."
        else:
            won = here == place and action == f"take {target}"
            text = "You pick up." if won else "Nothing happens."
    return Episode(f"game-{game:04d}", seed, seed, tuple(done), won)


def episodes(games: int, each: int = 1, skill: float = 0.7, first_game: int = 0) -> list[Episode]:
    return [play(game, seed, skill) for game in range(first_game, first_game + games) for seed in range(each)]


def renderer(context: int = 256) -> Renderer:
    """A tokenizer of everything this world says."""
    texts = [
        text for episode in episodes(60, 2, 0.3) for turn in episode.turns for text in (turn.observation, turn.action)
    ]
    texts += episodes(1)[0].turns[0].admissible
    return make_renderer(train_tokenizer(texts, context, ALFWORLD.phrases))


def quiet(model: LlamaForCausalLM) -> LlamaForCausalLM:
    """With small embeddings: its next tokens are about equally likely, and it learns fast."""
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(0.02 / EMBEDDING_STD)
    return model


def small_model(
    of: Renderer, seed: int = 0, width: int = 32, layers: int = 2, previous_token_heads: int = 0
) -> LlamaForCausalLM:
    """A Llama of a few thousand parameters, float32."""
    size = {"width": width, "layers": layers, "heads": 2, "kv_heads": 1, "context": 256}
    size["previous_token_heads"] = previous_token_heads
    model = new_model(of.tokenizer, **size, seed=seed)
    return quiet(model).to(torch.float32)
