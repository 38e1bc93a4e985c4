"""BM25 as Lucene computes it (k1 0.9, b 0.4), over a catalogue: which products a query finds, best first.

Robertson and Zaragoza 2009, eq. 3.15 with Lucene's idf and its document lengths of one byte:
``Σ_t idf(t) · tf / (tf + k1 (1 − b + b · len / avg))``, ``idf = ln(1 + (N − n + ½) / (n + ½))``.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from agentprm_core.worlds.webshop.analysis import terms

K1, B = 0.9, 0.4
LIMIT = 50
"""Products a search returns at most."""


class Index:
    """``texts`` of the products, and their ``ids``, which decide between equal scores."""

    def __init__(self, texts: Sequence[str], ids: Sequence[str]) -> None:
        by_id = sorted(range(len(texts)), key=ids.__getitem__)
        self._by_id = np.array(by_id, dtype=np.int64)
        counts = [Counter(terms(texts[number])) for number in by_id]
        lengths = [sum(count.values()) for count in counts]
        average = sum(lengths) / max(len(lengths), 1)
        postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for place, count in enumerate(counts):
            for term, times in count.items():
                postings[term].append((place, times))
        norms = [K1 * (1 - B + B * one_byte(length) / average) for length in lengths]
        self._postings: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        """Term → places of products in ``_by_id``, and what the term adds to their scores."""
        for term, found in postings.items():
            idf = math.log(1 + (len(counts) - len(found) + 0.5) / (len(found) + 0.5))
            scores = np.array([idf * times / (times + norms[place]) for place, times in found])
            self._postings[term] = (np.array([place for place, _ in found]), scores)

    def search(self, query: str) -> tuple[int, ...]:
        """The numbers of at most :data:`LIMIT` products that share a term with ``query``, best first."""
        places, added = [], []
        for term, times in Counter(terms(query)).items():
            if term in self._postings:
                of_term, scores = self._postings[term]
                places.append(of_term)
                added.append(scores if times == 1 else times * scores)
        if not places:
            return ()
        total = np.bincount(np.concatenate(places), np.concatenate(added))
        found = np.flatnonzero(total)
        best = found[np.argsort(-total[found], kind="stable")[:LIMIT]]  # equal scores stay in the order of ids
        return tuple(self._by_id[best].tolist())


def one_byte(length: int) -> int:
    """A document's length after Lucene's ``SmallFloat``: exact below 40, then ``length − 24`` keeps 4 bits."""
    if length < 40:
        return length
    shift = max((length - 24).bit_length() - 4, 0)
    return ((length - 24) >> shift << shift) + 24
