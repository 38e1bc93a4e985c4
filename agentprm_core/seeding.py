"""Where every random number comes from: hashes of what is drawn for, never a stream that several share.

So an episode, a sample or a side of a split is the same whatever else is drawn beside it, in whatever order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np


def episode_seed(seed: int, *names: str | int) -> int:
    """A seed of 63 bits from ``seed`` and what names the episode, the same on every machine."""
    digest = hashlib.blake2b(repr((seed, *names)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def unit(name: str, seed: int) -> float:
    """A number in [0, 1) from a name and the seed, the same on every machine."""
    digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64


def uniforms(keys: Sequence[tuple[int, ...]] | np.ndarray) -> np.ndarray:
    """One number in [0, 1) a key, a hash of its integers alone (SplitMix64, Steele et al. 2014)."""
    columns = np.array(keys, dtype=np.int64).T.astype(np.uint64)
    state = np.zeros(columns.shape[1], dtype=np.uint64)
    for column in columns:
        state = (state ^ column) + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53
