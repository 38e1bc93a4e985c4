"""How a policy plays games: its settings on this machine, one way of decoding, every game once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from agentprm_core.errors import DataError
from agentprm_core.kept import digest
from agentprm_core.policy.models import Checkpoint
from agentprm_core.policy.runner import slots_within
from agentprm_core.policy.sampler import Cost, Sampler
from agentprm_core.policy.server import Endpoint, ServerPlayer, Servers
from agentprm_core.prm.ensemble import alone
from agentprm_core.prm.score import score_episodes
from agentprm_core.rollout import Player, Start, play, starts
from agentprm_core.search.beam import BeamSearch
from agentprm_core.search.best_of_n import Chooser, best_trajectories
from agentprm_core.search.decoding_config import CACHES, LIKELIHOOD, DecodingConfig
from agentprm_core.search.lookahead import Lookahead
from agentprm_core.search.oracle import TrueQ
from agentprm_core.search.recorded import Recorder
from agentprm_core.search.scorer import PrmScorer, Scorer
from agentprm_core.search.scorers import Materials, scorer_of
from agentprm_core.search.world_model import LearntModel
from agentprm_core.types import Episode, Game
from agentprm_core.worlds import world_spec

MAX_OBSERVATION_TOKENS = 128
"""Of an imagined observation."""
_SCORING_TOKENS = 8192


@dataclass(frozen=True)
class PlaySettings:
    """What all playing on this machine shares."""

    world: str
    max_turns: int
    """Actions an episode."""
    context: int
    max_action_tokens: int
    constrained: bool
    slots: int
    """Episodes at once, at the most."""
    cache_mb: int
    """MiB for the key-value caches: fewer slots where they would not fit."""
    servers: Servers | None = None
    """Which play whole episodes in this process's place. Searches and branches are played here."""

    def fitting(self, policy: Checkpoint, caches: int = 1, width: int = 1) -> int:
        """As many of the slots as fit in ``cache_mb``, shared by ``caches`` models of one size.

        Raises DataError where not one fits, or fewer than a beam of ``width`` needs.
        """
        context = self.context_of(policy)
        try:
            seats = min(self.slots, slots_within(policy.model, context=context, memory_mb=self.cache_mb / caches))
        except ValueError as error:
            raise DataError(f"params.yaml: compute.cache_mb is {self.cache_mb}: {error}") from error
        if seats < width:
            raise DataError(
                f"params.yaml: compute.cache_mb is {self.cache_mb}, compute.slots {self.slots}: {caches} caches of "
                f"{seats} slots of {context} tokens fit, and a beam of width {width} needs {width}: raise them, or "
                "lower the width"
            )
        return seats

    def turns(self, game: Game) -> int:
        """Actions that an episode of ``game`` may have: in a mixture its world may allow fewer than ``max_turns``."""
        return world_spec(self.world).turns(game, self.max_turns)

    def context_of(self, policy: Checkpoint) -> int:
        return min(self.context, policy.model.config.max_position_embeddings)

    def sampler(self, policy: Checkpoint, temperature: float, slots: int | None = None) -> Sampler:
        """The policy as a player. ``temperature`` 0 is greedy."""
        return Sampler(
            policy,
            slots=slots or self.fitting(policy),
            context=self.context_of(policy),
            temperature=temperature,
            constrained=self.constrained,
            max_action_tokens=self.max_action_tokens,
        )

    @contextmanager
    def playing(self, policy: Checkpoint, temperature: float, slots: int | None = None) -> Iterator[Player]:
        """The policy as a player of whole episodes: at the servers where there are any, else here."""
        if self.servers is None:
            yield self.sampler(policy, temperature, slots)
            return
        with ServerPlayer(
            self.servers.endpoint(policy),
            seats=self.slots,
            context=self.context_of(policy),
            temperature=temperature,
            max_action_tokens=self.max_action_tokens,
        ) as player:
            yield player

    @property
    def worlds(self) -> dict:
        """The keyword arguments of :func:`agentprm_core.rollout.play` and of searches."""
        return {"world_name": self.world, "max_turns": self.max_turns}


