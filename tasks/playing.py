"""How a policy plays games it is measured on: one way of decoding, every game once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from agentprm_core.policy.models import Checkpoint
from agentprm_core.policy.sampler import Cost, Sampler
from agentprm_core.policy.server import Endpoint, ServerPlayer
from agentprm_core.prm.score import score_episodes
from agentprm_core.rollout import Player, Start, play, starts
from agentprm_core.search.beam import BeamSearch
from agentprm_core.search.best_of_n import BestOfN, Chooser, best_trajectories
from agentprm_core.search.lookahead import Lookahead
from agentprm_core.search.oracle import TrueQ
from agentprm_core.search.scorer import PrmScorer
from agentprm_core.search.world_model import LearntModel
from agentprm_core.types import Episode, Game
from tasks.frame.compute import slots
from tasks.frame.kept import digest
from tasks.frame.params import decoding_name
from tasks.frame.stage import Stage

METHODS = ("greedy", "sample", "best_of_n", "best_trajectory", "beam", "lookahead")
STANDALONE = METHODS[:-1]
"""Those that need nothing but checkpoints: the world model of ``lookahead`` is trained in the stage."""
SEARCHES = METHODS[2:]
"""Those that a PRM chooses in."""
MAX_OBSERVATION_TOKENS = 128
"""Of an imagined observation."""
_SCORING_TOKENS = 8192


@dataclass(frozen=True)
class DecodingConfig:
    """One way of playing. ``n`` is of ``best_of_n`` and ``lookahead`` (actions a turn) and ``best_trajectory``
    (episodes a game); ``beam`` keeps ``width`` nodes and draws ``samples`` actions from each; ``lookahead`` imagines
    ``depth`` steps, discounted by ``gamma``. ``prior`` is the weight of log π̂ beside the PRM's score, in all
    searches but ``best_trajectory``."""

    method: str
    temperature: float
    constrained: bool
    n: int
    width: int
    samples: int
    world: str
    max_turns: int
    max_action_tokens: int
    slots: int
    context: int
    depth: int = 0
    gamma: float = 1.0
    prior: float = 0.0

    @property
    def name(self) -> str:
        return decoding_name(self.method, self.n, self.width, self.samples)


def play_games(
    policy: Checkpoint,
    prm: Checkpoint | None,
    games: Sequence[Game],
    way: DecodingConfig,
    seed: int,
    world: Checkpoint | None = None,
) -> list[Episode]:
    """Every game once, sorted by id; ``extra`` holds all that finding the episode cost: ``cost`` and ``world_steps``,
    and of ``lookahead`` ``saved``, the share of all steps of all games that were imagined by ``world``.

    Raises ValueError where the method needs a PRM or a world model and there is none.
    """
    if way.method in SEARCHES and prm is None:
        raise ValueError(f"{way.method} needs a PRM to choose")
    if way.method == "lookahead":
        if world is None:
            raise ValueError("lookahead needs a world model")
        return _ahead(policy, prm, world, starts(games, 1, seed), way)
    if way.method == "best_trajectory":
        return best_of_each_game(play_trajectories(policy, games, way, seed), prm)
    played = _played(_sampler(policy, way), prm, starts(games, 1, seed), way)
    return sorted(played, key=lambda episode: episode.game_id)


def play_trajectories(policy: Checkpoint, games: Sequence[Game], way: DecodingConfig, seed: int) -> list[Episode]:
    """``way.n`` episodes of every game, which ``best_trajectory`` chooses among: the same whatever PRM does."""
    return _stepped(_sampler(policy, way), starts(games, way.n, seed), way)


def best_of_each_game(played: Sequence[Episode], prm: Checkpoint) -> list[Episode]:
    """Of each game the episode whose last action scores best, at the cost of all; sorted by id."""
    played = sorted(played, key=lambda episode: (episode.game_id, episode.index))
    scored = score_episodes(prm.model, prm.renderer, played, _SCORING_TOKENS)
    cost: dict[str, Cost] = {}
    steps: Counter[str] = Counter()
    for episode in played:
        steps[episode.game_id] += episode.length
        read = Cost(prm_read=len(prm.renderer.episode(episode.turns).input_ids))
        cost[episode.game_id] = cost.get(episode.game_id, Cost()) + episode.extra["cost"] + read
    best = best_trajectories(played, [q_T[-1] for q_T in scored])
    return [replace(e, extra={"cost": cost[e.game_id], "world_steps": steps[e.game_id]}) for e in best]


def way_of_rollouts(stage: Stage, policy: Checkpoint, **how: object) -> DecodingConfig:
    """A way of playing training games, as rollouts do: their engine, length, decoding and slots, half of these for a
    PRM. ``how``: ``method``, ``temperature``, ``prior``, and ``n`` or ``width`` and ``samples``."""
    params = stage.params
    context = min(params.model.context, policy.model.config.max_position_embeddings)
    sizes = {"n": 1, "width": 1, "samples": 1}
    return DecodingConfig(
        constrained=params.rollout.constrained,
        world=params.env.world,
        max_turns=params.env.max_turns,
        max_action_tokens=params.model.max_action_tokens,
        slots=slots(stage, policy, params.rollout.slots, context, 2, ("search.beam.width", how.get("width", 1))),
        context=context,
        **(sizes | how),
    )


def outcomes_digest(
    policy: Checkpoint, prm: Checkpoint | None, games: Sequence[Game], way: DecodingConfig, seed: int, *more: object
) -> str:
    """What decides how :func:`play_games` ends; the number of slots does not."""
    drawn = [(game.id, game.payload) for game in games]
    return digest(policy.digest, str(policy.model.dtype), prm and prm.digest, replace(way, slots=0), seed, drawn, *more)


def play_headroom(
    policy: Checkpoint, games: Sequence[Game], way: DecodingConfig, seed: int, plays: int
) -> list[Episode]:
    """Best-of-N under the true Q, by ``plays`` continuations of each candidate: what choosing among its own samples can
    give a policy at all. What the continuations read counts as the PRM's, their actions as steps of the world."""
    begun = starts(games, 1, seed)
    oracle = TrueQ(
        _sampler(policy, way),
        {start.seed: start.game for start in begun},
        plays=plays,
        gamma=way.gamma,
        world_name=way.world,
        max_turns=way.max_turns,
    )
    played = _stepped(Chooser(_sampler(policy, way), oracle, way.n), begun, way)
    spent = [replace(e, extra={**e.extra, "world_steps": e.length + oracle.steps[e.seed]}) for e in played]
    return sorted(spent, key=lambda episode: episode.game_id)


