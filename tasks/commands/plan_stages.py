"""The stages of a campaign as a plan sees them: what each holds in memory and what it computes.

An episode of the policy is taken to have as many turns as a demonstration, at most ``env.max_turns``. In a search the
policy and the PRM each read the history of every node that is kept, and the replies that differ.
``python -m benchmarks.planned --campaign DIR`` holds all this against a campaign that ran.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from agentprm_core.errors import DataError
from agentprm_core.planning.memory import Memory, Training, playing_memory, training_memory
from agentprm_core.planning.work import reading_flops, training_flops
from agentprm_core.plays import ACTIONS
from agentprm_core.policy.starting import PublishedModel
from agentprm_core.search.decoding_config import SEARCHES, decoding
from tasks.commands.plan_traffic import Traffic
from tasks.frame.sections import Params

TRAINING, PLAYING = {"cpu": 0.3, "cuda": 0.35}, {"cpu": 0.25, "cuda": 0.1}
"""Share of the rate of large products that training and playing reach. Those of a CPU were measured
(docs/llama3b.md). Training on a GPU is all weights of 0.92 billion parameters on an H100: 263 to 265 of 741 to 785
TFLOP/s (docs/performance.md). Playing on a GPU was not measured."""
DISTINCT = 2.0
"""Different actions among several that are drawn at a turn, where only admissible ones can be drawn."""
BRANCHED = 0.75
"""Share of an episode's turns that a play from a branched state takes."""
ONLINE = 1.8
"""A step of online DPO with its draws, scores and reference over the step alone (docs/performance.md)."""
_TRAINS = ("sft", "prm", "policy")
"""Stages that train. The others play."""
_FEWEST_TOKENS = 512
"""Of a pass of training, where a smaller one is looked for."""
PROBED = 256
"""Episodes at whose states online DPO's first pairs are drawn."""


@dataclass(frozen=True)
class Planned:
    """One stage."""

    name: str
    times: int
    """How often it runs in a campaign."""
    memory: Memory
    tokens: float
    """That models read, of one run."""
    flops: float
    efficiency: float


def plan_stages(params: Params, traffic: Traffic) -> list[Planned]:
    """Those that train or play. Raises DataError where the context is more than the model can read, or an adapter
    as large as what it adapts."""
    if params.model.context > traffic.shape.positions:
        raise DataError(f"model.context: {params.model.context} is more than the model's {traffic.shape.positions}")
    lora = getattr(params.model, "lora", None)
    sides = [min(traffic.shape.linear[name]) for name in lora.modules if name in traffic.shape.linear] if lora else []
    if lora and sides and lora.rank >= min(sides):
        allowed = f"less than {min(sides)}, the smallest side of what it adapts"
        raise DataError(f"model.lora.rank: {lora.rank} is not allowed: {allowed}")
    return list(_Campaign(params, traffic).stages())


def remedy(params: Params, stage: str, memory_gb: float) -> str:
    """What single change makes a stage fit, as words for a user."""
    from tasks.commands.plan_traffic import traffic_of

    traffic, limit = traffic_of(params), memory_gb * 2**30
    for said, changed in (_smaller_passes if stage in _TRAINS else _smaller_caches)(params):
        try:
            found = {planned.name: planned for planned in plan_stages(changed, traffic)}[stage]
        except DataError:  # no conversation fits in a cache that small
            break
        if found.memory.total <= limit:
            return said
    (planned,) = [planned for planned in plan_stages(params, traffic) if planned.name == stage]
    changes = ", ".join([*_larger_changes(params, stage), "or use a larger machine"])
    if planned.memory.weights > limit:
        return f"its weights alone are {planned.memory.weights / 2**30:.1f} GiB; {changes}"
    lower = "" if stage in _TRAINS else "lower model.context, "
    return f"no smaller {'pass' if stage in _TRAINS else 'cache'} makes it fit; {lower}{changes}"


