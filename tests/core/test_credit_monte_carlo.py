"""Monte Carlo labels: worked examples, an independent slow version, the split, the file, and what bad input gets."""

import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentprm_core.credit.coverage import coverage_report
from agentprm_core.credit.monte_carlo import coverage_of_keys, label_monte_carlo, monte_carlo_q, returns
from agentprm_core.credit.split import validation_games
from agentprm_core.credit.turns import read_turns, turns_from_table
from agentprm_core.types import LABELS
from tests.core.corridor import table

FIVE = table(("g", 0, list("abcde"), True))


def q_of(rows, *, gamma=0.9, visit_key="history", **options):
    turns = turns_from_table(rows)
    return monte_carlo_q(turns, gamma=gamma, visit_key=visit_key, side_N=np.zeros(len(turns.turn_N), bool), **options)


def test_five_turns_by_hand():
    # won: returns 0.9^4 … 0.9^0, mapped by (x + 1) / 2
    by_hand = [0.82805, 0.8645, 0.905, 0.95, 1.0]
    np.testing.assert_allclose(q_of(FIVE).q_N, by_hand)
    lost = table(("g", 0, list("abcde"), False))
    np.testing.assert_allclose(q_of(lost).q_N, [0.17195, 0.1355, 0.095, 0.05, 0.0])
    np.testing.assert_allclose(q_of(FIVE, outcome="binary").q_N, [0.6561, 0.729, 0.81, 0.9, 1.0])
    np.testing.assert_allclose(q_of(lost, outcome="binary").q_N, 0)


def test_visits_are_merged_by_history_and_action():
    # the first turn is shared by all three, the second by two, "b" at another history is another key
    rows = table(("g", 0, ["a", "b"], True), ("g", 1, ["a", "b", "b"], False), ("g", 2, ["a", "c"], False))
    visits = q_of(rows, gamma=1)
    np.testing.assert_array_equal(visits.visits_N, [3, 2, 3, 2, 1, 3, 1])
    np.testing.assert_allclose(visits.q_N, [1 / 3, 1 / 2, 1 / 3, 1 / 2, 0, 1 / 3, 0])
    np.testing.assert_allclose(visits.variance_N, [2 / 9, 1 / 4, 2 / 9, 1 / 4, 0, 2 / 9, 0])


def test_the_state_key_merges_what_histories_keep_apart():
    rows = table(("g", 0, ["a", "b", "e"], True), ("g", 1, ["b", "a", "e"], False))
    world = rows.column_names.index("state_key")
    rows = rows.set_column(world, "state_key", pa.array(["s", "sa", "sab", "s", "sb", "sab"]))
    np.testing.assert_array_equal(q_of(rows).visits_N, 1)
    np.testing.assert_array_equal(q_of(rows, visit_key="state").visits_N, [1, 1, 2, 1, 1, 2])
    assert coverage_of_keys(turns_from_table(rows)) == {
        "coverage_history": 0.0,
        "visits_per_key_history": 1.0,
        "coverage_state": pytest.approx(1 / 3),
        "visits_per_key_state": pytest.approx(6 / 5),
    }


def replayed(rows: pa.Table, *at: int) -> pa.Table:
    methods = pa.array(["replayed" if n in at else "policy" for n in range(rows.num_rows)])
    return rows.set_column(rows.column_names.index("method"), "method", methods)