@dataclass(frozen=True)
class Search:
    """One way of playing on this machine."""

    way: DecodingConfig
    settings: PlaySettings
    temperature: float
    """Of samples, where the way of playing has none of its own."""
    prior: float = 0.0
    """τ of score + τ log π̂, in all searches but ``best_trajectory`` without ``path``; 0 chooses by the score alone."""
    gamma: float = 1.0
    """Discount of ``lookahead``, and of the true Q."""
    plays: int = 4
    """Of the true Q: continuations of each candidate."""

    @property
    def name(self) -> str:
        return self.way.name

    @property
    def sampling(self) -> float:
        """The sampler's temperature."""
        if self.way.method == "greedy":
            return 0.0
        return self.temperature if self.way.temperature is None else self.way.temperature

    def slots(self, policy: Checkpoint) -> int:
        width = self.way.width if self.way.method == "beam" else 1
        caches = CACHES.get(self.way.method, 1) + (self.way.by == "implicit")  # which reads two models beside
        return self.settings.fitting(policy, caches, width)

    def sampler(self, policy: Checkpoint) -> Sampler:
        return self.settings.sampler(policy, self.sampling, self.slots(policy))


def play_games(
    policy: Checkpoint,
    prm: Checkpoint | None,
    games: Sequence[Game],
    search: Search,
    seed: int,
    world_model: Checkpoint | None = None,
    recorder: Recorder | None = None,
) -> list[Episode]:
    """Every game once, sorted by id; ``extra`` holds all that finding the episode cost: ``cost`` and ``world_steps``,
    and of ``lookahead`` ``saved``, the share of all steps of all games that were imagined by ``world_model``.
    ``recorder``: of a beam search.

    Raises ValueError where the method needs a PRM or a world model and there is none.
    """
    method = search.way.method
    if not search.way.is_search:
        with search.settings.playing(policy, search.sampling, search.slots(policy)) as player:
            played = _stepped(player, starts(games, 1, seed), search.settings)
        return sorted(played, key=lambda episode: episode.game_id)
    if method in ("best_of_n", "beam"):
        return _searched(policy, prm, starts(games, 1, seed), search, recorder)
    if search.way.by == LIKELIHOOD:  # of whole episodes: the other searches have their own scorer
        return likeliest_of_each_game(play_trajectories(policy, games, search, seed))
    if prm is None:
        raise ValueError(f"{method} needs a PRM to choose")
    if method == "lookahead":
        if world_model is None:
            raise ValueError("lookahead needs a world model")
        return _ahead(policy, prm, world_model, starts(games, 1, seed), search)
    played = play_trajectories(policy, games, search, seed)
    return best_of_each_game(played, judge(played, prm), search)


def play_trajectories(policy: Checkpoint, games: Sequence[Game], search: Search, seed: int) -> list[Episode]:
    """``n`` episodes of every game, which ``best_trajectory`` chooses among: the same whatever PRM does. The first of
    them, by ``index``, are those of a smaller ``n``."""
    return _stepped(search.sampler(policy), starts(games, search.way.n, seed), search.settings)


@dataclass(frozen=True, slots=True)
class Judged:
    """What a PRM says of a whole episode. Both scores are -inf where it has no action, because its first observation
    fills the context."""

    last: float
    """Q_φ of its last action."""
    mean: float
    """The mean Q_φ of all its actions."""
    read: int
    """Tokens of the episode."""


