"""What a plan counts and measures: tokens of a world's episodes, the memory of this machine and its rate."""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoTokenizer

from agentprm_core.errors import DataError
from agentprm_core.planning.shapes import ModelShape, shape_of
from agentprm_core.policy.prompt import chat_message, chat_reply, make_renderer
from agentprm_core.policy.starting import PublishedModel, require_folder
from agentprm_core.policy.tokenizer import train_tokenizer
from agentprm_core.types import Episode, Game, Turn
from agentprm_core.worlds import world_spec
from agentprm_core.worlds.check_walks import Faults, walk_game
from agentprm_core.worlds.demonstrations import demonstrate, none_won
from agentprm_core.worlds.game_sources import generated_by
from agentprm_core.worlds.published import find_games
from tasks.frame.sections import Compute, Params

GAMES = 8
"""Played to count tokens."""
CHARACTERS = 3.6
"""Of a token, where no tokenizer is at hand."""
MEASURED_S = 0.5
_LEAST_SIDE, _SIDE = 256, 2048
"""Of the square matrices whose product is timed: doubled from one to the other while a product is fast."""


@dataclass(frozen=True)
class Traffic:
    """Means over games that the expert demonstrated; where there is none and none is asked for, over games of random
    commands, whose episodes are as long as the world lets them be."""

    shape: ModelShape
    turns: float
    """Of an episode."""
    turn_tokens: float
    """Of a turn: what the world says, and the reply."""
    reply_tokens: float
    """Of those, what the policy writes."""


def traffic_of(params: Params) -> Traffic:
    """Tokens of this campaign's world in this campaign's model. Raises DataError where no game can be demonstrated, or
    played."""
    alone = params.demos.count == 0 and world_spec(params.env.world).expert is None
    episodes = (_at_random if alone else _demonstrated)(params)
    turns = sum(episode.length for episode in episodes)
    shape, total, replies = _counted(params, episodes)
    replies += turns * params.model.reason_tokens
    total += turns * params.model.reason_tokens
    return Traffic(shape, turns / len(episodes), total / turns, replies / turns)


def _games(params: Params) -> list[Game]:
    spec = world_spec(params.env.world)
    if params.games.root is None:
        return generated_by(spec, GAMES, params.seed, "train")
    return find_games(params.env.world, Path(params.games.root), spec.published_splits["train"], GAMES)


def _at_random(params: Params) -> list[Episode]:
    spec, draws, faults, episodes = world_spec(params.env.world), random.Random(params.seed), Faults(), []
    for game in _games(params):
        walk = walk_game(spec, game, draws, False, faults)
        turns = [
            Turn(seen.text, command, seen.admissible, True, key)
            for seen, command, key in zip(walk.seen, walk.commands, walk.keys)
        ]
        episodes.append(Episode(game.id, 0, params.seed, tuple(turns), False))
    if not any(episode.turns for episode in episodes):
        said = next(iter(faults.said().values()), "no step can be made")
        raise DataError(f"env.world: {spec.name}: {said}; run agentprm check-world {params.env.world}")
    return episodes


def _demonstrated(params: Params) -> list[Episode]:
    spec, games, seed = world_spec(params.env.world), _games(params), params.seed
    world, draws = spec.make(), random.Random(seed)
    how = {"world_name": params.env.world, "max_turns": spec.expert_turns, **params.demos.how, "corrupt": 0.0}
    played = [demonstrate(world, game, seed=draws.getrandbits(62), **how) for game in games]
    episodes = [episode for episode in played if episode.won]
    if not episodes:
        raise DataError(f"env.world: no tokens can be counted: {none_won(played, params.env.world)}")
    return episodes


def _counted(params: Params, episodes: list[Episode]) -> tuple[ModelShape, float, float]:
    """The model's shape, all tokens of the episodes, and those of the replies."""
    model, spec = params.model, world_spec(params.env.world)
    if not isinstance(model, PublishedModel):
        texts = {text for e in episodes for turn in e.turns for text in (turn.observation, *turn.admissible)}
        tokenizer = train_tokenizer(sorted(texts), model.context, spec.phrases, spec.entity, spec.rewritten)
        sizes = model.sizes
        width, heads, kv_heads = sizes["width"], sizes["heads"], sizes["kv_heads"]
        head, vocabulary, biased = width // heads, len(tokenizer), sizes["previous_token_heads"] > 0
        shape = ModelShape(
            sizes["layers"], width, 3 * width, heads, kv_heads, head, vocabulary, True, biased, biased_output=biased
        )
    else:
        require_folder(model.source, spec.name)
        shape = shape_of(model.source)
        if not Path(model.source).is_dir():
            said = [
                (chat_message(t.observation, n == 0, t.admissible, spec.prompt), chat_reply(t.action, ""))
                for e in episodes
                for n, t in enumerate(e.turns)
            ]
            replies = sum(len(reply) for _, reply in said) / CHARACTERS
            return shape, replies + sum(len(asked) for asked, _ in said) / CHARACTERS, replies
        tokenizer = AutoTokenizer.from_pretrained(model.source)
    renderer = make_renderer(tokenizer, spec.prompt)
    rendered = [renderer.episode(episode.turns) for episode in episodes]
    return shape, sum(len(r.input_ids) for r in rendered), sum(sum(r.is_action) for r in rendered)


def memory_here(device: str) -> float | None:
    """GiB of one GPU, or of the machine; None for a GPU that is not here."""
    if device == "cpu":
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    if not torch.cuda.is_available():
        return None
    return round(torch.cuda.get_device_properties(0).total_memory / 2**30, 1)


def measured_tflops(compute: Compute) -> float | None:
    """Of large matrix products in the precision of training; None for a GPU that is not here.

    On a CPU processor time is counted, so other work on the machine does not change it."""
    cpu = compute.device == "cpu"
    if not cpu and not torch.cuda.is_available():
        return None
    torch.set_num_threads(compute.threads)

    def seconds() -> float:
        return time.process_time() / compute.threads if cpu else time.perf_counter()

    side, rate, spent = _LEAST_SIDE, 0.0, 0.0
    while side <= _SIDE and spent < MEASURED_S / 8:  # where bfloat16 is emulated, one large product takes minutes
        square = torch.randn(side, side, device=compute.device, dtype=getattr(torch, compute.precision))
        float((square @ square)[0, 0])  # warm up, and wait for the device
        done, started = 0, seconds()
        while not done or seconds() - started < MEASURED_S / 8:
            float((square @ square)[0, 0])
            done += 1
        spent = (seconds() - started) / done
        rate = max(rate, 2 * side**3 / spent / 1e12)
        side *= 2
    return rate
