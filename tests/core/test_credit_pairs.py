"""Pairs for the relative loss: by hand, ties, visits, sides, and against all pairs by a slow loop."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentprm_core.credit.monte_carlo import label_monte_carlo
from agentprm_core.credit.pairs import action_pairs, relative_pairs
from agentprm_core.types import PAIRS
from tests.core.corridor import table


def labelled(tmp_path, *episodes, **options):
    pq.write_table(table(*episodes), tmp_path / "episodes.parquet")
    defaults = dict(gamma=1.0, key="history", discount_from="end", validation_share=0.0, seed=0)
    label_monte_carlo(tmp_path / "episodes.parquet", tmp_path / "labels.parquet", **defaults | options)
    return tmp_path / "episodes.parquet", tmp_path / "labels.parquet"


def test_by_hand(tmp_path):
    paths = labelled(
        tmp_path,
        ("g", 0, ["a", "c"], True),
        ("g", 1, ["a", "d"], False),
        ("g", 2, ["b"], False),
        ("g", 3, ["e"], False),
    )
    # at the start: a ½, b 0, e 0; after a: c 1, d 0
    pairs, counts = relative_pairs(*paths, key="history")
    assert pairs.schema.equals(PAIRS)
    assert [tuple(row.values()) for row in pairs.to_pylist()] == [
        ("g", 0, 0, "a", "b", 0.5, 0.0),
        ("g", 0, 0, "a", "e", 0.5, 0.0),
        ("g", 0, 1, "c", "d", 1.0, 0.0),
    ]
    assert counts == {"states": 2, "pairs": 3, "ties": 1}
    none, counts = relative_pairs(*paths, key="history", margin=0.5)
    assert none["chosen"].to_pylist() == ["c"] and counts == {"states": 2, "pairs": 1, "ties": 3}
    none, counts = relative_pairs(*paths, key="history", min_visits=2)
    assert len(none) == 0 and counts == {"states": 0, "pairs": 0, "ties": 0}


def test_games_that_read_alike_pair_up_only_on_one_side(tmp_path):
    games = [("g", 0, ["a"], True), ("h", 0, ["b"], False)]
    assert len(relative_pairs(*labelled(tmp_path, *games), key="history")[0]) == 1
    apart = next(seed for seed in range(100) if sides(tmp_path, games, seed) == ["train", "validation"])
    assert len(relative_pairs(*labelled(tmp_path, *games, validation_share=0.5, seed=apart), key="history")[0]) == 0


def sides(tmp_path, games, seed):
    try:
        _, labels = labelled(tmp_path, *games, validation_share=0.5, seed=seed)
    except ValueError:  # both games on one side
        return []
    return pq.read_table(labels)["split"].to_pylist()


rows = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30
)  # (state, action), with q and visits decided by them


@settings(max_examples=60, deadline=None)
@given(rows=rows, margin=st.sampled_from([0.0, 0.2]), min_visits=st.integers(1, 3))
def test_equals_the_slow_loop(rows, margin, min_visits):
    q = {(s, a): ((7 * s + 3 * a) % 5) / 5 for s in range(4) for a in range(4)}
    visits = {sa: rows.count(sa) for sa in rows}
    state, action = (np.array(x, dtype=np.uint64) for x in zip(*rows))
    pairs, counts = action_pairs(
        state,
        10 * state + action,
        np.array([q[sa] for sa in rows]),
        np.array([visits[sa] for sa in rows]),
        margin=margin,
        min_visits=min_visits,
    )
    tried = sorted({sa for sa in rows if visits[sa] >= min_visits})
    expected = {(c, r) for c in tried for r in tried if c[0] == r[0] and q[c] - q[r] > margin}
    got = {(rows[c], rows[r]) for c, r in pairs.select("chosen", "rejected").iter_rows()}
    assert got == expected and len(pairs) == len(expected)
    assert all(rows[at][0] == rows[c][0] for at, c in pairs.select("at", "chosen").iter_rows())
    several = [[sa for sa in tried if sa[0] == s] for s in range(4)]
    assert counts["states"] == sum(len(x) > 1 for x in several)
    assert counts["pairs"] + counts["ties"] == sum(len(x) * (len(x) - 1) // 2 for x in several)


def test_bad_input(tmp_path):
    episodes, labels = labelled(tmp_path, ("g", 0, ["a"], True))
    with pytest.raises(ValueError, match="margin -1 must not be negative"):
        relative_pairs(episodes, labels, key="history", margin=-1)
    pq.write_table(table(("g", 0, ["a", "b"], True)), episodes)
    with pytest.raises(ValueError, match=r"labels.parquet: 1 labels that are not those of these 2 turns"):
        relative_pairs(episodes, labels, key="history")