def _larger_changes(params: Params, stage: str) -> list[str]:
    """What is not set yet, and lowers what the stage holds."""
    model, trains = params.model, stage in _TRAINS
    if not isinstance(model, PublishedModel):
        return ["lower model.width or model.layers"]
    changes = ["choose a smaller model.source"]
    if params.compute.precision != "bfloat16":
        changes.append("set compute.precision to bfloat16")
    if trains and not model.lora:
        changes.append("set model.lora")
    elif trains and model.lora and model.lora.rank > 1:
        changes.append("lower model.lora.rank")
    if trains and not (params.compute.parallel and params.compute.parallel.sharding == "fsdp2"):
        changes.append("set compute.parallel with fsdp2 on several GPUs")
    return changes


def _smaller_passes(params: Params) -> Iterator[tuple[str, Params]]:
    """Of training."""
    compute, model, first = params.compute, params.model, "set "
    if isinstance(model, PublishedModel) and not model.gradient_checkpointing:
        model = replace(model, gradient_checkpointing=True)
        yield "set model.gradient_checkpointing to true", replace(params, model=model)
        first = "set model.gradient_checkpointing to true and "
    tokens = compute.pass_tokens
    while (tokens := tokens // 2) >= _FEWEST_TOKENS:
        smaller = replace(compute, pass_tokens=tokens)
        yield f"{first}compute.pass_tokens to {tokens}", replace(params, model=model, compute=smaller)


def _smaller_caches(params: Params) -> Iterator[tuple[str, Params]]:
    """Of play."""
    cache = params.compute.cache_mb
    while cache := cache // 2:
        yield f"set compute.cache_mb to {cache}", replace(params, compute=replace(params.compute, cache_mb=cache))


class _Campaign:
    """One set of parameters, and what its tokens are."""

    def __init__(self, params: Params, traffic: Traffic) -> None:
        self._params, self._traffic = params, traffic
        compute, model = params.compute, params.model
        lora = getattr(model, "lora", None)
        parallel = compute.parallel
        self._how = Training(
            precision=compute.precision,
            optimizer=model.optimizer,
            pass_tokens=compute.pass_tokens,
            rank=lora.rank if lora else 0,
            modules=lora.modules if lora else (),
            checkpointing=model.gradient_checkpointing,
            shards=parallel.processes if parallel and parallel.sharding == "fsdp2" else 1,
        )
        self._bytes = 2 if compute.precision == "bfloat16" else 4
        self._reply = traffic.reply_tokens / traffic.turn_tokens
        turns = min(traffic.turns, params.env.max_turns)
        self._length = min(turns * traffic.turn_tokens, model.context)

    def stages(self) -> Iterator[Planned]:
        """In the order of the graph."""
        params = self._params
        iterations, policies = len(params.iterations), len(params.policies)
        yield self._sft()
        yield self._rollout(iterations)
        yield self._prm(iterations)
        yield self._collect(iterations)
        yield self._policy(iterations)
        yield self._evaluate(policies)

    def _trained(
        self,
        name: str,
        times: int,
        tokens: float,
        share: float,
        factor: float = 1.0,
        optimizer: str | None = None,
        **memory: bool,
    ) -> Planned:
        """``optimizer``: where it is not the model's."""
        shape, device = self._traffic.shape, self._params.compute.device
        how = replace(self._how, optimizer=optimizer or self._how.optimizer)
        predicted = 0.0 if memory.get("headless") else share * tokens
        held = training_memory(shape, how, share=share, device=device, **memory)
        flops = factor * training_flops(shape, how, tokens, self._length, predicted)
        return Planned(name, times, held, tokens, flops, TRAINING[device])

    def _played(self, models: int) -> Memory:
        compute, context = self._params.compute, self._params.model.context
        how = {"slots": compute.slots, "context": context, "cache_mb": compute.cache_mb}
        shape = self._traffic.shape
        return playing_memory(shape, models=models, bytes_each=self._bytes, device=compute.device, **how)

    def _read(self, name: str, times: int, memory: Memory, tokens: float, replies: float) -> Planned:
        flops = reading_flops(self._traffic.shape, tokens, self._length, replies)
        return Planned(name, times, memory, tokens, flops, PLAYING[self._params.compute.device])

    def _searched(self, way: str) -> float:
        """Tokens that a search reads in place of each of an episode's, by the policy and by the PRM together."""
        found = decoding(way)
        nodes, drawn = (found.width, found.samples) if found.method == "beam" else (1, found.n)
        if found.method == "best_trajectory":
            nodes, drawn = found.n, 1
        differ = min(drawn, DISTINCT) if self._params.model.constrained is True else drawn
        return 2 * nodes * (1 + (differ - 1) * self._reply)

    def _sft(self) -> Planned:
        section = self._params.sft
        tokens = self._params.demos.count * self._traffic.turns * self._traffic.turn_tokens * section.epochs
        return self._trained("sft", 1, tokens, 1.0 if section.observation_weight else self._reply)

    def _episodes(self) -> float:
        return self._params.rollout.games * self._params.rollout.episodes_per_game

    def _branches(self) -> float:
        """Episodes as long as all plays from branched states together. A random command is played on from once."""
        branch = self._params.rollout.branch
        measured = branch.validation_states * (2 if self._guards() else 1)
        plays = ACTIONS * (branch.train_states + measured) * branch.continuations
        return BRANCHED * (plays + branch.random_states)

    def _guards(self) -> int:
        """Guard games, which are played once each, to branch from."""
        return self._params.games.guards if self._params.rollout.branch.validation_states else 0

    def _rollout(self, times: int) -> Planned:
        tokens = (self._episodes() + self._guards() + self._branches()) * self._length
        return self._read("rollout", times, self._played(1), tokens, tokens * self._reply)

    def _prm(self, times: int) -> Planned:
        share = 1 - self._params.rollout.validation_share
        tokens = self._episodes() * share * self._length * self._params.critic.epochs
        return self._trained("prm", times, tokens, 0.0, headless=True)

    def _collect(self, times: int) -> Planned:
        method = self._params.method
        if method.name == "online_dpo":
            samples = getattr(method, "samples", 1)
            tokens = min(PROBED, self._episodes()) * self._length * (2 + 2 * self._reply * samples)
            return self._read("collect", times, _sum(self._played(1), self._weights()), tokens, tokens * self._reply)
        way = getattr(method, "search", None)
        tokens = getattr(method, "games", 0) * self._length * (self._searched(way) if way else 1)
        return self._read("collect", times, self._played(2 if way else 1), tokens, tokens * self._reply)

    def _policy(self, times: int) -> Planned:
        method, tokens = self._params.method, self._params.method.steps * self._params.method.batch_tokens
        if method.name != "online_dpo":
            share = 1.0 if self._params.sft.observation_weight else self._reply
            return self._trained("policy", times, tokens, share, optimizer=getattr(method, "optimizer", None))
        trained = self._trained("policy", times, tokens, self._reply, ONLINE, reference=True)
        judge = Memory(weights=self._bytes * self._traffic.shape.parameters)
        return replace(trained, memory=_sum(trained.memory, judge))

    def _evaluate(self, times: int) -> Planned:
        params = self._params
        games, tokens, models = params.games.seen + params.games.unseen, 0.0, 1
        for name in params.evaluate.decoding:
            searched = decoding(name).method in SEARCHES
            models = max(models, 1 + searched)
            tokens += games * self._length * (self._searched(name) if searched else 1)
        return self._read("evaluate", times, self._played(models), tokens, tokens * self._reply)

    def _weights(self) -> Memory:
        return Memory(weights=4 * self._traffic.shape.parameters)


def _sum(one: Memory, other: Memory) -> Memory:
    names = ("weights", "states", "activations", "cache", "process")
    return Memory(**{name: getattr(one, name) + getattr(other, name) for name in names})
