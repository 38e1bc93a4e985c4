"""Values of params.yaml that are fine alone and not together. What one section can decide, it decides itself."""

from __future__ import annotations

from collections.abc import Iterator

from agentprm_core.improve.monitor import GAMMA
from agentprm_core.plays import Bonus, Resets, Steered
from agentprm_core.policy.starting import PublishedModel
from agentprm_core.search.decoding_config import decoding
from agentprm_core.worlds import world_spec
from tasks.frame.sections import Params

Odd = tuple[str, object, str]
"""A key, its value, and what is allowed instead."""


def at_odds(params: Params) -> Iterator[Odd]:
    """Each such key of ``params``."""
    for check in (
        _games,
        _demonstrations,
        _mixed,
        _exploring,
        _published_model,
        _groups,
        _labels,
        _keeps,
        _compute,
        _loop,
        _searches,
    ):
        yield from check(params)


def _games(params: Params) -> Iterator[Odd]:
    train = params.games.train
    wanted = {"demos.games": params.demos.count, "rollout.games": params.rollout.games}
    wanted["method.games"] = getattr(params.method, "games", 0)
    refresh = getattr(params.method, "refresh", None)
    wanted["method.refresh.games"] = refresh.games if refresh else 0
    for key, count in wanted.items():
        if count > train:
            yield key, count, f"at most games.train, {train}"
    named = params.demos.how["expert"]
    others = world_spec(params.env.world).other_experts
    if named is not None and named not in others:
        yield "demos.games.by", named, " or ".join(others) or "none: demos.games is a number, for a world of one expert"
    if params.games.seen == params.games.unseen == 0:
        yield "games.unseen", 0, "more than 0, or games.seen is: nothing would be measured"


def _demonstrations(params: Params) -> Iterator[Odd]:
    """Where nobody demonstrates, and what cannot do without."""
    spec = world_spec(params.env.world)
    if spec.expert is None and params.demos.count:
        yield "demos.games", params.demos.count, f"0, with a published model (model.source): {spec.name} has no expert"
    if spec.expert is None and params.method.name == "dagger":
        yield "method.name", "dagger", f"another method: {spec.name} has no expert"
    if params.demos.count:
        return
    if not isinstance(params.model, PublishedModel):
        yield "demos.games", 0, "at least 1 with model.source scratch, which learns from them alone"
    if params.critic.name == "inverse":
        yield "critic.name", "inverse", "another critic with demos.games 0: it learns from demonstrations"
    if replay := getattr(params.method, "replay", 0):
        yield "method.replay", replay, "0 with demos.games 0: there are no demonstrations"


def _mixed(params: Params) -> Iterator[Odd]:
    if params.critic.start == "scratch" and params.critic.mixing < 1:
        yield "critic.init_from.mixing", params.critic.mixing, "1 with weights scratch: its start is random"


def _exploring(params: Params) -> Iterator[Odd]:
    explore, each = params.rollout.explore, params.rollout.episodes_per_game
    if isinstance(explore, Resets) and params.demos.count < params.games.train:
        allowed, spec = "only where every training game has a demonstration", world_spec(params.env.world)
        if spec.mixed and params.games.root is None:
            allowed += f"; {spec.name} has none of games in mixed rooms: another env.world"
        yield "rollout.explore.resets", explore.resets, allowed
    if isinstance(explore, Steered) and not isinstance(params.model, PublishedModel):
        allowed = "only with a model that reads instructions (model.source); {bonus: C} is for one from scratch"
        yield "rollout.explore.steered", explore.steered, allowed
    if isinstance(explore, Bonus) and params.model.constrained == "served":
        yield "rollout.explore", {"bonus": explore.bonus}, "null, or resets, with model.constrained served"
    if isinstance(explore, Bonus) and each < 2:
        allowed = "null with one episode a game (rollout.episodes_per_game): it counts what those before did"
        yield "rollout.explore.bonus", explore.bonus, allowed


