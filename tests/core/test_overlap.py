"""How far demonstrations, rollouts and searches overlap, and that the gate stops draws that know of each other."""

import random
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from scipy.stats import hypergeom

from agentprm_core.draws import demonstrated, share_of
from agentprm_core.overlap import game_ids, of_rollouts, of_search, share, validation_side
from agentprm_core.suites import LEAST_CHANCE, demonstrated_suite
from agentprm_core.types import Episode, Game, Turn
from tests.core.given import given, know, write_episodes

GAMES = [Game(f"game/{n:03}", "toy", "train", "take", "take it", "{}") for n in range(400)]
TURN = Turn("a room", "look", ("look",), True, "s")


def episodes(games) -> list[Episode]:
    return [Episode(game.id, 0, 0, (TURN, TURN), True) for game in games]


@pytest.fixture
def campaign(tmp_path):
    """``campaign(shown, *played)``: what an iteration is given after these games were demonstrated and played."""

    def made(shown, *played):
        data = know(given(tmp_path, iteration=len(played)), training_games=GAMES)
        write_episodes(data.folders.demos, episodes(shown))
        for path, games in zip(data.folders.rollouts, played, strict=True):
            write_episodes(path, [replace(e, index=i) for e in episodes(games) for i in (0, 1)])
        return data

    return made


def chances(check) -> list[float]:
    return check.frame["chance"].to_pylist()


def ids(games) -> list[str]:
    return [game.id for game in games]


def test_the_campaigns_own_draws_are_apart_and_their_overlap_is_told(campaign):
    shown = demonstrated(GAMES, 120, seed=1)
    played = [share_of(GAMES, 60, seed=1, iteration=i) for i in (1, 2)]
    data = campaign(shown, *played)
    assert game_ids(data.folders.rollouts[0]) == set(ids(played[0]))
    figures, check = of_rollouts(data, ids(played[1]))
    both = set(ids(shown)) & set(ids(played[1]))
    held_out = validation_side(data, ids(played[1]))
    assert figures == {
        "demonstrated": len(both) / 60,
        "demonstrated_validation": len(both & held_out) / len(held_out),
    }
    assert 0 < len(held_out) < 60 and min(chances(check)) > 0.01
    searched = share_of(GAMES, 350, seed=1, iteration=1, backwards=True)
    figures, check = of_search(data, ids(searched))
    ever = set(ids(played[0])) | set(ids(played[1]))
    assert figures == {
        "demonstrated": len(set(ids(shown)) & set(ids(searched))) / 350,
        "in_rollouts": 70 / 350,  # of the 120 that were played all but the 50 that are not searched
        "taught_prm": len((ever - validation_side(data, ever)) & set(ids(searched))) / 350,
    }
    assert 0 < figures["taught_prm"] < figures["in_rollouts"] and min(chances(check)) > 0.01


def test_draws_that_are_one_draw_do_not_pass(campaign):
    """Demonstrations as the first games of the rollouts' order: all rollouts are demonstrated, no search is."""
    order = random.Random(1).sample(GAMES, len(GAMES))
    played = share_of(GAMES, 60, seed=1, iteration=1)
    data = campaign(order[:120], played)
    figures, check = of_rollouts(data, ids(played))
    assert figures["demonstrated"] == 1.0 and chances(check)[0] < LEAST_CHANCE
    searched = share_of(GAMES, 60, seed=1, iteration=1, backwards=True)
    figures, check = of_search(data, ids(searched))
    assert figures == {"demonstrated": 0.0, "in_rollouts": 0.0, "taught_prm": 0.0}
    assert max(chances(check)) < LEAST_CHANCE
    assert check.frame["demonstrated"].to_pylist() == ["0 of 60 and 120 of 340", "0 of 60 and 60 of 60"]
    (expected,) = [e for e in check.expectations if "min_value" in e.arguments]
    assert expected.arguments["min_value"] == LEAST_CHANCE and expected.why.startswith("games were demonstrated as of")


@pytest.mark.parametrize("count", [400, 0])
def test_where_all_games_are_demonstrated_or_none_nothing_is_to_be_told_apart(count):
    first, rest = ids(GAMES[:60]), ids(GAMES[60:])
    assert chances(demonstrated_suite(set(ids(GAMES[:count])), [("some", first, rest), ("none", [], rest)])) == [1, 1]


@settings(max_examples=25)
@drawn(st.integers(0, 40), st.integers(0, 60), st.integers(0, 40))
def test_the_chance_is_that_of_the_hypergeometric(first, rest, shown):
    """All outcomes that are no likelier than what was seen, of draws of ``first`` games."""
    games = [f"{n}" for n in range(first + rest)]
    marked = set(random.Random(1).sample(games, min(shown, len(games))))
    check = demonstrated_suite(marked, [("a draw", games[:first], games[first:])])
    assert check.frame.schema.field("chance").type == pa.float64()
    law = hypergeom(first + rest, len(marked), first)
    seen = law.pmf(sum(game in marked for game in games[:first]))
    expected = sum(p for k in range(first + 1) if (p := law.pmf(k)) <= seen * (1 + 1e-7))
    assert chances(check)[0] == pytest.approx(expected if first and rest else 1, rel=1e-6)


def test_no_games_have_no_share():
    assert share([], {"a"}) == 0.0 and share(["a", "b"], {"b", "c"}) == 0.5
