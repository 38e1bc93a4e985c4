"""params.yaml as one validated object: every key there, none besides, each in its range.

Sections are named after stages. No key has a default: params.yaml is the one set of numbers. What is wrong with it is
one line that names the key, the value and what is allowed.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo
from pydantic_core import PydanticCustomError

from agentprm_core import worlds
from agentprm_core.errors import DataError
from agentprm_core.worlds import world_module, world_names, world_spec
from tasks.frame.odds import at_odds

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
Prior = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""τ of score + τ log π̂."""


class ParamsError(ValueError):
    """params.yaml cannot be used. One line: the key, its value, what is allowed."""


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _known_world(name: str) -> str:
    try:
        world_spec(name)
    except DataError as error:
        there = f"should be one of {', '.join(world_names())}, or package.module:SPEC"
        allowed = there if ":" not in name else f"cannot be used: {error}"
        raise PydanticCustomError("world", "Input {allowed}", {"allowed": allowed}) from None
    return name


def _holds_the_world(code: str, info: ValidationInfo) -> str:
    module = world_module(info.data.get("world", ""))
    folder = Path(*module.split(".")[:-1]).as_posix()
    if module.startswith(f"{worlds.__name__}.") and code != folder:
        raise PydanticCustomError("code", "Input should be {folder}", {"folder": folder})
    return code


class Compute(Section):
    device: Literal["cpu", "cuda"]
    threads: Count
    """CPU threads of torch. Part of the params because sums in another order give other bytes."""
    processes: Count
    """That train together in ``sft``, ``prm`` and ``policy``, but for online_dpo, which draws its actions as it trains
    and stays one. Each step's accumulated batches are shared among them."""
    sharding: Literal["none", "fsdp2"]
    """``fsdp2``: each of them holds a part of parameters, gradients and optimizer state, not all."""
    precision: Literal["float32", "bfloat16"]
    gradient_checkpointing: bool
    cache_mb: Count
    """MiB for the key-value caches of a player: ``slots`` are as many as asked for, or as many as fit."""


class Env(Section):
    world: Annotated[str, AfterValidator(_known_world)]
    """A name, or ``package.module:SPEC``."""
    code: Annotated[str, AfterValidator(_holds_the_world)]
    """The folder or file of the world's code: a dep of every stage that can play it."""
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
    gae_lambda: Annotated[float, Field(ge=0, le=1)]
    """Of promise and progress: λ of the generalised advantage."""
    targets: Literal["step", "epoch"]
    """Of promise and progress: when the model's scores make the targets anew."""
    ranking_margin: Annotated[float, Field(ge=0, lt=1)]
    """Pairs of actions whose measured returns differ by no more are left out of the ranking that decides."""
    require_ranking: bool
    """Whether ``policy`` refuses a PRM that ranks actions no better than chance."""
    require_gain: bool
    """Whether ``policy`` plays held-out games first, and refuses a PRM under which Best-of-4 wins no more of them."""
    gain_games: Count
    """How many of them, or all where the rollouts have fewer."""
    gain_prior: Prior
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


class Beam(Section):
    width: Count
    """Nodes kept at each depth."""
    samples: Count
    """Actions drawn from each."""


class Search(Section):
    """Of expert_iteration: beam search on training games, whose wins the policy imitates."""

    games: Count
    beam: Beam
    temperature: Temperature
    prior: Prior


class Policy(Training):
    method: Literal["expert_iteration", "online_dpo", "rft", "grpo", "gigpo"]
    steps: Count
    beta: Annotated[float, Field(gt=0)]
    """Weight of the KL to the anchor."""
    anchor: Literal["previous", "first"]
    """Of online_dpo: the policy it is kept near. ``previous``: π_{i−1}. ``first``: π₀."""
    preference: Literal["winner", "soft"]
    imitation: NotNegative
    """Of online_dpo: the weight of imitating the episodes that were won, beside 1 for the preferences."""
    imitates: Literal["won", "expert_like"]
    """Of expert_iteration: the searched episodes that were won, or those whose last action the PRM scores as it does
    the demonstrations' last ones, which reads no outcome."""
    replay: Annotated[float, Field(ge=0, lt=1)]
    """The share of demonstrations among the episodes visited, as far as there are so many. Not of grpo and gigpo."""
    refresh_every: Count
    samples: Annotated[int, Field(ge=2, strict=True)]
    temperature: Temperature
    margin: NotNegative
    clip: Annotated[float, Field(gt=0, lt=1)]
    """Of grpo and gigpo: how far a turn's probability ratio may move before it stops counting."""
    omega: NotNegative
    """Of gigpo: the weight of the step's advantage."""
    monitor: Monitor


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
    prior: Prior
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
    """The iteration whose PRM chooses in searches."""


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
    search: Search
    policy: Policy
    evaluate: Evaluate
    compare: Compare
    iterations: Annotated[dict[str, Iteration], Field(min_length=1)]
    policies: dict[str, Evaluated]

    @property
    def method(self) -> str:
        """The name of this campaign in tables of several: how the policy learns."""
        if self.policy.method != "online_dpo" and self.prm.loss != "inverse":
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
    for key, value, allowed in at_odds(params):
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
