"""Muon for the matrices of a from-scratch model, AdamW for its embeddings and norms, as one optimizer.

Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon) makes each matrix's momentum orthogonal before it
is applied. Its authors report AdamW's loss in fewer tokens. Embeddings are no linear maps and stay with AdamW.

    M ← μ M + (1 − μ) G,   W ← W − η √max(1, R/C) · NS((1 − μ) G + μ M)        for W of R rows and C columns

Differs from ``torch.optim.Muon`` in two ways, both for speed. It orthogonalises in the precision that the device is
fast in, and matrices of one shape go through it together.

Shapes: ``B`` matrices of one shape, ``R`` rows, ``C`` columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

MATRIX_RATE = 10.0
"""Learning rate of the matrices over that of the rest: an orthogonal update has another scale than Adam's."""
MOMENTUM = 0.95
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic iteration, as published: they raise small singular values fastest."""
ITERATIONS = 5
EPSILON = 1e-7


class MuonWithAdamW(Optimizer):
    """Both optimizers behind one list of parameter groups and one state, so that resuming sees one.

    The first group are Muon's matrices, the second is AdamW's.
    """

    def __init__(self, model: nn.Module, learning_rate: float, precision: str = "float32") -> None:
        """``precision``: of the training, ``float32`` or ``bfloat16``."""
        embeddings = {id(p) for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
        trained = [p for p in model.parameters() if p.requires_grad]
        matrices = [p for p in trained if p.ndim == 2 and id(p) not in embeddings and min(p.shape) > 1]
        chosen = {id(p) for p in matrices}
        self._adamw = AdamW([p for p in trained if id(p) not in chosen], lr=learning_rate, weight_decay=0.0, fused=True)
        of_matrices = {"params": matrices, "lr": learning_rate * MATRIX_RATE}
        super().__init__([of_matrices, *self._adamw.param_groups], {})
        self._precision = precision
        self._share()

    @torch.no_grad()
    def step(self, closure=None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]: no closures here
        matrices = self.param_groups[0]
        stepped = [p for p in matrices["params"] if p.grad is not None]
        step_matrices(stepped, self.state, matrices["lr"], self._precision)
        self._adamw.step()

    def load_state_dict(self, state_dict: dict) -> None:
        super().load_state_dict(state_dict)
        self._share()

    def _share(self) -> None:
        """Let AdamW work on this optimizer's groups and state: loading a state replaces them."""
        self._adamw.param_groups, self._adamw.state = self.param_groups[1:], self.state


def step_matrices(
    matrices: Sequence[nn.Parameter], state: dict, learning_rate: float, precision: str = "float32"
) -> None:
    """One step of Muon. ``state[p]["momentum_buffer"]`` is each matrix's momentum, ``precision`` the training's."""
    together: dict[tuple, list[tuple[nn.Parameter, torch.Tensor]]] = {}
    for p in matrices:
        own, gradient = state[p], p.grad
        assert gradient is not None, "only what has one is stepped"
        if "momentum_buffer" not in own:
            own["momentum_buffer"] = torch.zeros_like(gradient)
        momentum = own["momentum_buffer"].lerp_(gradient, 1 - MOMENTUM)
        update = gradient.lerp(momentum, MOMENTUM)
        wide = update.mT if p.shape[0] > p.shape[1] else update
        together.setdefault((wide.shape, p.device), []).append((p, wide))
    for (_, device), several in together.items():
        update_BRC = orthogonalised(torch.stack([wide for _, wide in several]).to(fast_precision(device, precision)))
        for (p, _), wide in zip(several, update_BRC):
            rows, columns = p.shape
            update = wide.mT if rows > columns else wide
            p.add_(update.to(p.dtype), alpha=-learning_rate * max(1, rows / columns) ** 0.5)


def orthogonalised(wide_BRC: torch.Tensor) -> torch.Tensor:
    """Each matrix with its singular values brought near 1 (between about 0.7 and 1.2) by Newton-Schulz iterations
    X ← a X + (b XXᵀ + c (XXᵀ)²) X. R ≤ C, so that XXᵀ is the smaller product."""
    a, b, c = COEFFICIENTS
    x_BRC = wide_BRC / wide_BRC.norm(dim=(1, 2), keepdim=True).clamp(min=EPSILON)
    for _ in range(ITERATIONS):
        gram_BRR = x_BRC @ x_BRC.mT
        gram_BRR = torch.baddbmm(gram_BRR, gram_BRR, gram_BRR, beta=b, alpha=c)
        x_BRC = torch.baddbmm(x_BRC, gram_BRR, x_BRC, beta=a)
    return x_BRC


def fast_precision(device: torch.device, precision: str = "float32") -> torch.dtype:
    """What matrix products are fast in: bfloat16 on a GPU that has it and where the training is in it, else float32.

    A CPU is float32's: without instructions for bfloat16, as most desktops' before 2023, products in it take more than
    ten times as long. The parameter and the kind of device decide and not what a CPU can do, or the weights would
    depend on which CPU a run is on.
    """
    if precision == "bfloat16" or (device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)):
        return torch.bfloat16
    return torch.float32
