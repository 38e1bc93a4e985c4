"""What critics share: the parameters that all of them have, where their PRM starts, and training on labelled turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from agentprm_core.config import Count, Discount, LearningRate, NotNegative, Positive
from agentprm_core.credit.coverage import coverage_report
from agentprm_core.credit.monte_carlo import Shaped, label_monte_carlo
from agentprm_core.credit.turns import read_turns
from agentprm_core.datasets import REPLAYED, atomic_write, read_table
from agentprm_core.errors import DataError
from agentprm_core.methods.base import Given, Labels, TrainedPrm
from agentprm_core.policy.models import load_checkpoint, new_model, save_checkpoint
from agentprm_core.prm.dataset import Labelled, labelled, tried_actions
from agentprm_core.prm.model import likelihood_weight, new_prm
from agentprm_core.prm.train import PrmSettings, train_prm
from agentprm_core.suites import labels_suite
from agentprm_core.types import LABELS
from agentprm_core.worlds import world_spec

if TYPE_CHECKING:
    from transformers import PreTrainedModel


Weights = Literal["prm", "policy", "sft", "scratch"]


@dataclass(frozen=True)
class MixedInit:
    """A start that the trained weights are mixed with."""

    weights: Weights
    """Where the PRM starts."""
    mixing: Discount
    """α of (1 − α) θ_start + α θ_trained, which become the PRM's weights. 1: the trained ones."""


@dataclass(frozen=True, kw_only=True)
class CriticConfig:
    """The parameters of every critic."""

    name: str
    """The critic."""
    gamma: Discount
    """Discount of a return, a turn."""
    init_from: Weights | MixedInit
    """Where the PRM starts: the PRM before (in iteration 1 π₀), π_{i−1}, π₀, or random. Or a section: the PRM is then
    between its start and its trained weights."""
    learning_rate: LearningRate
    """At the start; it falls along a cosine."""
    epochs: Positive
    """Passes over the labelled episodes."""
    batch_tokens: Count
    """Of an optimizer step."""
    likelihood: NotNegative
    """κ of logit Q_φ(s,a) = w·h(s,a) + κ log π_φ(a|s); 0 as in the papers."""
    prior: NotNegative
    """τ of score + τ log π̂ wherever the PRM chooses, π̂ the share of the samples; 0 chooses by the score alone."""
    require: Literal["ranking", "gain", "nothing", "ranking_or_error", "gain_or_error"]
    """What a PRM must show to be followed: that it ranks, or wins more than the likelihood. Else the policy
    stays; with ``_or_error`` the campaign ends."""

    @property
    def start(self) -> Weights:
        """Where the PRM starts."""
        return self.init_from.weights if isinstance(self.init_from, MixedInit) else self.init_from

    @property
    def mixing(self) -> float:
        """The share of the trained weights in the PRM's."""
        return self.init_from.mixing if isinstance(self.init_from, MixedInit) else 1.0


def starting_prm(config: CriticConfig, given: Given) -> PreTrainedModel:
    """The model to train.

    Raises DataError where the PRM before was trained with another likelihood.
    """
    before = given.folders.prm_before
    if config.start == "prm" and before is not None:
        prm = load_checkpoint(before, kind="prm", device=given.device).model
        if likelihood_weight(prm) != config.likelihood:
            raise DataError(
                f"{before} was trained with likelihood {likelihood_weight(prm)}, critic.likelihood is "
                f"{config.likelihood}: train it anew, or set critic.init_from: policy"
            )
        return prm
    if config.start in ("prm", "policy"):
        return new_prm(given.trainee.model, config.likelihood)
    if config.start == "sft":
        return new_prm(load_checkpoint(given.folders.first_policy, device=given.device).model, config.likelihood)
    if not given.sizes:
        raise DataError("critic.init_from: scratch is for policies trained from scratch (model.source: scratch)")
    alike = world_spec(given.play.world).alike
    fresh = new_model(given.trainee.tokenizer, **given.sizes, seed=given.seed, alike=alike)
    fresh.to(given.device)  # pyright: ignore[reportArgumentType]: transformers wraps it
    return new_prm(fresh, config.likelihood)


def save_prm(model: PreTrainedModel, given: Given, path: Path) -> None:
    """Write the checkpoint of a PRM that was trained of what is ``given``; one that is there is replaced."""
    trainee = given.trainee
    with atomic_write(path) as folder:
        told = {"prompt": trainee.renderer.prompt, "world": given.play.world}
        save_checkpoint(model, trainee.tokenizer, folder, kind="prm", **told)


def monte_carlo_labels(
    given: Given, *, gamma: float, visit_key: str, outcome: str, shaped: Shaped | None = None
) -> Labels:
    """Mean returns over the visits to a state and action, and whether these labels can be trusted (``coverage``).

    The texts of the rollouts stream past: they are never in memory at once, unless ``shaped`` reads them.
    """
    rollouts, aside = given.folders.rollouts[-1], given.scratch / "labels.parquet"
    figures = label_monte_carlo(
        rollouts,
        aside,
        gamma=gamma,
        visit_key=visit_key,
        validation_share=given.validation_share,
        seed=given.campaign_seed,
        outcome=outcome,
        shaped=shaped,
    )
    report = coverage_report(read_turns(rollouts), visit_key=visit_key, gamma=gamma, outcome=outcome)
    return checked_labels(given, read_table(aside, LABELS), figures | {"coverage": report})


def checked_labels(given: Given, table: pa.Table, figures: dict) -> Labels:
    """Rows of LABELS with what must hold of them."""
    methods = pq.read_table(given.folders.rollouts[-1], columns=["method"], read_dictionary=["method"])["method"]
    replayed = sum(entry["counts"] for entry in methods.value_counts().to_pylist() if entry["values"] == REPLAYED)
    return Labels(table, figures, labels_suite(table, len(methods), replayed))


def labelled_sides(given: Given, *, gamma: float, outcome: str) -> tuple[list[Labelled], list[Labelled]]:
    """(training, held-out) episodes of this iteration with their labels and what was tried beside them."""
    folders = given.folders
    tried = tried_actions(folders.branches, gamma=gamma, outcome=outcome)
    return labelled(folders.rollouts[-1], folders.labels, tried)


def train_on_labels(
    config: CriticConfig,
    given: Given,
    train: Sequence[Labelled],
    held_out: list[Labelled],
    **settings: Any,
) -> TrainedPrm:
    """A PRM of the labelled turns. ``settings`` are those of :class:`agentprm_core.prm.train.PrmSettings` that the
    critic decides."""
    hardware = given.hardware.settings(
        learning_rate=config.learning_rate, batch_tokens=config.batch_tokens, seed=given.seed
    )
    chosen = PrmSettings(**hardware, epochs=config.epochs, mixing=config.mixing, **settings)
    start = starting_prm(config, given)
    model, figures = train_prm(train, given.trainee.renderer, start, chosen, given.scratch, held_out)
    return TrainedPrm(model, figures, held_out, "measured return")