def _published_model(params: Params) -> Iterator[Odd]:
    if not isinstance(params.model, PublishedModel):
        return
    if params.critic.start == "scratch":
        yield "critic.init_from", "scratch", "policy, prm or sft with a published model"
    for name in params.evaluate.decoding:
        if decoding(name).method == "lookahead":
            allowed = "no lookahead with a published model: its world model reads the plain format"
            yield "evaluate.decoding", name, allowed
    if params.model.reason_tokens and (params.critic.name == "inverse" or getattr(params.method, "replay", 0)):
        allowed = "0 with critic inverse or method.replay: demonstrations have no reasons there"
        yield "model.reason_tokens", params.model.reason_tokens, allowed


def _groups(params: Params) -> Iterator[Odd]:
    if params.method.name in ("grpo", "gigpo", "loop", "istar") and params.rollout.episodes_per_game < 2:
        allowed = f"at least 2 with method {params.method.name}, which compares the episodes of a game"
        yield "rollout.episodes_per_game", params.rollout.episodes_per_game, allowed


def _labels(params: Params) -> Iterator[Odd]:
    branch, shaping = params.rollout.branch, getattr(params.critic, "shaping", None)
    if shaping and (branch.train_states or branch.random_states):
        allowed = "null, or set rollout.branch.train_states and random_states to 0: their values are not shaped"
        yield "critic.shaping", shaping.kind, allowed
    if not getattr(params.method, "monitor", None):
        return
    if params.critic.name == "inverse":
        yield "method.monitor", "a monitor", "null with critic inverse: it compares with labels, and there are none"
    if getattr(params.critic, "outcome", "binary") == "signed":
        yield "method.monitor", "a monitor", "null with critic.outcome signed: it compares with returns between 0 and 1"
    if getattr(params.critic, "gamma", GAMMA) != GAMMA:
        allowed = f"null unless critic.gamma is {GAMMA}: that is the discount of the returns that it compares with"
        yield "method.monitor", "a monitor", allowed


def _keeps(params: Params) -> Iterator[Odd]:
    keeps, ends = getattr(params.method, "keeps", ""), getattr(params.critic, "ends", None)
    if not keeps.startswith("expert_like"):
        return
    if params.critic.name != "inverse":
        allowed = "won or ended_early, unless critic.name is inverse: only its last score is of the expert"
        yield "method.keeps", keeps, allowed
    elif keeps == "expert_like" and ends == "cut":
        yield "method.keeps", keeps, "expert_like_cut with critic.ends cut, else it reads where episodes end"
    elif keeps == "expert_like_cut" and ends == "told":
        yield "method.keeps", keeps, "expert_like with critic.ends told: that PRM was told where episodes end"


def _compute(params: Params) -> Iterator[Odd]:
    parallel = params.compute.parallel
    if not parallel or parallel.sharding == "none":
        return
    for section in ("model", "method"):
        if getattr(getattr(params, section), "optimizer", None) == "muon":
            allowed = f"adamw with compute.parallel.sharding {parallel.sharding}: muon works on whole matrices"
            yield f"{section}.optimizer", "muon", allowed


def _loop(params: Params) -> Iterator[Odd]:
    numbers = {str(i + 1): i for i in range(len(params.iterations))}
    said = ", ".join(f'"{number}": {{prev: {prev}}}' for number, prev in numbers.items())
    for number, iteration in params.iterations.items():
        if numbers.get(number) != iteration.prev:
            yield f"iterations.{number}", {"prev": iteration.prev}, f"iterations are {said}"
    policies = ["0", *numbers]
    if list(params.policies) != policies:
        yield "policies", list(params.policies), f"one for each iteration and 0: {', '.join(policies)}"
    for number, evaluated in params.policies.items():
        if str(evaluated.prm) not in numbers:
            yield f"policies.{number}.prm", evaluated.prm, f"one of the iterations {', '.join(numbers)}"


def _searches(params: Params) -> Iterator[Odd]:
    named = [("evaluate.decoding", name) for name in params.evaluate.decoding]
    if (search := getattr(params.method, "search", None)) is not None:
        named.append(("method.search", search))
    spec = world_spec(params.env.world)
    for key, name in named:
        if decoding(name).method == "beam" and not spec.clones:
            yield key, name, f"no beam search in {spec.name}, whose worlds cannot be cloned: best_of_N"
        if decoding(name).width > params.compute.slots:
            yield key, name, f"a beam of at most compute.slots, {params.compute.slots}"