def test_replayed_turns_are_no_visits(tmp_path):
    """An expert's turns before a reset: the figures of all others are as if they had not been there."""
    rows = table(("g", 0, ["a", "b"], True), ("g", 1, ["a", "b", "b"], False), ("g", 2, ["a", "c"], False))
    visits = q_of(replayed(rows, 0, 1, 2), gamma=1)  # the whole first episode, and the second one's first turn
    np.testing.assert_array_equal(visits.visits_N, [0, 0, 0, 1, 1, 1, 1])
    np.testing.assert_allclose(visits.q_N, [1, 1, 0, 0, 0, 0, 0])
    np.testing.assert_allclose(visits.variance_N, 0)
    turns = turns_from_table(replayed(rows, 0, 2))
    assert coverage_of_keys(turns)["visits_per_key_history"] == pytest.approx(5 / 4)
    report = coverage_report(turns, visit_key="history", gamma=1)
    assert sum(row["turns"] for row in report["visits"]) == 5
    games = [table((f"g{n}", 0, ["a", "b"], n % 2 == 0)) for n in range(20)]
    pq.write_table(replayed(pa.concat_tables(games), *range(0, 40, 2)), tmp_path / "rollouts.parquet")
    how = {"gamma": 0.5, "visit_key": "history", "validation_share": 0.3, "seed": 1, "outcome": "binary"}
    figures = label_monte_carlo(tmp_path / "rollouts.parquet", tmp_path / "labels.parquet", **how)
    labels = pq.read_table(tmp_path / "labels.parquet")
    assert labels["visits"].to_pylist()[::2] == [0] * 20 and min(labels["visits"].to_pylist()[1::2]) > 0
    assert figures["turns"] == 40 and figures["q_mean"] == pytest.approx(labels["q"].to_numpy()[1::2].mean(), abs=1e-6)


def test_games_that_read_alike_are_one_key_but_not_across_the_split():
    rows = table(("g", 0, ["a"], True), ("h", 0, ["a"], False))
    turns = turns_from_table(rows)
    same = monte_carlo_q(turns, gamma=1, visit_key="history", side_N=np.array([False, False]))
    apart = monte_carlo_q(turns, gamma=1, visit_key="history", side_N=np.array([False, True]))
    assert same.q_N.tolist() == [0.5, 0.5]
    assert apart.q_N.tolist() == [1.0, 0.0]


def by_dictionary(episodes, gamma):
    """The same by the definition: a dictionary over the text of the history."""
    found = {}
    for _, _, actions, won in episodes:
        for t in range(len(actions)):
            g = gamma ** (len(actions) - 1 - t) * (1 if won else -1)
            found.setdefault(json.dumps(actions[: t + 1]), []).append((g + 1) / 2)
    rows = []
    for _, _, actions, _ in sorted(episodes, key=lambda e: e[:2]):
        for t in range(len(actions)):
            values = found[json.dumps(actions[: t + 1])]
            rows.append((np.mean(values), np.var(values), len(values)))
    return np.array(rows)


some_episodes = st.dictionaries(
    st.tuples(st.sampled_from("gh"), st.integers(0, 9)),
    st.tuples(st.lists(st.sampled_from("abc"), min_size=1, max_size=6), st.booleans()),
    min_size=1,
    max_size=12,
).map(lambda found: [(*where, *what) for where, what in found.items()])


@settings(max_examples=60)
@given(episodes=some_episodes, gamma=st.sampled_from([0.5, 0.95, 1.0]), data=st.data())
def test_equals_the_dictionary_in_any_row_order(episodes, gamma, data):
    rows = table(*episodes)
    rows = rows.take(data.draw(st.permutations(range(len(rows)))))
    visits = q_of(rows, gamma=gamma)
    np.testing.assert_allclose(
        np.stack([visits.q_N, visits.variance_N, visits.visits_N], 1), by_dictionary(episodes, gamma), atol=1e-12
    )


def some_games(n=40, episodes=3, seed=0):
    rng = np.random.default_rng(seed)
    return table(
        *(
            (f"game {g:03d}", e, [f"do {a}" for a in rng.integers(3, size=rng.integers(1, 9))], bool(rng.integers(2)))
            for g in range(n)
            for e in range(episodes)
        )
    )


def label(rollouts, out, **changes):
    options = dict(gamma=0.95, visit_key="history", validation_share=0.25, seed=3)
    return label_monte_carlo(rollouts, out, **options | changes)


