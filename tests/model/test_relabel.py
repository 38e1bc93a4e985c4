"""What a search visits, labelled on the crossroads, where every return is known."""

from collections import defaultdict

import numpy as np
import pytest

from agentprm_core.datasets import read_table
from agentprm_core.draws import share_of
from agentprm_core.errors import DataError
from agentprm_core.policy.models import Checkpoint, new_model
from agentprm_core.prm.model import new_prm
from agentprm_core.types import EPISODES
from benchmarks import relabel
from tests.core import crossroads
from tests.core.given import given, know, write_games
from tests.model import text_world
from tests.model.test_rivals import PLAYED, renderer

GAMES = [crossroads.game(number) for number in range(40)]
BRANCH = {"train_states": 5, "random_states": 6, "validation_states": 9, "continuations": 2, "temperature": 1.5}
PARAMS = {
    "rollout": {"games": 16, "branch": BRANCH},
    "critic": {"name": "monte_carlo", "gamma": 0.5, "visit_key": "state", "outcome": "binary"},
}


@pytest.fixture
def data(tmp_path):
    speaks = renderer()
    size = {"width": 32, "layers": 2, "heads": 2, "kv_heads": 1, "context": 64}
    model = text_world.quiet(new_model(speaks.tokenizer, **size, seed=0)).eval()
    found = given(tmp_path, temperature=1.0, play=PLAYED)
    found.scratch.mkdir()
    write_games(found, GAMES)
    policy = Checkpoint(model, speaks.tokenizer, speaks, "π")
    return know(found, policy=policy, prm=Checkpoint(new_prm(model, 0.3), speaks.tokenizer, speaks, "prm"))


@pytest.mark.parametrize("way", ["sample", "best_of_2", "beam_2x2"])
def test_labels_are_the_returns_of_who_played(way, data):
    learnt, told = relabel.visited(PARAMS, data, way, 20)
    assert told == {"episodes": 20, "success": np.mean([item.episode.won for item in learnt])}
    for item in learnt:  # a game each, so each state and action was visited once
        expected = [0.5 ** (2 - t) * item.episode.won for t in range(3)]
        np.testing.assert_allclose(item.q, expected, atol=1e-6)


def test_beside_them_lie_actions_that_the_policy_played_on_from(data):
    learnt, _ = relabel.visited(PARAMS, data, "best_of_2", 20)
    tried = [(item.episode, one) for item in learnt for one in item.tried]
    plays = defaultdict(list)
    for episode, one in tried:
        plays[len(one.returns)].append((episode.game_id, one.turn))
    assert len(plays[1]) == 6, "a random command"
    assert len(set(plays[2])) <= 5 and len(plays[2]) == 2 * len(set(plays[2])) > 0, "both ways at an undecided state"
    for episode, one in tried:
        assert one.turn < 2 or one.q == (crossroads.path_of(episode)[:2] + one.action[0].upper() in crossroads.WINS)


def test_the_games_are_none_of_the_rollouts(data):
    relabel.visited(PARAMS, data, "sample", 24)
    played = set(read_table(data.scratch / "episodes.parquet", EPISODES)["game_id"].to_pylist())
    rollouts = {game.id for game in share_of(GAMES, 16, seed=data.campaign_seed, iteration=1)}
    assert len(played) == 24 and not played & rollouts
    with pytest.raises(DataError, match=r"games\.train: 40 games, and the rollouts took 16: fewer --games than 25"):
        relabel.visited(PARAMS, data, "sample", 25)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--visited-by", "best"], "'best' is not one of"),
        (["--games", "0"], "--games"),
        (["--campaign", "nowhere"], "nowhere/params.yaml is not there"),
    ],
)
def test_what_cannot_be_asked_is_told_in_a_line(wrong, message, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["relabel", "--out", str(tmp_path / "prm"), *wrong])
    with pytest.raises(SystemExit) as ended:
        relabel.main()
    told = capsys.readouterr().err + str(ended.value)
    assert message in told


def test_a_critic_with_labels_of_another_kind_is_refused(tmp_path):
    (tmp_path / "params.yaml").write_text("critic: {name: playing_on}")
    with pytest.raises(DataError, match=r"critic\.name: 'playing_on': the labels here are those of monte_carlo"):
        relabel.train(tmp_path, "sample", None, tmp_path / "prm", tmp_path)