def judge(played: Sequence[Episode], prm: Checkpoint) -> dict[tuple[str, int], Judged]:
    """{(game, index): what the PRM says}. Episodes of the same text are scored once."""
    tokens = [tuple(prm.renderer.episode(episode.turns).input_ids) for episode in played]
    different = dict(zip(tokens, played))
    scored = score_episodes(alone(prm).model, prm.renderer, list(different.values()), _SCORING_TOKENS)
    said = {
        text: Judged(*((float(q_T[-1]), float(q_T.mean())) if len(q_T) else (-math.inf, -math.inf)), len(text))
        for text, q_T in zip(different, scored)
    }
    return {(e.game_id, e.index): said[text] for e, text in zip(played, tokens)}


def best_of_each_game(
    played: Sequence[Episode], judged: Mapping[tuple[str, int], Judged], search: Search
) -> list[Episode]:
    """Of each game the best episode, at the cost of all; sorted by id. The best is the one whose last action scores
    best. With ``path`` it has the most of: mean score + τ Σ log π of its actions."""
    said = [judged[e.game_id, e.index] for e in played]
    costs = [e.extra["cost"] + Cost(prm_read=of.read) for e, of in zip(played, said)]
    return _best_of_each_game(played, [_worth(e, of, search) for e, of in zip(played, said)], costs)


def likeliest_of_each_game(played: Sequence[Episode]) -> list[Episode]:
    """Of each game the episode whose actions (with their reasons, where there are any) the policy finds likeliest
    together, at the cost of all; sorted by id. What a PRM is held against: the policy itself says this much."""
    worths = [sum(episode.extra["log_probs"]) for episode in played]
    return _best_of_each_game(played, worths, [episode.extra["cost"] for episode in played])


def _best_of_each_game(played: Sequence[Episode], worths: Sequence[float], costs: Sequence[Cost]) -> list[Episode]:
    cost: dict[str, Cost] = {}
    steps: Counter[str] = Counter()
    for episode, own in sorted(zip(played, costs), key=lambda pair: (pair[0].game_id, pair[0].index)):
        steps[episode.game_id] += episode.length
        cost[episode.game_id] = cost.get(episode.game_id, Cost()) + own
    best = best_trajectories(played, worths)
    return [replace(e, extra={"cost": cost[e.game_id], "world_steps": steps[e.game_id]}) for e in best]


def _worth(episode: Episode, judged: Judged, search: Search) -> float:
    if not search.way.path:
        return judged.last
    return judged.mean + search.prior * sum(episode.extra["log_probs"])


def search_digest(
    policy: Checkpoint, prm: Checkpoint | None, games: Sequence[Game], search: Search, seed: int, *more: object
) -> str:
    """What decides how :func:`play_games` ends; neither the number of slots does, nor where the servers are."""
    drawn = [(game.id, game.payload) for game in games]
    settings, served = replace(search.settings, slots=0, cache_mb=0, servers=None), search.settings.servers is not None
    decides = (replace(search, settings=settings), served, seed, drawn, *more)
    return digest(policy.digest, str(policy.model.dtype), prm and prm.digest, *decides)


def play_headroom(policy: Checkpoint, games: Sequence[Game], search: Search, seed: int, plays: int) -> list[Episode]:
    """Best-of-N under the true Q, by ``plays`` continuations of each candidate: what choosing among its own samples can
    give a policy at all. What the continuations read counts as the PRM's, their actions as steps of the world."""
    by_returns = replace(search, way=search.way.under("true_q"), prior=0.0, plays=plays)
    return play_games(policy, None, games, by_returns, seed)


def play_served(endpoint: Endpoint, games: Sequence[Game], search: Search, seed: int) -> list[Episode]:
    """Every game once by the policy behind ``endpoint``, greedily or sampled, sorted by id."""
    with ServerPlayer(
        endpoint,
        seats=search.settings.slots,
        context=search.settings.context,
        temperature=search.sampling,
        max_action_tokens=search.settings.max_action_tokens,
    ) as player:
        played = _stepped(player, starts(games, 1, seed), search.settings)
        return sorted(played, key=lambda episode: episode.game_id)


