"""Muon for the matrices of a from-scratch model, AdamW for its embeddings and norms, as one optimizer.

Muon (Jordan et al. 2024, ``torch.optim.Muon``) makes each matrix's momentum orthogonal before it is applied. Its
authors report AdamW's loss in fewer tokens. Embeddings are no linear maps and stay with AdamW.
"""

from __future__ import annotations

from torch import nn
from torch.optim import AdamW, Muon, Optimizer

MATRIX_RATE = 10.0
"""Learning rate of the matrices over that of the rest: an orthogonal update has another scale than Adam's."""


class MuonWithAdamW(Optimizer):
    """Both optimizers behind one list of parameter groups and one state, so that schedulers and resuming see one."""

    def __init__(self, model: nn.Module, learning_rate: float, weight_decay: float) -> None:
        embeddings = {id(p) for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
        trained = [p for p in model.parameters() if p.requires_grad]
        matrices = [p for p in trained if p.ndim == 2 and id(p) not in embeddings and min(p.shape) > 1]
        chosen = {id(p) for p in matrices}
        rest = [p for p in trained if id(p) not in chosen]
        self._muon = Muon(matrices, lr=learning_rate * MATRIX_RATE, weight_decay=weight_decay, momentum=0.95)
        self._adamw = AdamW(rest, lr=learning_rate, weight_decay=weight_decay)
        super().__init__([*self._muon.param_groups, *self._adamw.param_groups], {})
        self._share()

    def step(self, closure=None) -> None:
        self._muon.step()
        self._adamw.step()

    def load_state_dict(self, state_dict: dict) -> None:
        super().load_state_dict(state_dict)
        self._share()

    def _share(self) -> None:
        """Let both work on this optimizer's groups and state: loading a state replaces them."""
        self._muon.param_groups, self._adamw.param_groups = self.param_groups[:1], self.param_groups[1:]
        self._muon.state = self._adamw.state = self.state
