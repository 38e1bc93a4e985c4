"""Episodes cut at a drawn length: the draw looks at no episode, and nothing after the cut is read."""

from collections import Counter, defaultdict
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentprm_core.credit.cutting import Cut
from agentprm_core.credit.expert_and_learner import RESAMPLED, assemble_inverse
from agentprm_core.types import Episode, Turn
from tests.core.corridor import table

CUT = Cut(defaultdict(lambda: 6), seed=1)
NAMES = [(f"game {n}", k) for n in range(30) for k in (0, 1)]


def episode(length: int, start: int = 0, index: int = 0) -> Episode:
    turns = tuple(Turn("here", f"go {t}", ("look",), True, f"{t}") for t in range(length))
    return Episode("game", index, 0, turns, won=length < 6, start=start)


@settings(max_examples=50)
@given(st.integers(1, 40), st.integers(0, 39), st.integers(0, 99), st.integers(1, 40))
def test_a_decided_turn_stays_and_no_more_than_the_episode_may_have(most, start, index, length):
    start = min(start, most - 1, length - 1)
    cut = Cut({"game": most}, seed=3)
    kept = cut.episode(episode(length, start, index), 1)
    assert start < cut.length(1, "game", index, start) <= most
    assert start < kept.length == min(length, cut.length(1, "game", index, start))
    assert kept.turns == episode(length).turns[: kept.length] and kept.start == start


def test_lengths_are_even_and_say_nothing_of_each_other():
    drawn = [CUT.length(dataset, f"game {n}", 0, 0) for dataset in (0, 1) for n in range(3000)]
    counts = Counter(drawn)
    assert set(counts) == {1, 2, 3, 4, 5, 6} and all(abs(count / 6000 - 1 / 6) < 0.02 for count in counts.values())
    both = Counter(zip(drawn[:3000], drawn[3000:]))
    assert all(abs(count / 3000 - 1 / 36) < 0.015 for count in both.values()) and len(both) == 36
    assert drawn != [replace(CUT, seed=2).length(dataset, f"game {n}", 0, 0) for dataset in (0, 1) for n in range(3000)]


def rows(folder, endings, *, cut=CUT):
    """INVERSE of demonstrations and rollouts whose actions after each cut are ``endings``, as many as it says."""

    def written(dataset, name):
        path, episodes = folder / f"{name}.parquet", []
        for game, index in NAMES:
            kept = CUT.length(dataset, game, index, 0)
            episodes.append((game, index, [f"{game} {t}" for t in range(kept)] + endings(game, index), True))
        pq.write_table(table(*episodes), path)
        return path, episodes

    demos, shown = written(0, "demos")
    sampled = [(game, e, t, "look", "") for game, e, actions, _ in shown for t in range(1, len(actions))]
    resampled = pa.table(dict(zip(RESAMPLED.names, zip(*sampled))), schema=RESAMPLED)
    learner = [written(1, "learner")[0]]
    return assemble_inverse(demos, learner, resampled, validation_share=0.0, seed=1, cut=cut)


def test_what_comes_after_the_cut_changes_no_row(tmp_path):
    """An episode that stops at its cut for good, and one that goes on for longer and is lost, are the same."""
    ended = rows(tmp_path, lambda game, index: [])
    assert rows(tmp_path, lambda game, index: ["x", "y"][: 1 + index]).equals(ended)
    assert not rows(tmp_path, lambda game, index: ["x", "y"], cut=None).equals(ended)
    last = ended.filter(ended["terminal"])
    assert last.num_rows == 2 * len(NAMES) and last["next_action"].null_count == last.num_rows


def test_the_kept_turns_follow_each_other(tmp_path):
    found = rows(tmp_path, lambda game, index: ["x"]).to_pylist()
    for dataset in (0, 1):
        for game, index in NAMES:
            own = [row for row in found if (row["dataset"], row["game_id"], row["episode"]) == (dataset, game, index)]
            assert [row["turn"] for row in own] == list(range(CUT.length(dataset, game, index, 0)))
            assert [row["terminal"] for row in own] == [False] * (len(own) - 1) + [True]
            if dataset:
                assert [row["next_action"] for row in own] == [*(row["action"] for row in own[1:]), None]


@pytest.mark.parametrize("start", [5, 6, 9])
def test_an_episode_that_starts_where_it_may_go_no_further_keeps_one_turn(start):
    assert CUT.length(1, "game", 0, start) == start + 1
