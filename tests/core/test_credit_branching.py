"""Branching targets: the aggregation by hand, seeds that do not depend on company, bad input."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from agentprm_core import worlds
from agentprm_core.branches import BRANCHES
from agentprm_core.credit.branching import (
    BRANCH_VALUES,
    BRANCHING_LABELS,
    History,
    branch_values,
    branching_q,
    branching_targets,
    label_branching,
    points_of_episode,
)
from agentprm_core.credit.play_on import play_from_player
from agentprm_core.policy.sampler import Cost, Decision
from agentprm_core.types import Turn
from tests.core.corridor import ACTIONS, GAME, Corridor, play, play_on


def test_aggregation_by_hand():
    won, lengths = np.array([[True, True], [True, False]]), np.array([[0, 2], [1, 1]])
    q, variance = branching_targets(won, lengths, gamma=0.5)
    # returns 1 and 0.25 → 1 and 0.625; 0.5 and −0.5 → 0.75 and 0.25
    np.testing.assert_allclose(q, [0.8125, 0.5])
    np.testing.assert_allclose(variance, [0.1875**2, 0.25**2])
    q, _ = branching_targets(won, lengths, gamma=0.5, outcome="binary")
    np.testing.assert_allclose(q, [0.625, 0.25])


def points(seed=0):
    return list(points_of_episode(Corridor(), GAME, play(seed)))


def q_of(some, seed=7, rollouts=4, play_from=play_on):
    return branching_q(some, play_from, rollouts=rollouts, gamma=0.9, seed=seed, outcome="signed")


def test_points_stand_after_each_turn():
    episode = play(3)
    for t, point in enumerate(points(3)):
        assert point.history.turns == episode.turns[: t + 1]
        assert t + 1 == episode.length or point.history.observation.text == episode.turns[t + 1].observation
    assert point.history.observation.done and point.history.observation.reward == episode.won


def test_a_point_gets_the_same_rollouts_in_any_company():
    some = points()
    together = q_of(some)
    for i, point in enumerate(some):
        assert q_of([point]).q_P[0] == together.q_P[i]
    np.testing.assert_array_equal(q_of(some[::-1]).q_P[::-1], together.q_P)


def test_a_won_episode_is_not_played_on():
    episode = next(e for e in map(play, range(100)) if e.won)
    last = list(points_of_episode(Corridor(), GAME, episode))[-1]
    found = q_of([last], play_from=lambda histories, seeds: [])
    assert (found.q_P.tolist(), found.visits_P.tolist(), found.played_P.tolist()) == ([1.0], [1], [0])


def test_values_of_several_actions_at_one_state():
    plays = [
        ("g", 0, 3, "a", "why", 0, True, 0),
        ("g", 0, 3, "a", "why", 1, False, 1),
        ("g", 0, 3, "b", "why", 0, True, 2),
    ]
    plays += [("h", 0, 3, "a", "why", 0, False, 0)]
    values = branch_values(pa.table(dict(zip(BRANCHES.names, map(list, zip(*plays)))), schema=BRANCHES), gamma=0.5)
    assert values.schema.equals(BRANCH_VALUES)
    assert [tuple(row.values()) for row in values.to_pylist()] == [
        ("g", 0, 3, "a", "why", 0.625, 2, 0.140625, [1.0, 0.25]),
        ("g", 0, 3, "b", "why", 0.625, 1, 0.0, [0.625]),
        ("h", 0, 3, "a", "why", 0.0, 1, 0.0, [0.0]),
    ]


def test_rows_of_labels_and_portions():
    games = {f"g{i}": GAME.__class__(f"g{i}", *[getattr(GAME, f) for f in GAME.__slots__[1:]]) for i in range(8)}
    episodes = [play(i, index, game_id=f"g{i}") for i in range(8) for index in range(2)]
    options = dict(rollouts=2, gamma=0.9, validation_share=0.4, seed=5)
    labels = label_branching(episodes, games, Corridor, play_on, **options)
    assert labels.schema.equals(BRANCHING_LABELS)
    assert len(labels) == sum(e.length for e in episodes)
    halves = [label_branching(part, games, Corridor, play_on, **options) for part in (episodes[:6], episodes[6:])]
    assert labels.to_pylist() == halves[0].to_pylist() + halves[1].to_pylist()
    assert set(labels["split"].to_pylist()) == {"train", "validation"}


def test_what_a_label_costs():
    episode = next(e for e in map(play, range(100)) if e.won and e.length > 1)
    options = dict(rollouts=2, gamma=0.9, validation_share=0.0, seed=5)
    labels = label_branching(
        [episode], {GAME.id: GAME}, Corridor, lambda histories, _: [(True, 3)] * len(histories), **options
    )
    assert labels["played"].to_pylist() == [6] * (episode.length - 1) + [0]  # an action that won needs no play


def test_bad_input():
    with pytest.raises(ValueError, match=r"critic.continuations: 0 is not at least 1"):
        q_of(points(), rollouts=0)
    with pytest.raises(ValueError, match="play_from: 1 outcomes for"):
        q_of(points(), play_from=lambda histories, seeds: [(True, 0)])

    class Elsewhere(Corridor):
        def _look(self):
            self.cell = self.cell % 5 + 1
            return super()._look()

    with pytest.raises(ValueError, match="game corridor/0, episode 0, turn 0: the world says 'you are in cell 3'"):
        list(points_of_episode(Elsewhere(), GAME, play(0)))


class Walker:
    """A player of two seats that goes right after an even seed and to and fro after an odd one."""

    seats = 2

    def __init__(self, context=100):
        self.context, self.free, self.seeds, self.read, self.asked = context, [0, 1], {}, {}, []
        self.told = []

    def open(self, seed):
        seat = self.free.pop()
        self.seeds[seat], self.read[seat] = seed, 0
        return seat

    def see(self, seat, observation, admissible):
        self.read[seat] += 1
        return self.read[seat] <= self.context

    def ask(self, seat):
        self.asked.append(seat)

    def tell(self, seat, action, reason=""):
        self.told.append((action, reason))

    def tick(self):
        asked, self.asked = self.asked, []
        go = {seat: ACTIONS[1 if self.seeds[seat] % 2 == 0 else self.read[seat] % 2] for seat in asked}
        return [(seat, (Decision(go[seat], "", 0.0),)) for seat in asked]

    def close(self, seat):
        self.free.append(seat)
        return Cost()


def test_playing_on_by_the_rollout_loop(monkeypatch):
    monkeypatch.setitem(worlds._OURS, "corridor", "tests.core.corridor:CORRIDOR")
    left, right = (history_after(action) for action in ACTIONS)
    play_from = play_from_player(Walker(), world_name="corridor", max_turns=5)
    assert play_from([left, left, right], [2, 3, 4]) == [
        (1.0, 4),
        (0.0, 1),
        (1.0, 2),
    ]  # the second walks off the lost end
    reasoning, player = history_after("right", "left"), Walker()
    reasoning = replace(reasoning, turns=tuple(turn._replace(reason="so") for turn in reasoning.turns))
    play_from_player(player, world_name="corridor", max_turns=5)([reasoning], [2])
    assert player.told[:3] == [("right", "so"), ("left", "so"), ("right", "")]
    at_the_limit = play_from_player(Walker(), world_name="corridor", max_turns=1)
    assert at_the_limit([right], [4]) == [(0.0, 0)]
    with pytest.raises(ValueError, match="2 turns of history, of which the player took in 1"):
        play_from_player(Walker(context=1), world_name="corridor", max_turns=5)([history_after("right", "left")], [4])


def history_after(*actions):
    world, turns = Corridor(), []
    observation = world.reset(GAME)
    for action in actions:
        turns.append(Turn(observation.text, action, ACTIONS, True, world.state_key()))
        observation = world.step(action)
    return History(GAME, tuple(turns), observation)
