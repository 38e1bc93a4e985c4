"""The paired test of a PRM's choices: in a world where the right action is known, and on which games."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from agentprm_core import worlds
from agentprm_core.credit.split import validation_games
from agentprm_core.datasets import games_to_table, write_table
from agentprm_core.evaluate import paired_test
from agentprm_core.search import best_of_n
from tasks import gain
from tasks.frame import layout
from tasks.frame.stage import StageError
from tests.model import toy


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


@pytest.fixture
def stage():
    params = SimpleNamespace(
        seed=1,
        compute=SimpleNamespace(cache_mb=256),
        env=SimpleNamespace(world="toy", max_turns=12),
        model=SimpleNamespace(context=512, max_action_tokens=8),
        rollout=SimpleNamespace(temperature=20.0, constrained=True, slots=32),
        label=SimpleNamespace(validation_share=0.3),
        prm=SimpleNamespace(gain_games=5, gain_prior=0.1),
    )
    return SimpleNamespace(params=params, seed=1001)


@pytest.mark.parametrize("right", [True, False])
def test_a_prm_that_knows_gains_and_one_that_misleads_loses(stage, monkeypatch, right):
    monkeypatch.setitem(worlds._OURS, "toy", "tests.model.toy:TOY")
    monkeypatch.setattr(best_of_n, "PrmScorer", lambda prm, **_: Scores(right))
    policy = toy.policy()
    found = gain.gain(stage, policy, policy, [toy.game(n) for n in range(80)])
    assert found.games == 80
    assert found.p_value < gain.LEVEL
    assert (found.gained > found.lost) == (found.difference > 0) == right
    assert f"won {found.gained} that one sample lost, and lost {found.lost} that it won" in gain.said(found)


def test_it_is_chosen_with_the_prior_asked_for(stage, monkeypatch):
    ways = []
    monkeypatch.setattr(gain, "play_games", lambda policy, prm, games, way, seed: ways.append(way) or [])
    monkeypatch.setattr(gain, "paired_test", lambda before, after: None)
    gain.gain(stage, toy.policy(), toy.policy(), [])
    assert [(way.method, way.prior) for way in ways] == [("sample", 0.1), ("best_of_n", 0.1)]


def test_what_is_played_are_validation_games_of_the_rollouts(stage, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    games = [toy.game(n) for n in range(60)]
    write_table(games_to_table(games), layout.games("train"))
    ids = [game.id for game in games]
    validation = {game_id for game_id, is_one in zip(ids, validation_games(ids, 0.3, 1)) if is_one}
    episodes = [SimpleNamespace(game_id=game_id) for game_id in ids[:40] for _ in range(2)]
    played = gain.held_out(stage, episodes)
    assert len(played) == 5
    assert {game.id for game in played} < validation & set(ids[:40])
    assert played == gain.held_out(stage, episodes)
    stage.params.prm.gain_games = 100
    assert {game.id for game in gain.held_out(stage, episodes)} == validation & set(ids[:40])


@pytest.mark.parametrize(("gained", "lost", "passes"), [(20, 5, True), (12, 5, False), (5, 20, False)])
def test_only_a_gain_beyond_chance_passes_and_is_reported(stage, monkeypatch, capsys, gained, lost, passes):
    before = {str(n): n < lost for n in range(100)}
    after = {str(n): lost <= n < lost + gained for n in range(100)}
    logged = []
    stage.iteration, stage.name, stage.task, stage.tracking = 1, "policy@1", "policy", nullcontext
    stage.params.compute.device = "cpu"
    stage.clock = SimpleNamespace(lap=nullcontext)
    stage.tracker = SimpleNamespace(log_metrics=logged.append)
    monkeypatch.setattr(gain, "load_player", lambda folder, compute, kind: folder)
    monkeypatch.setattr(gain, "held_out", lambda stage, episodes: [])
    monkeypatch.setattr(gain, "gain", lambda stage, policy, prm, games: paired_test(before, after))
    if passes:
        figures = gain.required_gain(stage, [], None)
        assert (figures["games"], figures["gained"], figures["lost"], figures["difference"]) == (100, 20, 5, 0.15)
        assert figures["p_value"] == pytest.approx(0.00408, abs=1e-5)
        assert logged == []
    else:
        with pytest.raises(StageError, match="does not make its policy win more: of 100 held-out games"):
            gain.required_gain(stage, [], None)
        assert logged[0]["policy"]["gain"]["gained"] == gained
    assert f"policy@1: of 100 held-out games Best-of-4 under it won {gained} that" in capsys.readouterr().out
