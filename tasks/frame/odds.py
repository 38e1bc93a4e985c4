"""Values of params.yaml that are fine alone and not together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.frame.params import Params

Odd = tuple[str, object, str]
"""A key, its value, and what is allowed instead."""


def at_odds(params: Params) -> Iterator[Odd]:
    """Each such key of ``params``."""
    games, branch = params.games, params.rollout.branch
    if games.source == "published" and games.published_root is None:
        yield "games.published_root", None, "the folder alfworld-download filled, as games.source is 'published'"
    if params.model.width % params.model.heads:
        yield "model.heads", params.model.heads, f"a divisor of model.width, {params.model.width}"
    if params.model.heads % params.model.kv_heads:
        yield "model.kv_heads", params.model.kv_heads, f"a divisor of model.heads, {params.model.heads}"
    for key, wanted in (
        ("demos.games", params.demos.games),
        ("rollout.games", params.rollout.games),
        ("search.games", params.search.games),
    ):
        if wanted > games.train:
            yield key, wanted, f"at most games.train, {games.train}"
    if params.rollout.reset_share and params.demos.games < games.train:
        yield "rollout.reset_share", params.rollout.reset_share, "0 unless every training game has a demonstration"
    if params.rollout.steered and params.model.source == "scratch":
        allowed = "0 for a policy trained from scratch, which reads no instructions; rollout.exploration is for it"
        yield "rollout.steered", params.rollout.steered, allowed
    for name in ("reset_share", "steered"):
        share, count = getattr(params.rollout, name), params.rollout.episodes_per_game
        if abs(share * count - round(share * count)) > 1e-9:
            allowed = f"a share of rollout.episodes_per_game, {count}, that is a whole number"
            yield f"rollout.{name}", share, allowed
    if params.sft.reason_tokens:
        yield from _reasons_at_odds(params)
    for credit, loss in (("gae", "promise_progress"), ("inverse", "inverse")):
        if (params.label.credit == credit) != (params.prm.loss == loss):
            yield "label.credit", params.label.credit, f"{credit} with prm.loss {loss}, and only with it"
    if params.label.shaping != "none" and params.label.credit != "monte_carlo":
        yield "label.shaping", params.label.shaping, "none unless label.credit is monte_carlo"
    for key, value, plain in (
        ("label.shaping", params.label.shaping, "none"),
        ("label.discount_from", params.label.discount_from, "end"),
    ):
        if value != plain and (branch.train_states or branch.random_states):
            allowed = f"{plain}, or set rollout.branch.train_states and random_states to 0: their values stay plain"
            yield key, value, allowed
    if params.label.shaping == "blend" and params.label.outcome != "binary":
        yield "label.outcome", params.label.outcome, "binary where label.shaping is blend (R in {0, 1})"
    if params.label.credit == "inverse" and params.policy.imitation:
        yield "policy.imitation", params.policy.imitation, "0 with label.credit inverse, which reads no outcome"
    if params.label.credit == "inverse" and params.policy.method not in ("online_dpo", "expert_iteration"):
        allowed = "online_dpo or expert_iteration with label.credit inverse: the others read outcomes"
        yield "policy.method", params.policy.method, allowed
    if (params.label.credit, params.policy.method) == ("inverse", "expert_iteration"):
        if params.policy.imitates == "won":
            yield "policy.imitates", "won", "expert_like with label.credit inverse, which reads no outcome"
    elif params.policy.imitates == "expert_like":
        allowed = "won, or expert_iteration with label.credit inverse: only its score of a last action is of the expert"
        yield "policy.imitates", "expert_like", allowed
    if params.label.credit == "inverse" and params.policy.monitor.every:
        allowed = "0 with label.credit inverse: the monitor compares with labels, and there are none"
        yield "policy.monitor.every", params.policy.monitor.every, allowed
    if params.policy.replay and params.policy.method in ("grpo", "gigpo"):
        allowed = f"0 with policy.method {params.policy.method}, which learns from episodes of its own alone"
        yield "policy.replay", params.policy.replay, allowed
    if params.rollout.episodes_per_game < 2:
        if params.policy.method in ("grpo", "gigpo"):
            allowed = f"at least 2 with policy.method {params.policy.method}, which compares the episodes of a game"
            yield "rollout.episodes_per_game", params.rollout.episodes_per_game, allowed
        if params.rollout.exploration:
            allowed = "0 with one episode a game (rollout.episodes_per_game): it counts what those before did"
            yield "rollout.exploration", params.rollout.exploration, allowed
    if params.policy.anchor != "previous" and params.policy.method != "online_dpo":
        allowed = f"previous with policy.method {params.policy.method}: only online_dpo has another anchor"
        yield "policy.anchor", params.policy.anchor, allowed
    if params.prm.require_gain and params.policy.method in ("rft", "grpo", "gigpo"):
        allowed = f"false with policy.method {params.policy.method}, which follows no PRM"
        yield "prm.require_gain", params.prm.require_gain, allowed
    if "lookahead" in params.evaluate.decoding and params.model.source != "scratch":
        allowed = "lookahead only with model.source scratch: its world model writes what the plain format reads"
        yield "evaluate.decoding", params.evaluate.decoding, allowed
    if params.model.lora.rank and params.model.source == "scratch":
        allowed = "0 for a policy trained from scratch, whole; an adapter is of a published model (model.source)"
        yield "model.lora.rank", params.model.lora.rank, allowed
    if params.model.source != "scratch":
        for name in ("sft", "prm", "policy"):
            if getattr(params, name).optimizer == "muon":
                allowed = "set it to adamw in sft, prm and policy, as only models trained from scratch take muon"
                yield f"{name}.optimizer", "muon", allowed
        if params.prm.likelihood:
            allowed = "0 with a published model.source, whose output need not be its embedding"
            yield "prm.likelihood", params.prm.likelihood, allowed
    for name in ("sft", "prm", "policy"):
        accumulation, processes = getattr(params, name).accumulation, params.compute.processes
        if accumulation % processes and (name, params.policy.method) != ("policy", "online_dpo"):
            allowed = f"a multiple of compute.processes, {processes}, which share each step's batches"
            yield f"{name}.accumulation", accumulation, allowed
    if params.compute.sharding != "none":
        yield from _sharding_at_odds(params)
    if params.policy.save_every % params.policy.refresh_every:
        allowed = f"a multiple of policy.refresh_every, {params.policy.refresh_every}, or 0"
        yield "policy.save_every", params.policy.save_every, allowed
    numbers = {str(i + 1): i for i in range(len(params.iterations))}
    for number, iteration in params.iterations.items():
        if numbers.get(number) != iteration.prev:
            yield f"iterations.{number}", {"prev": iteration.prev}, f"iterations are {_numbered(numbers)}"
    policies = ["0", *numbers]
    if list(params.policies) != policies:
        yield "policies", list(params.policies), f"one for each iteration and 0: {', '.join(policies)}"
    for number, evaluated in params.policies.items():
        if str(evaluated.prm) not in numbers:
            yield f"policies.{number}.prm", evaluated.prm, f"one of the iterations {', '.join(numbers)}"
    if params.evaluate.beam.width > params.evaluate.slots:
        yield "evaluate.beam.width", params.evaluate.beam.width, f"at most evaluate.slots, {params.evaluate.slots}"
    if params.search.beam.width > params.rollout.slots:
        yield "search.beam.width", params.search.beam.width, f"at most rollout.slots, {params.rollout.slots}"
    if params.search.beam.width == params.search.beam.samples == 1:
        yield "search.beam.samples", 1, "more than 1 where search.beam.width is 1: of one sample nothing is chosen"
    if params.compare.decoding not in params.evaluate.decoding:
        yield "compare.decoding", params.compare.decoding, f"one of evaluate.decoding: {params.evaluate.decoding}"
    if getattr(games, params.compare.split) == 0:
        yield "compare.split", params.compare.split, f"a split with games, and games.{params.compare.split} is 0"


def _reasons_at_odds(params: Params) -> Iterator[Odd]:
    key, tokens = "sft.reason_tokens", params.sft.reason_tokens
    if params.model.source == "scratch":
        yield key, tokens, "0 for a policy trained from scratch, which writes no reasons"
    for section in ("rollout", "evaluate"):
        if getattr(params, section).constrained:
            yield key, tokens, f"0 with {section}.constrained, which decodes commands without reasons"
    if params.label.credit == "inverse":
        yield key, tokens, "0 with label.credit inverse, which would tell the expert by the reasons it does not write"
    if params.policy.replay:
        yield key, tokens, "0 with policy.replay, whose demonstrations have no reasons"
    if tokens >= params.model.max_action_tokens:
        yield key, tokens, f"less than model.max_action_tokens, {params.model.max_action_tokens}, which bounds both"


def _sharding_at_odds(params: Params) -> Iterator[Odd]:
    key, sharding = "compute.sharding", params.compute.sharding
    if params.compute.processes == 1:
        yield key, sharding, "none with compute.processes 1: shards are among processes; set as many as there are GPUs"
    for name in ("sft", "prm", "policy"):
        alone = (name, params.policy.method) == ("policy", "online_dpo")  # one process, whatever compute says
        if getattr(params, name).optimizer == "muon" and not alone:
            yield f"{name}.optimizer", "muon", f"adamw with compute.sharding {sharding}: muon works on whole matrices"


def _numbered(numbers: Mapping[str, int]) -> str:
    return ", ".join(f'"{number}": {{prev: {prev}}}' for number, prev in numbers.items())
