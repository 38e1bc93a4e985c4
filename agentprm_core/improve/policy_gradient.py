"""Advantage-weighted update of the turns that were played: PPO's clipped objective with a KL to π_{i−1}.

    L = −Σ min(ρ A, clip(ρ, 1−ε, 1+ε) A) + β KL(π ‖ π_{i−1}) + c Σ ½ (V(s) − target)²,    ρ = π(a|s) / π_old(a|s)

(Schulman et al. 2017). ``level`` says what ρ is of: a turn's whole action, or each of its tokens. The advantages are
the caller's: by trajectory (GRPO, LOOP), by anchor state (GiGPO), by implicit rewards (iStar), by trees (Tree-GRPO), or
a critic's (PPO). With a critic c is above 0, and V is a head on the policy's own trunk, which it reads and does not
change.

π_old played the turns. It is π_{i−1}, or, where the caller can play (``fresh``), the policy as it was when it last did:
every ``refresh_every`` steps. The probabilities of π, π_old and π_{i−1} are those that play draws by: among the
admissible commands where it is constrained (:mod:`agentprm_core.improve.choices`), else over the whole vocabulary.

Shapes: ``P`` action tokens, ``J`` turns (or tokens) of a batch, ``S`` states, ``T`` turns of an episode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F

from agentprm_core.improve.choices import Choices
from agentprm_core.improve.decided import DecidedColumns, decided_row, with_old
from agentprm_core.improve.kl import ReferredBatch, kl_sum
from agentprm_core.improve.reference import Reference
from agentprm_core.policy.decoding import Constrained
from agentprm_core.policy.models import Checkpoint
from agentprm_core.seeding import episode_seed
from agentprm_core.training.attention import forward
from agentprm_core.training.columns import Values
from agentprm_core.training.launch import fit
from agentprm_core.training.packing import Batch, BatchPlan, Row, pack
from agentprm_core.training.settings import TrainSettings
from agentprm_core.training.trainer import Batches, EpisodeTrainer, Losses
from agentprm_core.training.tree import branch_sums
from agentprm_core.types import Episode

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LEVELS = ("turn", "token")
KEEPS = ("all", "undecided")
HEAD = "value_head"
"""The name of the critic's head in the model, while it is trained."""


@dataclass(frozen=True)
class GradientSettings(TrainSettings):
    beta: float = 0.03
    """Weight of the KL to π_{i−1}."""
    clip: float = 0.2
    """ε: how far a probability ratio may move before it stops counting."""
    level: str = "turn"
    """What a ratio is of: ``turn`` or ``token``."""
    value_weight: float = 0.0
    """c: weight of the critic's loss; above 0 the model has a head named :data:`HEAD`."""
    refresh_every: int = 0
    """Optimizer steps between fresh rollouts; 0: none."""
    keeps: str = "all"
    """``undecided``: only episodes with an advantage are read, where there are some. The others have no gradient where
    there is neither a KL nor a critic."""
    fresh: str = ""
    """What decides fresh rollouts beside the weights, in any words: other words are another run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.level not in LEVELS:
            raise ValueError(f"level: {self.level!r} is not one of {', '.join(LEVELS)}")
        if self.keeps not in KEEPS:
            raise ValueError(f"keeps: {self.keeps!r} is not one of {', '.join(KEEPS)}")
        if self.keeps == "undecided" and (self.beta or self.value_weight):
            raise ValueError("keeps: undecided leaves out what a KL (beta) or a critic (value_weight) learns from")
        if self.refresh_every and self.save_every % self.refresh_every:
            raise ValueError(
                f"save_every {self.save_every} must be a multiple of refresh_every {self.refresh_every}: a resumed run "
                f"goes on where its rollouts are fresh"
            )


@dataclass(frozen=True)
class GradientColumns(DecidedColumns):
    """The loss weight is 1 at the end of each decided action, or on each of its tokens, as ``level`` says."""

    advantage: Values
    """The turn's, on all tokens of its action."""
    target: Values
    """What V(s) is to be, where ``is_state``."""


@dataclass(frozen=True)
class Experience:
    """Episodes to learn from. All per episode, T values each."""

    episodes: Sequence[Episode]
    advantages: Sequence[np.ndarray]
    """Turns of advantage 0 and replayed ones count for nothing, but for the KL."""
    targets: Sequence[np.ndarray] | None = None
    """Of V(s); None without a critic."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """What is said of it beside what the episodes tell."""


Fresh = Callable[[int, Path], Experience]
"""Plays with the policy as it is: the number of the time, from 1, and a path in scratch whose beginning is this run's
and this time's own."""


