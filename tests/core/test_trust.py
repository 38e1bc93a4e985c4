"""Whether a PRM may be followed: its ranking, and the paired test of its choices, and on which games."""

from types import SimpleNamespace

import pytest

from agentprm_core.credit.split import validation_games
from agentprm_core.datasets import games_to_table, write_table
from agentprm_core.errors import DataError
from agentprm_core.evaluate import paired_test
from agentprm_core.methods import trust
from agentprm_core.search import scorers
from agentprm_core.search.decoding_config import decoding
from tests.core.given import given, know, write_games
from tests.model import toy

FOUR = decoding("best_of_4")


class Scores:
    """In the PRM's place: ``right`` likes to take what the task asks for, then new places, least to take aught else."""

    def __init__(self, right: bool) -> None:
        self._right, self._target, self._told = right, {}, set()

    def open(self, seed):
        self._target[len(self._target)] = ""
        return len(self._target) - 1

    def see(self, seat, observation, admissible):
        if "task is to: take" in observation:
            self._target[seat] = observation.split()[-2]
        return True

    def tell(self, seat, action, reason=""):
        self._told.add((seat, action))

    def score(self, asked):
        return [[self._score(seat, candidate.action) for candidate in candidates] for seat, candidates in asked]

    def close(self, seat):
        return 0

    def _score(self, seat, action):
        if action.startswith("take"):
            worth = 1.0 if action.split()[1] == self._target[seat] else -1.0
        else:
            worth = 0.5 if action.startswith("go") and (seat, action) not in self._told else 0.0
        return worth if self._right else -worth


RANKING = {"accuracy": 0.5, "accuracy_low": 0.41, "accuracy_high": 0.6, "pairs": 90, "states": 30, "games": 25}


@pytest.mark.parametrize("right", [True, False])
def test_a_prm_that_knows_better_than_the_likelihood_gains_and_one_that_misleads_loses(tmp_path, monkeypatch, right):
    for name, knows in (("prm", right), ("untrained_likelihood", not right)):
        monkeypatch.setitem(scorers.MAKERS, name, lambda materials, knows=knows: Scores(knows))
    policy = toy.policy()
    found = trust.gain(given(tmp_path, prior=0.1), policy, policy, [toy.game(n) for n in range(80)], FOUR)
    assert found.games == 80
    assert found.p_value < trust.LEVEL
    assert (found.gained > found.lost) == (found.difference > 0) == right
    told = f"won {found.gained} that it lost under the policy's own likelihood, and lost {found.lost} that it won so"
    assert told in trust.said(found, FOUR)


def test_it_is_chosen_as_in_searches(tmp_path, monkeypatch):
    """At the temperature of the rollouts, from the same seed, and the likelihood without the prior that is itself."""
    played = []
    monkeypatch.setattr(trust, "play_games", lambda policy, prm, games, *how: played.append(how) or [])
    monkeypatch.setattr(trust, "paired_test", lambda before, after: None)
    trust.gain(given(tmp_path, prior=0.1), toy.policy(), toy.policy(), [], decoding("beam_2x3"))
    assert [(search.name, search.prior, search.sampling, seed) for search, seed in played] == [
        ("beam_2x3_by_untrained_likelihood", 0.0, 20.0, 1001),
        ("beam_2x3", 0.1, 20.0, 1001),
    ]


@pytest.mark.parametrize(("search", "tried"), [("beam_2x3", "beam_2x3"), ("best_trajectory_of_8", "best_of_4")])
def test_what_gains_is_the_search_that_the_prm_is_wanted_for(tmp_path, monkeypatch, search, tried):
    asked = []
    monkeypatch.setattr(trust, "required_gain", lambda given, way: asked.append(way.name) or {})
    trust.trusted(given(tmp_path), "gain", search)
    assert asked == [tried]


def test_what_is_played_are_validation_games_of_the_rollouts(tmp_path, monkeypatch):
    games = [toy.game(n) for n in range(60)]
    ids = [game.id for game in games]
    validation = {game_id for game_id, is_one in zip(ids[:40], validation_games(ids[:40], 0.3, 1)) if is_one}
    data = know(given(tmp_path), episodes=[SimpleNamespace(game_id=game_id) for game_id in ids[:40] for _ in range(2)])
    write_games(data, games)
    monkeypatch.setattr(trust, "GAMES", 5)
    played = trust.held_out_games(data)
    assert len(played) == 5 and {game.id for game in played} < validation
    assert played == trust.held_out_games(data)
    monkeypatch.setattr(trust, "GAMES", 100)
    assert {game.id for game in trust.held_out_games(data)} == validation


def test_guard_games_are_played_where_the_campaign_has_them(tmp_path):
    data = know(given(tmp_path), episodes=[SimpleNamespace(game_id=toy.game(n).id) for n in range(40)])
    write_games(data, [toy.game(n) for n in range(40)])
    write_table(games_to_table([]), data.folders.guard)
    assert trust.held_out_games(data), "those of the rollouts"
    guard = [toy.game(n) for n in range(100, 104)]
    write_table(games_to_table(guard), data.folders.guard)
    assert trust.held_out_games(know(given(tmp_path))) == sorted(guard, key=lambda game: game.id)


@pytest.mark.parametrize(("gained", "lost", "passes"), [(20, 5, True), (12, 5, False), (5, 20, False)])
def test_only_a_gain_beyond_chance_passes_and_is_reported(tmp_path, monkeypatch, capsys, gained, lost, passes):
    before = {str(n): n < lost for n in range(100)}
    after = {str(n): lost <= n < lost + gained for n in range(100)}
    data = know(given(tmp_path, ranking={"better_than_chance": True}), policy=None, prm=None)
    monkeypatch.setattr(trust, "held_out_games", lambda given: [])
    monkeypatch.setattr(trust, "gain", lambda *arguments: paired_test(before, after))
    if passes:
        figures = trust.trusted(data, "gain")["gain"]
        assert (figures["games"], figures["gained"], figures["lost"], figures["difference"]) == (100, 20, 5, 0.15)
        assert figures["p_value"] == pytest.approx(0.00408, abs=1e-5)
    else:
        with pytest.raises(DataError, match="prm-1 does not make its policy win more: of 100 held-out games"):
            trust.trusted(data, "gain")
    assert f"of 100 held-out games best_of_4 under it won {gained} that" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        ({}, r"it orders 50% \[41%, 60%\] of 90 pairs at 30 states of 25 held-out games as their returns do\. A"),
        ({"games": 5}, r"it orders .* of 5 held-out games as their returns do; fewer than 6 games cannot tell\. A"),
        ({"accuracy": None, "accuracy_low": None}, "no held-out state has two actions whose measured returns differ"),
    ],
)
def test_a_prm_that_does_not_rank_is_followed_only_where_nothing_is_asked(tmp_path, measured, said):
    data = given(tmp_path, ranking=RANKING | measured | {"better_than_chance": False})
    assert trust.trusted(data, "nothing") == {}
    with pytest.raises(DataError, match=f"prm-1 ranks actions no better than chance: {said}.*critic.require: no"):
        trust.trusted(data, "ranking")


def test_a_prm_that_ranks_may_be_followed_without_a_game(tmp_path):
    assert trust.trusted(given(tmp_path, ranking={"better_than_chance": True}), "ranking") == {}
