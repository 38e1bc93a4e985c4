"""Datasets appear whole or not at all, and rows become episodes again."""

import pyarrow as pa
import pytest

from agentprm_core.datasets import atomic_write, episodes_from_table, episodes_to_table, read_table, write_table
from agentprm_core.types import EPISODES, Episode, Turn


def episode(game: str, index: int, length: int, won: bool) -> Episode:
    turns = tuple(Turn(f"o{t}", f"a{t}", ("a0", "a1"), t < 2, f"k{t}") for t in range(length))
    return Episode(game, index, 7, turns, won)


EPISODES_MADE = [episode("b", 0, 2, True), episode("a", 1, 3, False), episode("a", 0, 1, True)]


def table() -> pa.Table:
    return episodes_to_table(EPISODES_MADE, iteration=1, method="rollout", policy="d")


def test_rows_are_sorted_and_reward_stands_at_the_end():
    rows = table().select(["game_id", "episode", "turn", "reward", "done"]).to_pylist()
    assert [tuple(r.values()) for r in rows] == [
        ("a", 0, 0, 1.0, True),
        ("a", 1, 0, 0.0, False),
        ("a", 1, 1, 0.0, False),
        ("a", 1, 2, 0.0, True),
        ("b", 0, 0, 0.0, False),
        ("b", 0, 1, 1.0, True),
    ]


def test_episodes_survive_the_way_through_a_table():
    assert list(episodes_from_table(table())) == sorted(EPISODES_MADE, key=lambda e: (e.game_id, e.index))


def test_more_episodes_than_one_block():
    many = [episode(f"g{i:05d}", 0, 1 + i % 3, i % 2 == 0) for i in range(2500)]
    assert list(episodes_from_table(episodes_to_table(many, iteration=0, method="m", policy="d"))) == many


def test_the_same_table_gives_the_same_bytes(tmp_path):
    write_table(table(), tmp_path / "a.parquet")
    write_table(table(), tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_a_failed_write_leaves_nothing_and_spares_what_was_there(tmp_path):
    out = tmp_path / "out"
    with atomic_write(out) as aside:
        aside.mkdir()
        (aside / "x").write_text("old")
    with pytest.raises(RuntimeError), atomic_write(out) as aside:
        aside.mkdir()
        (aside / "x").write_text("half")
        raise RuntimeError
    assert (out / "x").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_lost_column_is_named(tmp_path):
    write_table(table().drop_columns(["reward"]), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"x\.parquet: lacks the columns reward"):
        read_table(tmp_path / "x.parquet", EPISODES)
    with pytest.raises(FileNotFoundError, match="no Parquet file there"):
        read_table(tmp_path / "none", EPISODES)