def train_policy_gradient(
    experience: Experience,
    policy: Checkpoint,
    settings: GradientSettings,
    scratch: Path,
    fresh: Fresh | None = None,
    decoding: Constrained | None = None,
) -> tuple[PreTrainedModel, dict]:
    """Train ``policy.model`` in place on turns that it, as it comes (π_{i−1}), has played, and on those that ``fresh``
    has it play. ``decoding`` is how it plays; None: freely.

    Returns:
        The model, and :func:`agentprm_core.training.trainer.fit`'s metrics; the curve also has ``kl`` (nats a turn),
        ``clipped`` (share of the ratios), and with a critic ``value_loss``. With ``fresh`` also ``refreshed``: of each
        time the step, ``episodes``, ``turns``, ``success``, how many episodes were ``read``, and what
        ``experience`` says of itself.

    Raises:
        ValueError: no episodes, not one advantage a turn, nothing trainable.
        DataError: an episode longer than the context.
    """
    writer = RowWriter(policy, settings.level, decoding)
    rows = _kept(writer.rows(experience), settings)
    trainer = GradientTrainer(policy.model, rows, settings, scratch, writer.choices)
    trainer.play_with(writer, fresh)
    metrics = fit(trainer)
    if fresh is not None:
        del metrics["tokens"]  # of rows that only the first steps read
        metrics["refreshed"] = [entry["fresh"] | {"step": entry["step"]} for entry in trainer.log if "fresh" in entry]
    return policy.model, metrics


class RowWriter:
    """Makes rows of episodes, and keeps what their tokens were drawn among."""

    def __init__(self, policy: Checkpoint, level: str = "turn", decoding: Constrained | None = None) -> None:
        self._policy, self._level, self._decoding = policy, level, decoding
        self.choices = Choices()
        """The sets of tokens that the rows so far speak of."""

    def rows(self, experience: Experience) -> list[Row[GradientColumns]]:
        """A row an episode."""
        targets = experience.targets or [None] * len(experience.episodes)
        each = zip(experience.episodes, experience.advantages, targets, strict=True)
        return [self.row(episode, a_T, target_T) for episode, a_T, target_T in each]

    def row(
        self, episode: Episode, advantage_T: np.ndarray, target_T: np.ndarray | None = None
    ) -> Row[GradientColumns]:
        """The episode with its decided turns."""
        row, rendered = decided_row(episode, self._policy, GradientColumns, self.choices, self._decoding)
        columns = row.columns
        if len(advantage_T) != episode.length:
            said = f"{len(advantage_T)} advantages for {episode.length} turns"
            raise ValueError(f"episode {episode.index} of {episode.game_id}: {said}")
        for turn in range(episode.start, episode.length):
            own = slice(rendered.action_starts[turn], rendered.action_ends[turn] + 1)
            columns.advantage[own] = advantage_T[turn]
            if target_T is not None:
                columns.target[own.start - 1] = target_T[turn]
        columns.loss_weight[:] = columns.is_end if self._level == "turn" else columns.decided
        return row


class GradientTrainer(EpisodeTrainer[GradientSettings]):
    """Adds to every batch what π_old and π_{i−1} say, and plays anew when it is time."""

    def __init__(
        self,
        model: PreTrainedModel,
        rows: Sequence[Row],
        settings: GradientSettings,
        scratch: Path,
        choices: Choices | None = None,
    ) -> None:
        """``choices`` are those that the rows speak of; None: they speak of none."""
        self._choices = choices or Choices()
        objective = partial(
            gradient_objective,
            choices=self._choices,
            beta=settings.beta,
            clip=settings.clip,
            level=settings.level,
            value_weight=settings.value_weight,
        )
        super().__init__(model, rows, objective, settings, scratch)
        self._reference = Reference(model)
        self._writer: RowWriter | None = None
        self._fresh: Fresh | None = None
        self._time = 0
        self._rows: Sequence[Row[GradientColumns]] = rows
        self._fresh_plan: BatchPlan | None = None

    def play_with(self, writer: RowWriter, fresh: Fresh | None) -> None:
        """``fresh`` plays with the model that is trained, and ``writer`` makes rows of it. Raises ValueError where the
        settings say otherwise."""
        if (fresh is None) != (self.settings.refresh_every == 0):
            raise ValueError("refresh_every: fresh rollouts need somebody who plays them, and only they do")
        self._writer, self._fresh = writer, fresh

    def beside(self) -> dict:
        return {"choices": self._choices.to_json()}

    @classmethod
    def again(cls, model, rows, settings, scratch: Path, beside: Mapping) -> GradientTrainer:
        return cls(model, rows, settings, scratch, Choices.from_json(beside["choices"]))

    def batches(self, step: int) -> Batches:
        every = self.settings.refresh_every
        time, within = divmod(step, every) if every else (0, step)
        if not time:  # π_old is π_{i−1}
            return [self._refer(batch, batch.columns.decided > 0) for batch in super().batches(step)]
        if self._time != time:
            self._refresh(time)
        assert self._fresh_plan is not None  # just made
        due = self._fresh_plan[within * self._group : (within + 1) * self._group]
        return [self._recalled(pack([self._rows[i] for i in numbers]).to(self.model.device)) for numbers in due]

    def _refresh(self, time: int) -> None:
        """Rollouts of the policy as it is now, and batches of them for all steps up to the next time."""
        settings, writer, fresh = self.settings, self._writer, self._fresh
        assert writer is not None and fresh is not None  # who else set refresh_every
        experience = fresh(time, self.scratch / f"fresh-{self.run}-{time:05}")
        rows = _kept(writer.rows(experience), settings)
        self._rows, self._time = with_old(self.model, rows, settings.batch_tokens, self._choices.logits), time
        self._fresh_plan = BatchPlan(
            [len(row) for row in rows],
            settings.batch_tokens,
            episode_seed(settings.seed, "fresh", time),
            batches=settings.refresh_every * self._group,
            group=self._group,
        )
        episodes = experience.episodes
        said = {
            "episodes": len(episodes),
            "turns": sum(episode.length - episode.start for episode in episodes),
            "success": sum(episode.won for episode in episodes) / len(episodes),
            "read": len(rows),
            **experience.figures,
        }
        self.log.append({"step": self.step, "fresh": said})

    def _refer(self, batch: Batch[GradientColumns], decided_N: torch.Tensor) -> ReferredBatch[GradientColumns]:
        """With π_{i−1}'s distributions."""
        return self._reference.refer(batch, decided_N, self._choices.logits)

    def _recalled(self, batch: Batch[GradientColumns]) -> ReferredBatch[GradientColumns]:
        """With what π_old said of the tokens, and, where the KL counts, π_{i−1}'s distributions."""
        decided_N = batch.columns.decided > 0
        old_P = batch.columns.old[decided_N]
        if self.settings.beta:
            referred = self._refer(batch, decided_N)
            return ReferredBatch(**(vars(referred) | {"reference": old_P}))
        nowhere = torch.zeros(0, dtype=torch.long, device=old_P.device)
        return ReferredBatch(**vars(batch), reference=old_P, measured=nowhere, reference_logits=old_P.new_zeros(0, 1))


