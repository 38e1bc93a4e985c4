"""The placebo: what a PRM learns when nothing can be learnt. It is trained alike, on labels that belong to other turns.

A PRM that is worth something chooses better than its placebo, which has read the same texts for as many steps.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from agentprm_core.prm.rows import Labelled


def permuted(labelled: Sequence[Labelled], seed: int) -> list[Labelled]:
    """The same episodes with all labels, those of their own turns and those of the actions tried beside them, in one
    random order over all games.

    The labels as a whole stay what they are (their mean, their spread, how many there are); which turn, action, episode
    or game has which of them follows from the seed alone. Turns without a label stay without one. Give it the training
    side alone: what a PRM is validated on keeps its labels.
    """
    known = [~np.isnan(item.q) for item in labelled]
    pool = [float(q) for item, known_T in zip(labelled, known) for q in item.q[known_T]]
    pool += [tried.q for item in labelled for tried in item.tried]
    random.Random(seed).shuffle(pool)
    drawn, found = iter(pool), []
    for item, known_T in zip(labelled, known):
        q_T = item.q.copy()
        q_T[known_T] = [next(drawn) for _ in range(int(known_T.sum()))]
        found.append(replace(item, q=q_T, tried=[replace(tried, q=next(drawn)) for tried in item.tried]))
    return found
