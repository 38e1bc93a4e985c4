"""What might have been said in an action's place: the tokens among which play drew each of its tokens.

Where play draws from the admissible commands alone, it renormalises over them. An update that reads probabilities over
the whole vocabulary instead can lower those of the actions played by raising those of commands that are never
admissible, and nothing that is played tells it so: play then draws from what little is left of the rest.

Shapes: ``L`` tokens of an action, ``P`` tokens of a batch, ``V`` vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from agentprm_core.policy.decoding import Constrained
from agentprm_core.policy.drawing import EVERYTHING, AllBut, Allowed, among
from agentprm_core.training.attention import logits_of
from agentprm_core.training.columns import TrainColumns, Values
from agentprm_core.training.packing import Batch
from agentprm_core.types import Turn


@dataclass(frozen=True)
class AmongColumns(TrainColumns):
    """Of rows with actions that were drawn."""

    among: Values
    """On their tokens, the number of the set that each was drawn from (:class:`Choices`); elsewhere, and where nobody
    asks, 0, which is the whole vocabulary."""


class Choices:
    """Sets of tokens, each under a number; 0 is the whole vocabulary."""

    def __init__(self, sets: Sequence[Allowed] = (EVERYTHING,)) -> None:
        self._sets = list(sets)
        self._numbers = {allowed: number for number, allowed in enumerate(self._sets)}

    @classmethod
    def from_json(cls, said: Sequence[Mapping]) -> Choices:
        """Those that :meth:`to_json` wrote."""
        return cls([AllBut(tuple(one["tokens"])) if one["but"] else tuple(one["tokens"]) for one in said])

    def to_json(self) -> list[dict]:
        """For another process."""
        return [
            {"but": True, "tokens": list(allowed.tokens)}
            if isinstance(allowed, AllBut)
            else {"but": False, "tokens": list(allowed)}
            for allowed in self._sets
        ]

    def of(self, turn: Turn, tokens: Sequence[int], decoding: Constrained | None) -> np.ndarray:
        """(L,) the number of the set that each of ``tokens`` was drawn from.

        ``tokens`` are those of an action at the turn, its stop token the last. The whole vocabulary where play is free
        (``decoding`` None), and for an action that is not admissible.
        """
        drawn = None if decoding is None else decoding.along(turn.admissible, tokens)
        if drawn is None:
            return np.zeros(len(tokens), np.int64)
        return np.array([self._number(allowed) for allowed in drawn])

    def left_open(self, number_L: np.ndarray) -> np.ndarray:
        """(L,) bool: whether the set has more than one token."""
        sets = (self._sets[number] for number in number_L)
        return np.array([isinstance(allowed, AllBut) or len(allowed) > 1 for allowed in sets])

    def logits(self, model: torch.nn.Module, batch: Batch[AmongColumns], where_N: torch.Tensor) -> torch.Tensor:
        """(P, V) as :func:`agentprm_core.training.attention.logits_of`, −inf where a token could not be drawn."""
        return self.among(logits_of(model, batch, where_N), batch.columns.among[where_N])

    def among(self, logits_PV: torch.Tensor, number_P: torch.Tensor) -> torch.Tensor:
        """(P, V): −inf where a token could not be drawn."""
        if not number_P.any():
            return logits_PV
        numbers_U, set_P = number_P.unique(return_inverse=True)  # few sets come up, and many times
        allowed_UV = among(
            [self._sets[int(number)] for number in numbers_U.tolist()],
            logits_PV.new_zeros(len(numbers_U), logits_PV.shape[1]),
        )
        return logits_PV + allowed_UV[set_P]

    def _number(self, allowed: Allowed) -> int:
        """Of a set of tokens, known or new."""
        if allowed not in self._numbers:
            self._numbers[allowed] = len(self._sets)
            self._sets.append(allowed)
        return self._numbers[allowed]
