"""The key-value cache of many conversations: one preallocated tensor, a slot for each.

A slot holds the keys and values of the tokens read so far. It grows at its end, is cut back to any length at no cost
(rows past the length are never read), and is forked by copying its rows: those alone that the two do not share already,
as slots do that were forked from one another before.

Shapes: ``G`` layers, ``S`` slots, ``C`` context, ``K`` key-value heads, ``D`` head size, ``N`` tokens of one call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


class KeyValueCache:
    """``rows_GSCxKD``: for every layer, slot and position the key (x = 0) and the value (x = 1)."""

    def __init__(
        self,
        *,
        layers: int,
        slots: int,
        context: int,
        kv_heads: int,
        head_dim: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.slots, self.context = slots, context
        self.rows = torch.zeros(layers, slots, context, 2, kv_heads, head_dim, device=device, dtype=dtype)
        self.lengths = [0] * slots
        # the number of the write that each row's content comes from: rows of one number are equal
        self._writes_SC, self._writes = np.zeros((slots, context), dtype=np.int64), 0
        self._flat = self.rows.view(layers, slots * context, 2, kv_heads, head_dim)
        # numpy copies a few rows in two thirds of the time that torch takes to
        self._copied: Any = self.rows.view(torch.uint8).numpy() if self.rows.device.type == "cpu" else self.rows
        self._free = list(range(slots))[::-1]

    @property
    def free(self) -> int:
        return len(self._free)

    def open(self) -> int:
        """An empty slot. Raises RuntimeError when all are taken."""
        if not self._free:
            raise RuntimeError(f"all {self.slots} cache slots are taken: close one first, or make more")
        slot = self._free.pop()
        self.lengths[slot] = 0
        return slot

    def close(self, slot: int) -> None:
        """Give ``slot`` back."""
        self._free.append(slot)

    def cut(self, slot: int, length: int) -> None:
        """Forget all but the first ``length`` tokens of ``slot``."""
        if length > self.lengths[slot]:
            raise ValueError(f"slot {slot} holds {self.lengths[slot]} tokens, cannot be cut to {length}")
        self.lengths[slot] = length

    def copy(self, source: int, target: int, length: int) -> None:
        """Make ``target`` hold the first ``length`` tokens of ``source``."""
        if length > self.lengths[source]:
            raise ValueError(f"slot {source} holds {self.lengths[source]} tokens, not {length}")
        unlike = self._writes_SC[source, :length] != self._writes_SC[target, :length]
        if unlike.any():
            shared = int(unlike.argmax())
            self._copied[:, target, shared:length] = self._copied[:, source, shared:length]
            self._writes_SC[target, shared:length] = self._writes_SC[source, shared:length]
        self.lengths[target] = length

    def claim(self, slots_N: np.ndarray, rows_N: np.ndarray) -> torch.Tensor:
        """The places [N] of rows about to be written in every layer: slot × C + row. What they held is forgotten."""
        self._writes_SC[slots_N, rows_N] = np.arange(len(rows_N)) + self._writes + 1
        self._writes += len(rows_N)
        return torch.from_numpy(slots_N * self.context + rows_N).to(self.rows.device)

    def write(self, layer: int, places_N: torch.Tensor, keys_NKD: torch.Tensor, values_NKD: torch.Tensor) -> None:
        """Store the keys and values of tokens; ``places_N`` are :meth:`claim`'s."""
        self._flat[layer].index_copy_(0, places_N, torch.stack((keys_NKD, values_NKD), 1))

    def read(self, layer: int, slots: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [slots, K, length, D] of the first ``length`` positions."""
        rows = self.rows[layer, :, :length].index_select(0, slots)
        return rows[:, :, 0].transpose(1, 2), rows[:, :, 1].transpose(1, 2)


def slot_bytes(*, layers: int, context: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
    """Memory of one slot."""
    return layers * context * 2 * kv_heads * head_dim * dtype.itemsize