def play_served(endpoint: Endpoint, games: Sequence[Game], way: DecodingConfig, seed: int) -> list[Episode]:
    """Every game once by the policy behind ``endpoint``, greedily or sampled, sorted by id."""
    with ServerPlayer(
        endpoint,
        seats=way.slots,
        context=way.context,
        temperature=_temperature(way),
        max_action_tokens=way.max_action_tokens,
    ) as player:
        return sorted(_stepped(player, starts(games, 1, seed), way), key=lambda episode: episode.game_id)


def scores(prm: Checkpoint, episodes: Sequence[Episode]) -> dict[str, float]:
    """{game: mean Q_φ of the episode's actions}."""
    scored = score_episodes(prm.model, prm.renderer, episodes, _SCORING_TOKENS)
    return {episode.game_id: float(np.mean(q_T)) for episode, q_T in zip(episodes, scored)}


def _sampler(policy: Checkpoint, way: DecodingConfig) -> Sampler:
    return Sampler(
        policy,
        slots=way.slots,
        context=min(way.context, policy.model.config.max_position_embeddings),
        temperature=_temperature(way),
        constrained=way.constrained,
        max_action_tokens=way.max_action_tokens,
    )


def _temperature(way: DecodingConfig) -> float:
    return 0.0 if way.method == "greedy" else way.temperature


def _played(sampler: Sampler, prm: Checkpoint | None, begun: list[Start], way: DecodingConfig) -> list[Episode]:
    if way.method == "beam":
        scorer = PrmScorer(prm, slots=sampler.seats, context=sampler.context, max_action_tokens=way.max_action_tokens)
        beam = BeamSearch(sampler, scorer, width=way.width, samples=way.samples, prior=way.prior)
        return list(beam.search(begun, **_worlds(way)))
    if way.method == "best_of_n":
        return _stepped(BestOfN(sampler, prm, samples=way.n, prior=way.prior), begun, way)
    return _stepped(sampler, begun, way)


def _stepped(player: Player, begun: list[Start], way: DecodingConfig) -> list[Episode]:
    """Every step of the world is one of the episode's."""
    return [replace(e, extra={**e.extra, "world_steps": e.length}) for e in play(player, begun, **_worlds(way))]


def _worlds(way: DecodingConfig) -> dict:
    return {"world_name": way.world, "max_turns": way.max_turns}


def _ahead(
    policy: Checkpoint, prm: Checkpoint, world: Checkpoint, begun: list[Start], way: DecodingConfig
) -> list[Episode]:
    """Each with the world model's seats beside the policy's, so fewer games at once."""
    context = min(way.context, policy.model.config.max_position_embeddings)
    seats = max(1, way.slots // (1 + way.n))
    futures = seats * (1 + way.n)
    how = {"context": context, "temperature": way.temperature, "max_action_tokens": way.max_action_tokens}
    player = Lookahead(
        Sampler(policy, slots=seats, constrained=way.constrained, **how),
        Sampler(policy, slots=futures, constrained=False, **how),
        PrmScorer(prm, slots=futures, context=context, max_action_tokens=way.max_action_tokens),
        LearntModel(world, slots=futures, context=context, max_observation_tokens=MAX_OBSERVATION_TOKENS),
        samples=way.n,
        depth=way.depth,
        gamma=way.gamma,
        prior=way.prior,
    )
    played = list(play(player, begun, **_worlds(way)))
    spent = [replace(e, extra={**e.extra, "world_steps": e.length, "saved": player.saved}) for e in played]
    return sorted(spent, key=lambda episode: episode.game_id)