def test_shards_in_one_sorted_file_out_with_the_same_bytes(tmp_path):
    rows = some_games()
    whole, folder = tmp_path / "episodes.parquet", tmp_path / "shards"
    folder.mkdir()
    pq.write_table(rows, whole)
    third = len(rows) // 3
    for i, start in enumerate((third, 2 * third, 0)):  # neither in order nor cut at episodes
        pq.write_table(rows.slice(start, third if start < 2 * third else None), folder / f"{i}.parquet")
    metrics = label(whole, tmp_path / "a.parquet")
    assert label(folder, tmp_path / "b.parquet") == metrics
    assert label(sorted(folder.iterdir()), tmp_path / "c.parquet") == metrics
    digests = {hashlib.sha256((tmp_path / f"{x}.parquet").read_bytes()).hexdigest() for x in "abc"}
    assert len(digests) == 1

    labels = pq.read_table(tmp_path / "a.parquet")
    assert labels.schema.equals(LABELS)
    assert labels.select(["game_id", "episode", "turn"]).equals(rows.select(["game_id", "episode", "turn"]))
    q = labels["q"].to_numpy()
    assert q.min() >= 0 and q.max() <= 1
    assert metrics["turns"] == metrics["train_turns"] + metrics["validation_turns"] == len(rows)
    assert metrics["q_std"] == pytest.approx(q.std(), abs=1e-6)
    sides = {(row["game_id"], row["split"]) for row in labels.select(["game_id", "split"]).to_pylist()}
    assert len(sides) == 40 == metrics["games"]


def test_a_games_side_does_not_depend_on_the_others():
    games = [f"game {i}" for i in range(2000)]
    side = validation_games(games, 0.15, 0)
    assert abs(side.mean() - 0.15) < 0.03
    np.testing.assert_array_equal(validation_games(games[::3], 0.15, 0), side[::3])
    assert (validation_games(games, 0.15, 1) != side).any()
    assert not validation_games(games, 0.0, 0).any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gamma": 0.0}, r"critic.gamma: 0.0 is not in \(0, 1\]"),
        ({"visit_key": "text"}, "critic.visit_key: 'text' is not one of history, state"),
        ({"outcome": "ternary"}, "critic.outcome: 'ternary' is not one of signed, binary"),
        ({"validation_share": 1.0}, r"rollout.validation_share: 1.0 is not in \[0, 1\)"),
        ({"validation_share": 1e-9}, "every game is for training; play more games or choose another seed"),
    ],
)
def test_wrong_parameters_by_name_and_no_file(tmp_path, changes, message):
    pq.write_table(some_games(), tmp_path / "episodes.parquet")
    with pytest.raises(ValueError, match=message):
        label(tmp_path / "episodes.parquet", tmp_path / "labels.parquet", **changes)
    assert not (tmp_path / "labels.parquet").exists()


def changed(rows, column, row, value):
    values = rows[column].to_pylist()
    values[row] = value
    return rows.set_column(rows.column_names.index(column), column, pa.array(values, rows[column].type))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (FIVE.slice(0, 0), "episodes: no rows"),
        (FIVE.drop_columns("state_key"), "lack the columns state_key"),
        (pa.concat_tables([FIVE, FIVE]), "game g, episode 0, turn 0: stands twice"),
        (FIVE.filter(pa.array([True, True, False, True, True])), "turn 3: turns of an episode must run"),
        (FIVE.slice(1), "turn 1: turns of an episode must run"),
        (FIVE.slice(0, 4), "turn 3: the last turn of its episode, yet not done"),
        (changed(FIVE, "done", 1, True), "turn 1: done before the episode's last turn"),
        (changed(FIVE, "reward", 2, 1.0), "turn 2: a reward before the episode's last turn"),
        (changed(FIVE, "reward", 4, 1.5), "turn 4: a reward outside of"),
    ],
)
def test_rows_that_are_not_whole_episodes(rows, message):
    with pytest.raises(ValueError, match=message):
        turns_from_table(rows)


def test_no_shards(tmp_path):
    with pytest.raises(FileNotFoundError, match="no Parquet file of episodes there"):
        read_turns(tmp_path)
    with pytest.raises(FileNotFoundError, match="absent"):
        read_turns(tmp_path / "absent.parquet")


def test_returns_need_no_key():
    np.testing.assert_allclose(returns(turns_from_table(FIVE), gamma=1), 1)
