"""params.yaml as one validated object: every key there, none besides, each in its range.

Sections are named after stages. No key has a default: params.yaml is the one set of numbers. What is wrong with it is
one line that names the key, the value and what is allowed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentprm_core.envs import ENGINES

PARAMS = Path("params.yaml")

Count = Annotated[int, Field(ge=1, strict=True)]
CountOrNone = Annotated[int, Field(ge=0, strict=True)]
Share = Annotated[float, Field(ge=0, lt=1)]
Rate = Annotated[float, Field(gt=0, lt=1)]
"""A learning rate."""
Discount = Annotated[float, Field(gt=0, le=1)]
Temperature = Annotated[float, Field(gt=0, le=10)]
Decoding = Literal["greedy", "sample", "best_of_n", "best_trajectory", "beam", "lookahead"]
NotNegative = Annotated[float, Field(ge=0)]


class ParamsError(ValueError):
    """params.yaml cannot be used. One line: the key, its value, what is allowed."""


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Compute(Section):
    device: Literal["cpu", "cuda"]
    threads: Count
    """CPU threads of torch. Part of the params because sums in another order give other bytes."""
    processes: Count
    """That train together in ``sft``, ``prm`` and ``policy``, but for online_dpo, which draws its actions as it trains
    and stays one. Each step's accumulated batches are shared among them."""
    precision: Literal["float32", "bfloat16"]
    gradient_checkpointing: bool
    cache_mb: Count
    """MiB for the key-value caches of a player: ``slots`` are as many as asked for, or as many as fit."""


class Env(Section):
    engine: Literal[ENGINES]
    max_turns: Annotated[int, Field(ge=1, le=200, strict=True)]


class Games(Section):
    source: Literal["generated", "published"]
    published_root: str | None
    """The folder that ``alfworld-download`` filled; needed where ``source`` is ``published``."""
    train: Count
    seen: CountOrNone
    unseen: CountOrNone


class Demos(Section):
    games: Count
    max_turns: Annotated[int, Field(ge=1, le=200, strict=True)]
    corrupt: Share
    """Share of the expert's turns at which a random admissible command is done instead of its own."""
    knowledge: Annotated[float, Field(ge=0, le=1)]
    """How well the expert knows where things usually lie: at 0 it is as strong as the published hand-coded one."""


class Lora(Section):
    rank: CountOrNone
    """0: no adapter, all weights are trained."""
    alpha: Count
    modules: Annotated[list[str], Field(min_length=1)]


class Model(Section):
    source: str
    """``scratch``, a folder, or a Hugging Face id."""
    width: Count
    layers: Count
    heads: Count
    kv_heads: Count
    context: Count
    max_action_tokens: Annotated[int, Field(ge=2, strict=True)]
    lora: Lora


class Training(Section):
    """What every trained stage needs."""

    optimizer: Literal["adamw", "muon"]
    """``muon`` is for models trained from scratch, whole."""
    learning_rate: Rate
    batch_tokens: Count
    accumulation: Count
    save_every: CountOrNone
    """Steps between states that a killed run resumes from; 0 keeps none."""


class Sft(Training):
    epochs: Annotated[float, Field(gt=0)]
    observation_weight: NotNegative
    reason_tokens: CountOrNone
    """Most that a reason may have which the policy writes for each of the expert's actions; 0: none are written."""


class Branch(Section):
    """Rollouts from each of several actions at one state, through clones: what the PRM's ranking is measured on."""

    train_states: CountOrNone
    """States of training games: their values teach the PRM."""
    random_states: CountOrNone
    """More of them, at each of which one command drawn from the admissible ones is tried and played on from once."""
    validation_states: CountOrNone
    """States of held-out games: the PRM's ranking is measured on them."""
    actions: Annotated[int, Field(ge=2, strict=True)]
    continuations: Count
    temperature: Temperature
    """Of the first actions; those after it are the rollouts' own."""


class Rollout(Section):
    games: Count
    episodes_per_game: Count
    temperature: Temperature
    constrained: bool
    slots: Count
    reset_share: Share
    """Share of a game's episodes that start in a state of its demonstration; a whole number of them."""
    exploration: NotNegative
    """c of π(a|s) (1 + n(s,a))^(−c): how much rarely tried actions are preferred; 0 plays the policy as it is."""
    steered: Annotated[float, Field(ge=0, le=1)]
    """Share of a game's episodes played under a steering prompt, by policies that read instructions; a whole number."""
    min_valid: Annotated[float, Field(ge=0, le=1)]
    """The gate's floor under the share of admissible actions."""
    branch: Branch