def mean_scores(prm: Checkpoint, episodes: Sequence[Episode]) -> dict[str, float]:
    """{game: mean Q_φ of the episode's actions}, without the episodes that have none."""
    scored = score_episodes(alone(prm).model, prm.renderer, episodes, _SCORING_TOKENS)
    return {episode.game_id: float(np.mean(q_T)) for episode, q_T in zip(episodes, scored) if len(q_T)}


def chooser(
    policy: Checkpoint, prm: Checkpoint | None, sampler: Sampler, begun: Sequence[Start], search: Search
) -> Scorer:
    """Who chooses in a search among what ``sampler`` proposes; ``begun`` are the episodes' starts.

    Raises as :func:`agentprm_core.search.scorers.scorer_of`.
    """
    settings = search.settings
    materials = Materials(
        policy=policy,
        prm=prm,
        seats=sampler.seats,
        context=sampler.context,
        max_action_tokens=settings.max_action_tokens,
        starts=begun,
        second=partial(search.sampler, policy),
        plays=search.plays,
        gamma=search.gamma,
        world=settings.world,
        max_turns=settings.max_turns,
    )
    return scorer_of(search.way.by, materials)


def beam_search(sampler: Sampler, scorer: Scorer, search: Search, recorder: Recorder | None = None) -> BeamSearch:
    """The search of ``search.way``, a beam."""
    way = search.way
    sizes = {"width": way.width, "samples": way.samples}
    return BeamSearch(sampler, scorer, **sizes, prior=search.prior, back=way.back, path=way.path, recorder=recorder)


def _searched(
    policy: Checkpoint, prm: Checkpoint | None, begun: list[Start], search: Search, recorder: Recorder | None
) -> list[Episode]:
    settings, sampler = search.settings, search.sampler(policy)
    scorer = chooser(policy, prm, sampler, begun, search)
    if search.way.method == "beam":
        played = list(beam_search(sampler, scorer, search, recorder).search(begun, **settings.worlds))
    else:
        played = _stepped(Chooser(sampler, scorer, search.way.n, search.prior), begun, settings)
    if isinstance(scorer, TrueQ):  # its plays are steps in worlds too
        played = [
            replace(e, extra=e.extra | {"world_steps": e.extra["world_steps"] + scorer.steps[e.seed]}) for e in played
        ]
    return sorted(played, key=lambda episode: episode.game_id)


def _stepped(player: Player, begun: list[Start], settings: PlaySettings) -> list[Episode]:
    """Every step of the world is one of the episode's."""
    return [replace(e, extra={**e.extra, "world_steps": e.length}) for e in play(player, begun, **settings.worlds)]


def _ahead(
    policy: Checkpoint, prm: Checkpoint, world_model: Checkpoint, begun: list[Start], search: Search
) -> list[Episode]:
    """Each with the world model's seats beside the policy's, so fewer games at once."""
    way, settings = search.way, search.settings
    context, most = settings.context_of(policy), settings.max_action_tokens
    seats = max(1, search.slots(policy) // (1 + way.n))
    futures = seats * (1 + way.n)
    how = {"context": context, "temperature": search.sampling, "max_action_tokens": most}
    player = Lookahead(
        Sampler(policy, slots=seats, constrained=settings.constrained, **how),
        Sampler(policy, slots=futures, constrained=False, **how),
        PrmScorer(alone(prm), slots=futures, context=context, max_action_tokens=most),
        LearntModel(world_model, slots=futures, context=context, max_observation_tokens=MAX_OBSERVATION_TOKENS),
        samples=way.n,
        depth=way.depth,
        gamma=search.gamma,
        prior=search.prior,
    )
    played = list(play(player, begun, **settings.worlds))
    spent = [replace(e, extra={**e.extra, "world_steps": e.length, "saved": player.saved}) for e in played]
    return sorted(spent, key=lambda episode: episode.game_id)
