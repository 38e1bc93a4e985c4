"""Promise and progress: the model learns from its own scores through GAE targets, estimated anew each epoch (paper B).

    L = ½ (M_t − Q̂_t)² + β ((M_t − M_{t−1}) − Â_t)²

M_t = Q_φ(s_t, a_t) in (0, 1), after the action of turn t; Q̂ and Â come from
:func:`agentprm_core.credit.gae.gae_targets` with M frozen at the start of the epoch. M before the first turn is 0, in
the targets and in the loss. The gradient runs through both M of the difference.

Shapes: ``M`` scored actions of a pack, its rows' turns in order; ``T`` turns of one row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from agentprm_core.credit.gae import gae_targets
from agentprm_core.datasets import whole
from agentprm_core.prm.losses import prm_objective
from agentprm_core.prm.score import score_rows
from agentprm_core.training.packing import Row
from agentprm_core.training.trainer import Batches, EpisodeTrainer


class PromiseProgressTrainer(EpisodeTrainer):
    """Sets the targets of every batch from the model as it was when the epoch began."""

    def __init__(self, prm, rows: Sequence[Row], won: Sequence[bool], settings, scratch: Path) -> None:
        objective = prm_objective(self.loss, settings.observation_weight)
        super().__init__(prm, rows, objective, settings, scratch)
        self._won = np.array(won, dtype=np.float32)
        self._targets: list[tuple[np.ndarray, np.ndarray]] = []

    def beside(self) -> dict:
        return {"won": self._won.tolist()}

    @classmethod
    def again(cls, model, rows, settings, scratch: Path, *, won: Sequence[bool]) -> PromiseProgressTrainer:
        return cls(model, rows, won, settings, scratch)

    def decided_by(self) -> list[Mapping[str, torch.Tensor]]:
        return [*super().decided_by(), {"won": torch.from_numpy(self._won)}]

    def step_batches(self, epoch_iterator, num_batches: int) -> Batches:
        step = self.state.global_step
        group = self.settings.accumulation * self.args.world_size
        steps_an_epoch = -(-self.train_dataset.first_epoch // group)
        if not self._targets or step % steps_an_epoch == 0:
            self._targets = self._estimate(step - step % steps_an_epoch)
        return [self._with_targets(batch) for batch in super().step_batches(epoch_iterator, num_batches)]

    def loss(self, logit_M: torch.Tensor, batch: dict) -> torch.Tensor:
        """Σ over turns of ½ (M − Q̂)² + β ((M − M_prev) − Â)²."""
        q_M = logit_M.sigmoid()
        row_M = batch["row"][batch["weight"] > 0]
        same_row_M = F.pad(row_M[1:] == row_M[:-1], (1, 0))
        before_M = F.pad(q_M[:-1], (1, 0)) * same_row_M
        promise_M = (q_M - batch["promise"]).square() / 2
        progress_M = (q_M - before_M - batch["progress"]).square()
        return (promise_M + self.settings.beta * progress_M).sum()

    def _estimate(self, epoch_start: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """(Q̂, Â) of every row from the weights of step ``epoch_start``; kept in scratch, for a run that is killed
        within the epoch cannot score with those weights again."""
        kept = Path(self.args.output_dir) / f"scores-{epoch_start}.npy"
        if not kept.exists():
            scores = score_rows(self.model, self.rows, self.settings.batch_tokens)
            if self.args.should_save:
                with whole(kept) as aside:
                    np.save(aside, np.concatenate(scores))
        else:
            ends = np.cumsum([int(row.columns["weight"].sum()) for row in self.rows])
            scores = np.split(np.load(kept), ends[:-1])
        return [self._row_targets(m_T, won) for m_T, won in zip(scores, self._won)]

    def _row_targets(self, m_T: np.ndarray, won: float) -> tuple[np.ndarray, np.ndarray]:
        targets = gae_targets(
            torch.from_numpy(m_T)[None],
            torch.tensor([len(m_T)]),
            torch.tensor([won]),
            gamma=self.settings.gamma,
            lam=self.settings.lam,
        )
        return targets.q_BT[0].numpy(), targets.advantage_BT[0].numpy()

    def _with_targets(self, batch: dict) -> dict:
        rows = [self._targets[i] for i in batch["rows"].tolist()]
        for name, column in (("promise", 0), ("progress", 1)):
            batch[name] = torch.from_numpy(np.concatenate([row[column] for row in rows])).to(batch["rows"].device)
        return batch