class Label(Section):
    credit: Literal["monte_carlo", "gae", "branching", "inverse"]
    gamma: Discount
    key: Literal["history", "state"]
    discount_from: Literal["end", "start"]
    outcome: Literal["signed", "binary"]
    continuations: Count
    """Of ``branching``: fresh rollouts from each turn."""
    shaping: Literal["none", "blend", "potential"]
    """With a reference policy's advantage: ``blend`` (paper A), ``potential`` (the reference code's)."""
    alpha: Annotated[float, Field(ge=0, le=1)]
    """Of ``blend``: the weight of the advantage."""
    reference: str | None
    """The folder of a PRM of the reference policy; null: the policy that played the rollouts, by its visits."""
    validation_share: Annotated[float, Field(gt=0, lt=1)]
    min_std: NotNegative
    """The gate's floor under the standard deviation of q."""


class Prm(Training):
    loss: Literal["bce", "relative", "promise_progress", "outcome", "inverse"]
    start: Literal["previous", "prm", "sft", "scratch"]
    """``previous``: on the trunk of π_{i−1}. ``prm``: on with the PRM of the iteration before, where there is one."""
    epochs: Annotated[float, Field(gt=0)]
    observation_weight: NotNegative
    likelihood: NotNegative
    """κ: the weight of log π_φ(a|s), under the PRM's own trunk, in the logit of Q_φ(s,a)."""
    margin: NotNegative
    """Of the relative loss: the least difference of Q̂ that makes a pair."""
    beta: NotNegative
    """Of promise and progress: the weight of the progress loss L_A."""
    lam: Annotated[float, Field(ge=0, le=1)]
    """Of promise and progress: λ of the generalised advantage."""
    ranking_margin: Annotated[float, Field(ge=0, lt=1)]
    """Pairs of actions whose measured returns differ by no more are left out of the ranking that decides."""
    require_ranking: bool
    """Whether ``policy`` refuses a PRM that ranks actions no better than chance."""
    require_gain: bool
    """Whether ``policy`` plays held-out games first, and refuses a PRM under which Best-of-4 wins no more of them."""
    gain_games: Count
    """How many of them, or all where the rollouts have fewer."""
    gain_prior: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """Weight of the log-share of the samples when that Best-of-4 chooses."""


class Monitor(Section):
    """What watches an update for reward hacking; it changes no weight unless ``stop``."""

    every: CountOrNone
    """Optimizer steps between looks at the policy; 0: nobody looks."""
    episodes: Annotated[int, Field(ge=2, strict=True)]
    """Of held-out games: the probe whose states actions are drawn at."""
    auditor: bool
    """Whether a second PRM is trained, on the held-out games alone."""
    games: CountOrNone
    """Held-out games that are played at each look, to see whether what the PRM believes comes true."""
    stop: bool
    """Whether the update ends at the first look that raises the flag."""


class Policy(Training):
    method: Literal["online_dpo", "rft", "grpo", "gigpo"]
    steps: Count
    beta: Annotated[float, Field(gt=0)]
    """Weight of the KL to the anchor."""
    anchor: Literal["previous", "first"]
    """Of online_dpo: the policy it is kept near. ``previous``: π_{i−1}. ``first``: π₀."""
    preference: Literal["winner", "soft"]
    imitation: NotNegative
    """Of online_dpo: the weight of imitating the episodes that were won, beside 1 for the preferences."""
    replay: Annotated[float, Field(ge=0, lt=1)]
    """Of online_dpo and rft: the share of demonstrations among the episodes visited, as far as there are so many."""
    refresh_every: Count
    samples: Annotated[int, Field(ge=2, strict=True)]
    temperature: Temperature
    margin: NotNegative
    clip: Annotated[float, Field(gt=0, lt=1)]
    """Of grpo and gigpo: how far a turn's probability ratio may move before it stops counting."""
    omega: NotNegative
    """Of gigpo: the weight of the step's advantage."""
    monitor: Monitor


class Beam(Section):
    width: Count
    """Nodes kept at each depth."""
    samples: Count
    """Actions drawn from each."""


class Ahead(Section):
    depth: CountOrNone
    """Imagined steps after each candidate; 0 is best_of_n."""
    epochs: Annotated[float, Field(gt=0)]
    """Of the world model's training on the PRM's rollouts."""


class Evaluate(Section):
    games: Count
    """Games of each split: the first so many, or all where the split has fewer."""
    decoding: Annotated[list[Decoding], Field(min_length=1)]
    temperature: Temperature
    constrained: bool
    n: Annotated[int, Field(ge=2, strict=True)]
    """Of best_of_n and lookahead (actions a turn) and best_trajectory (episodes a game)."""
    prior: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """Of best_of_n, beam and lookahead: τ of score + τ log π̂; 0 chooses by the score alone."""
    beam: Beam
    lookahead: Ahead
    slots: Count
    published_root: str | None
    """A published tree whose ``published_split`` is evaluated too; null for none."""
    published_split: str