def _kept(rows: list[Row[GradientColumns]], settings: GradientSettings) -> list[Row[GradientColumns]]:
    told = [row for row in rows if settings.keeps == "all" or row.columns.advantage.any()]
    return told or rows


def gradient_objective(
    model: torch.nn.Module,
    batch: ReferredBatch[GradientColumns],
    beta: float,
    clip: float,
    level: str = "turn",
    value_weight: float = 0.0,
    choices: Choices | None = None,
) -> Losses:
    """Σ over decided turns, or over their tokens, of the clipped surrogate's loss, β × KL, exact at each token of the
    action played (:mod:`agentprm_core.improve.kl`), and c × the critic's loss."""
    columns, choices = batch.columns, choices or Choices()
    decided_N, end_N = columns.decided > 0, columns.is_end
    value_loss = None
    if value_weight:
        logits_PV, value_S = _with_values(model, batch, decided_N)
        logits_PV = choices.among(logits_PV, columns.among[decided_N])
        value_loss = 0.5 * (value_S - columns.target[columns.is_state > 0]).square().sum()
    else:
        logits_PV = choices.logits(model, batch, decided_N)
    log_prob_P = -F.cross_entropy(logits_PV, batch.input_ids[decided_N], reduction="none")
    ratio_P = log_prob_P - batch.reference
    if level == "token":
        ratio_J, advantage_J = ratio_P.exp(), columns.advantage[decided_N]
    else:
        turn_P = (end_N.cumsum(0) - end_N)[decided_N].long()
        advantage_J = columns.advantage[end_N > 0]
        ratio_J = branch_sums(ratio_P, turn_P, len(advantage_J)).exp()
    surrogate_J = torch.minimum(ratio_J * advantage_J, ratio_J.clamp(1 - clip, 1 + clip) * advantage_J)
    total, turns = -surrogate_J.sum(), end_N.sum()
    metrics = {"clipped": (((ratio_J - 1).abs() > clip).float().sum(), len(advantage_J))}
    if len(batch.measured):
        kl = kl_sum(logits_PV, batch)
        total, metrics = beta * kl + total, {"kl": (kl.detach(), turns), **metrics}
    if value_loss is not None:
        total, metrics["value_loss"] = total + value_weight * value_loss, (value_loss.detach(), turns)
    return Losses(total, metrics)


def _with_values(
    model: torch.nn.Module, batch: Batch[GradientColumns], decided_N: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """One pass: what the P tokens are predicted from, (P, V), and V(s) of the S states. No gradient of V reaches the
    trunk: while the critic still errs its loss would outweigh the policy's."""
    out = forward(model, batch, logits_to_keep=batch.parent[decided_N], output_hidden_states=True)
    state_SW = out.hidden_states[-1][0, batch.columns.is_state > 0].float().detach()
    return out.logits[0].float(), getattr(model, HEAD)(state_SW)[:, 0]
