"""Promise and progress: the model learns from its own scores through GAE targets (paper B).

    L = ½ (M_t − Q̂_t)² + β ((M_t − M_{t−1}) − Â_t)²

M_t = Q_φ(s_t, a_t) in (0, 1), after the action of turn t; Q̂ and Â come from
:func:`agentprm_core.credit.gae.gae_targets`, without gradient. M before the first turn is 0, in the targets and in the
loss. The gradient runs through both M of the difference.

Which M the targets are made of is ``PrmSettings.targets``. Each epoch (the paper) freezes M at its start, and so asks
for M_t − M_{t−1} = Q̂_t − M⁰_{t−1} while M has long left M⁰: within the first epoch M⁰ knows nothing, and what progress
asks contradicts what promise asks. Each step takes M of the same forward pass, which costs nothing; then the two agree,
and a turn's gradient is (1 + 2β) e_t ∇M_t − 2β e_t ∇M_{t−1}, e_t = M_t − Q̂_t: of the part with β the errors that turns
share cancel, what an action changed stays.

Shapes: ``M`` scored actions of a pack, its rows' turns in order; ``T`` turns of one row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

from agentprm_core.credit.gae import gae_targets
from agentprm_core.datasets import atomic_write
from agentprm_core.prm.losses import prm_objective
from agentprm_core.prm.rows import PrmColumns
from agentprm_core.prm.score import score_rows
from agentprm_core.training.packing import Batch, Row
from agentprm_core.training.trainer import Batches, EpisodeTrainer

if TYPE_CHECKING:
    from agentprm_core.prm.train import PrmSettings  # noqa: F401 (the base below names it)


@dataclass(frozen=True)
class TargetBatch(Batch[PrmColumns]):
    """A packed batch with the targets of its M scored actions."""

    promise: torch.Tensor
    """(M,) Q̂."""
    progress: torch.Tensor
    """(M,) Â."""


class PromiseProgressTrainer(EpisodeTrainer["PrmSettings"]):
    """Targets from the scores of the same pass, or from the model as it was when the epoch began."""

    def __init__(self, prm, rows: Sequence[Row[PrmColumns]], won: Sequence[bool], settings, scratch) -> None:
        super().__init__(prm, rows, prm_objective(self.loss), settings, scratch)
        self._won = np.array(won, dtype=np.float32)
        self._targets: list[tuple[np.ndarray, np.ndarray]] = []

    def beside(self) -> dict:
        return {"won": self._won.tolist()}

    @classmethod
    def again(cls, model, rows, settings, scratch, beside: Mapping) -> PromiseProgressTrainer:
        return cls(model, rows, beside["won"], settings, scratch)

    def decided_by(self) -> list[Mapping[str, torch.Tensor]]:
        return [*super().decided_by(), {"won": torch.from_numpy(self._won)}]

    def batches(self, step: int) -> Batches:
        batches = super().batches(step)
        if self.settings.targets == "step":
            return batches
        group = self.settings.accumulation * self.processes.count
        steps_an_epoch = -(-self.plan.first_epoch // group)
        if not self._targets or step % steps_an_epoch == 0:
            self._targets = self._estimate(step - step % steps_an_epoch)
        return [self._with_targets(batch) for batch in batches]

    def loss(self, logit_M: torch.Tensor, batch: Batch[PrmColumns]) -> torch.Tensor:
        """Σ over turns of ½ (M − Q̂)² + β ((M − M_prev) − Â)²."""
        q_M = logit_M.sigmoid()
        row_M = batch.row[batch.columns.is_scored > 0]
        same_row_M = F.pad(row_M[1:] == row_M[:-1], (1, 0))
        before_M = F.pad(q_M[:-1], (1, 0)) * same_row_M
        if isinstance(batch, TargetBatch):
            promise, progress = batch.promise, batch.progress
        else:
            promise, progress = self._targets_of(q_M.detach(), row_M, batch.numbers)
        promise_M = (q_M - promise).square() / 2
        progress_M = (q_M - before_M - progress).square()
        return (promise_M + self.settings.beta * progress_M).sum()

    def _targets_of(self, q_M: torch.Tensor, row_M: torch.Tensor, rows_B: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(M,) Q̂ and Â of the packed rows ``rows_B`` from their scores."""
        lengths_B = row_M.unique_consecutive(return_counts=True)[1]
        values_BT = pad_sequence(list(q_M.split(lengths_B.tolist())), batch_first=True)
        won_B = torch.from_numpy(self._won).to(q_M.device)[rows_B]
        targets = gae_targets(
            values_BT, lengths_B, won_B, gamma=self.settings.gamma, gae_lambda=self.settings.gae_lambda
        )
        return targets.q_BT[targets.mask_BT], targets.advantage_BT[targets.mask_BT]

    def _estimate(self, epoch_start: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """(Q̂, Â) of every row from the weights of step ``epoch_start``; kept in scratch, for a run that is killed
        within the epoch cannot score with those weights again."""
        kept = self.scratch / f"scores-{epoch_start}.npy"
        if not kept.exists():
            scores = score_rows(self.model, self.rows, self.settings.batch_tokens)
            if self.processes.rank == 0:
                with atomic_write(kept) as aside:
                    np.save(aside, np.concatenate(scores))
        else:
            ends = np.cumsum([int(row.columns.is_scored.sum()) for row in self.rows])
            scores = np.split(np.load(kept), ends[:-1])
        return [self._row_targets(m_T, won) for m_T, won in zip(scores, self._won)]

    def _row_targets(self, m_T: np.ndarray, won: float) -> tuple[np.ndarray, np.ndarray]:
        targets = gae_targets(
            torch.from_numpy(m_T)[None],
            torch.tensor([len(m_T)]),
            torch.tensor([won]),
            gamma=self.settings.gamma,
            gae_lambda=self.settings.gae_lambda,
        )
        return targets.q_BT[0].numpy(), targets.advantage_BT[0].numpy()

    def _with_targets(self, batch: Batch[PrmColumns]) -> TargetBatch:
        of_rows = zip(*[self._targets[i] for i in batch.numbers.tolist()])
        promise, progress = (torch.from_numpy(np.concatenate(each)).to(batch.row.device) for each in of_rows)
        return TargetBatch(**vars(batch), promise=promise, progress=progress)