def decoding_name(method: str, n: int, width: int, samples: int) -> str:
    """What the ``decoding`` column says: ``greedy``, ``best_of_4``, ``beam_4x4``."""
    names = {
        "best_of_n": f"best_of_{n}",
        "best_trajectory": f"best_trajectory_of_{n}",
        "beam": f"beam_{width}x{samples}",
        "lookahead": f"lookahead_of_{n}",
    }
    return names.get(method, method)


class Compare(Section):
    split: Literal["seen", "unseen"]
    decoding: Decoding


class Iteration(Section):
    prev: CountOrNone


class Evaluated(Section):
    prm: Count
    """The iteration whose PRM chooses in Best-of-N."""


class Params(Section):
    seed: CountOrNone
    compute: Compute
    env: Env
    games: Games
    demos: Demos
    model: Model
    sft: Sft
    rollout: Rollout
    label: Label
    prm: Prm
    policy: Policy
    evaluate: Evaluate
    compare: Compare
    iterations: Annotated[dict[str, Iteration], Field(min_length=1)]
    policies: dict[str, Evaluated]

    @property
    def method(self) -> str:
        """The name of this campaign in tables of several: how the policy learns."""
        if self.policy.method != "online_dpo":
            return self.policy.method
        return {"promise_progress": "agentprm_b", "inverse": "inverse", "outcome": "orm"}.get(self.prm.loss, "agentprm")


def load_params(path: Path = PARAMS) -> Params:
    """The whole of params.yaml, validated.

    Raises:
        ParamsError: not there, not YAML, a key too many or too few, a value out of range, or values at odds.
    """
    if not path.exists():
        raise ParamsError(f"{path}: no such file; run this where dvc.yaml is")
    try:
        raw = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ParamsError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    return validate(raw, path.name)


def validate(raw: object, name: str) -> Params:
    """``raw`` as :class:`Params`. Raises ParamsError, whose line starts with ``name``."""
    try:
        params = Params.model_validate(raw)
    except ValidationError as error:
        raise ParamsError(f"{name}: {_line(error, raw)}") from None
    for key, value, allowed in _at_odds(params):
        raise ParamsError(f"{name}: {key}: {value!r} is not allowed: {allowed}")
    return params


def _line(error: ValidationError, raw: object) -> str:
    # a key that is unknown comes first: where it is a misspelling, the one that is missing follows from it
    first, *others = sorted(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden")
    key = ".".join(str(part) for part in first["loc"]) or "(the whole file)"
    more = f" (and {len(others)} more)" if others else ""
    if first["type"] == "extra_forbidden":
        there = _section(raw, first["loc"][:-1])
        near = difflib.get_close_matches(str(first["loc"][-1]), there, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        return f"{key}: {first['input']!r} is not allowed: unknown key; {hint}allowed: {', '.join(there)}{more}"
    if first["type"] == "missing":
        return f"{key}: missing; every key is needed{more}"
    allowed = first["msg"].removeprefix("Input ")
    if first["type"] in ("model_type", "dict_type"):
        allowed = f"a section with the keys {', '.join(_section(raw, first['loc'])) or 'of params.yaml in the docs'}"
    return f"{key}: {first['input']!r} is not allowed: {allowed}{more}"


def _section(raw: object, location: tuple) -> list[str]:
    """The keys that the section at ``location`` may have."""
    model: Any = Params
    for part in location:
        model = model.model_fields[part].annotation if isinstance(model, type) and part in model.model_fields else None
        for inner in getattr(model, "__args__", ()):
            if isinstance(inner, type) and issubclass(inner, Section):
                model = inner
        if model is None or not (isinstance(model, type) and issubclass(model, Section)):
            return []
    return list(model.model_fields)


def _at_odds(params: Params) -> Iterator[tuple[str, object, str]]:
    """Values that are fine alone and not together: (key, value, what is allowed)."""
    games, branch = params.games, params.rollout.branch
    if games.source == "published" and games.published_root is None:
        yield "games.published_root", None, "the folder alfworld-download filled, as games.source is 'published'"
    if params.model.width % params.model.heads:
        yield "model.heads", params.model.heads, f"a divisor of model.width, {params.model.width}"
    if params.model.heads % params.model.kv_heads:
        yield "model.kv_heads", params.model.kv_heads, f"a divisor of model.heads, {params.model.heads}"
    for key, wanted in (("demos.games", params.demos.games), ("rollout.games", params.rollout.games)):
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
    if params.prm.require_gain and params.policy.method != "online_dpo":
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
    if params.compare.decoding not in params.evaluate.decoding:
        yield "compare.decoding", params.compare.decoding, f"one of evaluate.decoding: {params.evaluate.decoding}"
    if getattr(games, params.compare.split) == 0:
        yield "compare.split", params.compare.split, f"a split with games, and games.{params.compare.split} is 0"


def _reasons_at_odds(params: Params) -> Iterator[tuple[str, object, str]]:
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


def _numbered(numbers: Mapping[str, int]) -> str:
    return ", ".join(f'"{number}": {{prev: {prev}}}' for number, prev in numbers.items())
