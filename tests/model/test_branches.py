"""States to branch at: each world state once, where the policy is undecided; plays of every action from there."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa

from agentprm_core.branches import BRANCHES, Point, branch_points, candidates, play_branches, random_commands, undecided
from agentprm_core.datasets import write_table
from agentprm_core.policy.decoding import Decision
from agentprm_core.policy.sampler import Sampler
from agentprm_core.prm import ranking
from agentprm_core.prm.dataset import Labelled, Tried, tried_actions
from agentprm_core.rollout import play, starts
from agentprm_core.types import Episode, Turn
from tests.model import text_world, toy

GAMES = {game.id: game for game in (toy.game(n) for n in range(6))}


def sampler(temperature=1.0):
    return Sampler(toy.policy(), slots=4, context=512, temperature=temperature, constrained=True, max_action_tokens=8)


def episodes(engine):
    played = play(sampler(), starts(GAMES.values(), 3, seed=1), world_name=engine, max_turns=6)
    return sorted(played, key=lambda episode: (episode.game_id, episode.index))


def test_every_state_that_was_decided_is_drawn_once(toy_engine):
    played = episodes(toy_engine)
    points = branch_points(played, seed=3)
    keys = [point.episode.turns[point.turn].state_key for point in points]
    assert Counter(keys) == dict.fromkeys({turn.state_key for episode in played for turn in episode.turns}, 1)
    assert points != branch_points(played, seed=4)


def test_undecided_states_have_several_actions_and_decided_ones_are_passed_over(toy_engine):
    played = episodes(toy_engine)
    found = undecided(sampler(), played, 5, actions=3, seed=1)
    assert len(found) == 5
    assert all(1 < len(actions) <= 3 for _, actions in found)
    assert [point.name for point, _ in found] == sorted(point.name for point, _ in found)
    assert undecided(sampler(temperature=1e-3), played, 5, actions=3, seed=1) == []


def test_random_commands_were_not_played_and_verbs_are_drawn_evenly(toy_engine):
    played = [
        episode_of_commands(["go east", "go west", "go north", "go south", "look", "wait"], n) for n in range(400)
    ]
    found = random_commands(played, 300, seed=1)
    assert len(found) == 300
    assert [point.name for point, _ in found] == sorted({point.name for point, _ in found})
    assert all(command != point.episode.turns[point.turn].action for point, ((command, _),) in found)
    verbs = Counter(command.split()[0] for _, ((command, _),) in found)
    assert set(verbs) == {"go", "look", "wait"}
    assert min(verbs.values()) > 70  # of 100 on average; drawn among the commands it were 60
    without = [point for point, _ in found[:200]]
    assert not {p.name for p in without} & {p.name for p, _ in random_commands(played, 400, seed=1, without=without)}
    assert random_commands(played, 0, seed=1) == []


def episode_of_commands(commands: list[str], number: int) -> Episode:
    """One turn, at which the first of ``commands`` was played."""
    turn = Turn("a room", commands[0], tuple(commands), True, f"state {number}")
    return Episode(f"game/{number:03}", 0, number, (turn,), False, False)


def test_every_action_is_played_as_often_as_asked(toy_engine):
    found = undecided(sampler(), episodes(toy_engine), 3, actions=2, seed=1)
    table = play_branches(
        sampler(),
        GAMES,
        [point for point, _ in found],
        [actions for _, actions in found],
        continuations=2,
        world_name=toy_engine,
        max_turns=6,
        seed=1,
    )
    plays = Counter((r["game_id"], r["episode"], r["turn"], r["action"]) for r in table.to_pylist())
    assert plays == {(*point.name, action): 2 for point, replies in found for action, _ in replies}


def test_a_branch_goes_on_from_the_conversation_of_its_episode(toy_engine):
    """Reasons of the turns before are told again, and the one of the action that is tried."""
    episode = max(episodes(toy_engine), key=lambda episode: episode.length)
    turns = tuple(turn._replace(reason=f"because of {n}") for n, turn in enumerate(episode.turns))
    player, told = sampler(), []
    tell = player.tell
    player.tell = lambda seat, action, reason="": (told.append((action, reason)), tell(seat, action, reason))
    play_branches(
        player,
        GAMES,
        [Point(replace(episode, turns=turns), 3)],
        [[("look", "dark")]],
        continuations=1,
        world_name=toy_engine,
        max_turns=6,
        seed=1,
    )
    assert told[:4] == [*((turn.action, turn.reason) for turn in turns[:3]), ("look", "dark")]


def test_a_prm_is_ranked_by_the_replies_that_were_played(tmp_path, monkeypatch):
    """With the reason before each action, as everything else that it reads."""
    rows = [
        ("g", 0, 1, action, reason, k, 1.0, 0) for action, reason in [("look", "dark"), ("wait", "")] for k in (0, 1)
    ]
    path = tmp_path / "branches.parquet"
    write_table(pa.table(dict(zip(BRANCHES.names, map(list, zip(*rows)))), schema=BRANCHES), path)
    tried = tried_actions(path, gamma=1.0, outcome="binary")["g", 0]
    assert tried == [Tried(1, "look", 1.0, "dark", [1.0, 1.0]), Tried(1, "wait", 1.0, "", [1.0, 1.0])]
    scored = []
    monkeypatch.setattr(ranking, "score_actions", lambda *given: scored.append(given[3]) or [np.zeros(2)])
    episode = max((text_world.play(n, 0, skill=0.0) for n in range(5)), key=lambda episode: episode.length)
    held_out = [Labelled(episode, np.zeros(episode.length), tried)]
    ranking.ranked(toy.policy().model, toy.policy().renderer, held_out, batch_tokens=64, seed=1)
    assert scored == [[[(1, "look", "dark"), (1, "wait", "")]]]


def test_one_action_with_two_reasons_is_one_candidate_with_the_first():
    class TwoReasons:
        seats = 1

        def open(self, seed):
            return 0

        def see(self, *_):
            return True

        def ask(self, seat, samples):
            assert samples == 3

        def tick(self):
            said = [Decision("look", "dark", -1.0), Decision("wait", "dark", -1.0), Decision("look", "late", -1.0)]
            return [(0, tuple(said))]

        def close(self, seat):
            pass

    episode = text_world.play(0, 0, skill=0.0)
    assert candidates(TwoReasons(), [Point(episode, 0)], 3, 1) == [(("look", "dark"), ("wait", "dark"))]
