"""A sample of a split mixes kinds, grows with its size, and does not depend on the order of the games."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentprm_core.datasets import games_to_table, write_table
from agentprm_core.draws import sample_of
from agentprm_core.errors import DataError
from agentprm_core.types import Game
from agentprm_core.worlds.alfworld.games import write_game
from agentprm_core.worlds.alfworld.households import generate_games
from agentprm_core.worlds.published import find_games

KINDS = ("clean", "cool", "heat", "look")
SORTED = [Game(f"toy/{kind}/{n:03}", "alfworld", "seen", kind, "take it", "{}") for kind in KINDS for n in range(50)]
"""As the tables are: one kind after the other."""


def test_a_sample_mixes_kinds():
    counted = Counter(game.kind for game in sample_of(SORTED, 40))
    assert set(counted) == set(KINDS)
    assert max(counted.values()) <= 20


@given(st.randoms(), st.integers(0, 200), st.integers(0, 200))
def test_a_smaller_sample_is_part_of_a_larger_whatever_the_order(shuffled, one, other):
    games = list(SORTED)
    shuffled.shuffle(games)
    small, large = sorted((one, other))
    assert set(sample_of(games, small)) <= set(sample_of(SORTED, large))
    assert [game.id for game in sample_of(games, small)] == sorted(game.id for game in sample_of(games, small))


@pytest.mark.parametrize("limit", [None, 200, 1000])
def test_without_a_limit_and_with_a_large_one_all_are_there(limit):
    assert sample_of(SORTED[::-1], limit) == SORTED


def test_a_table_of_games_is_sampled_so(tmp_path):
    write_table(games_to_table(SORTED), tmp_path / "seen.parquet")
    assert find_games("alfworld", tmp_path, "seen", 40) == sample_of(SORTED, 40)
    assert find_games("alfworld", tmp_path, "seen") == SORTED


def test_published_games_are_found_by_our_splits_and_by_theirs(tmp_path):
    for game in generate_games(3, 1, "seen"):
        write_game(replace(game, id=f"valid_{game.id}"), tmp_path)
    found = find_games("alfworld", tmp_path, "valid_seen")
    assert len(found) == 3
    assert find_games("alfworld", tmp_path, "seen") == found


@pytest.mark.parametrize(
    ("world", "splits"),
    [
        ("textcraft", "take one of adapt, agentgym, agentgym-test, agentgym-train, train, seen, unseen"),
        ("gsm8k", "is not one of train, held_out, test, seen, unseen"),
        ("mmlu", "is not one of dev, test, train, unseen"),
    ],
)
def test_a_split_that_there_is_not_is_answered_with_theirs_and_ours(tmp_path, world, splits):
    with pytest.raises(DataError, match=f"'nosuch'.* {splits}$"):
        find_games(world, tmp_path, "nosuch")
