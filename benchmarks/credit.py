"""How true are the labels, and which action do they put first? Monte Carlo by either key and branching, at their costs.

The policy is a script with a known error: on generated ALFWorld households it does what the text expert would, and with
chance ``--noise`` a random admissible command instead. It is a function of the history, so the truth of a (s,a) can be
measured to any precision: many plays on from exactly there. States are drawn among those where the episodes tried at
least two actions, since ordering actions is what a process reward model is for.

    python -m benchmarks.credit --json
    python -m benchmarks.credit --noise 0.85 --resets --json    # a policy that rarely wins, put on the expert's way
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from functools import partial

import numpy as np
import polars as pl

from agentprm_core.arguments import any_seed, count, share
from agentprm_core.credit.branching import BranchPoint, History, branching_q
from agentprm_core.credit.coverage import coverage_report
from agentprm_core.credit.monte_carlo import coverage_of_keys, monte_carlo_q
from agentprm_core.credit.turns import turns_from_table
from agentprm_core.datasets import episodes_to_table
from agentprm_core.evaluate import wilson
from agentprm_core.types import Episode, Game, Turn
from agentprm_core.worlds import Observation, World, make_world
from agentprm_core.worlds.alfworld.expert import Expert, NothingLeft
from agentprm_core.worlds.alfworld.households import generate_games

MAX_TURNS, GAMMA, OUTCOME = 30, 0.95, "signed"
TRIED, GAP = 4, 0.1
"""Actions judged at a state, and the difference of true Q̂ from which a pair of them counts."""


class Scripted:
    """The noisy expert, one episode."""

    def __init__(self, seed: int, noise: float) -> None:
        self._rng, self._expert, self._done = random.Random(seed), Expert(), None
        self._noise = noise

    def follow(self, turns: Sequence[Turn]) -> None:
        """Remember a history that was played."""
        for turn in turns:
            self._wish(Observation(turn.observation, turn.admissible))
            self._done = turn.action

    def act(self, seen: Observation, *, errs: bool = True) -> str:
        """The next action. Where it never ``errs`` it is the expert's, if that is admissible."""
        wish, admissible = self._wish(seen), seen.admissible
        if wish in admissible and not (errs and self._rng.random() < self._noise):
            self._done = wish
        else:
            self._done = self._rng.choice(admissible)
        return self._done

    def _wish(self, seen: Observation) -> str | None:
        try:
            return self._expert.act(seen, self._done)
        except NothingLeft:
            return None


def play(world: World, game: Game, index: int, noise: float, start: int = 0) -> Episode:
    """An episode whose first ``start`` actions are the expert's own."""
    seen, turns, policy = world.reset(game), [], Scripted(index, noise)
    while not seen.done and len(turns) < MAX_TURNS:
        action = policy.act(seen, errs=len(turns) >= start)
        turns.append(Turn(seen.text, action, seen.admissible, True, world.state_key()))
        seen = world.step(action)
    return Episode(game.id, index, index, tuple(turns), seen.done, start=start)


def starts(world: World, game: Game, episodes: int, seed: int) -> list[int]:
    """How many of the expert's actions come before each episode: drawn evenly among those that it needs."""
    needed, rng = play(world, game, 0, noise=0.0).length, random.Random(f"{seed}/{game.id}")
    return [rng.randrange(needed) for _ in range(episodes)]


def play_on(histories: Sequence[History], seeds: Sequence[int], *, noise: float) -> list[tuple[bool, int]]:
    """The scripted policy as a ``PlayFrom``."""
    answers, world = [], make_world("alfworld")
    for history, drawn in zip(histories, seeds):
        policy, seen, steps = Scripted(drawn, noise), history.observation, 0
        world.reset(history.game)
        for turn in history.turns:
            world.step(turn.action)
        policy.follow(history.turns)
        while not seen.done and len(history.turns) + steps < MAX_TURNS:
            seen = world.step(policy.act(seen))
            steps += 1
        answers.append((seen.done, steps))
    return answers


def judged(episodes: Sequence[Episode], states: int, seed: int) -> list[list[tuple[int, int]]]:
    """(episode, turn) of the policy's first doing of up to ``TRIED`` actions at each of ``states`` world states."""
    first: dict[str, dict[str, tuple[int, int]]] = {}
    for e, episode in enumerate(episodes):
        for t in range(episode.start, episode.length):
            turn = episode.turns[t]
            first.setdefault(turn.state_key, {}).setdefault(turn.action, (e, t))
    several = [list(actions.values()) for actions in first.values() if len(actions) > 1]
    return [actions[:TRIED] for actions in random.Random(seed).sample(several, min(states, len(several)))]


def points(
    episodes: Sequence[Episode], games: dict[str, Game], groups: list[list[tuple[int, int]]]
) -> list[BranchPoint]:
    """The world after each judged action, by replay. All actions of a state are judged after *one* history, that of the
    first of them, so that the truth compares actions and nothing else."""
    found = []
    for group in groups:
        e, t = group[0]
        history, game = episodes[e].turns[:t], games[episodes[e].game_id]
        world = make_world("alfworld")
        seen = world.reset(game)
        for turn in history:
            seen = world.step(turn.action)
        for other, at in group:
            action, after = episodes[other].turns[at].action, world.clone()
            turn = Turn(seen.text, action, seen.admissible, True, world.state_key())
            now = after.step(action)
            found.append(BranchPoint(f"{e}/{t}/{action}", History(game, (*history, turn), now)))
    return found


def compare(q: np.ndarray, truth: np.ndarray, groups: list[list[tuple[int, int]]], cost: float) -> dict[str, float]:
    """Agreement of estimates with the truth over the judged actions; ``cost`` is policy turns a labelled turn."""
    pairs, at = [], 0
    for group in groups:
        rows = range(at, at + len(group))
        at += len(group)
        pairs += [(i, j) for i in rows for j in rows if truth[i] - truth[j] > GAP]
    difference = np.array([q[i] - q[j] for i, j in pairs])
    right = float((difference > 0).sum() + (difference == 0).sum() / 2)
    low, high = wilson(round(right), len(pairs))
    return {
        "turns_per_label": round(cost, 2),
        "correlation": round(float(np.corrcoef(q, truth)[0, 1]), 3),
        "rmse": round(float(np.sqrt(((q - truth) ** 2).mean())), 4),
        "bias": round(float((q - truth).mean()), 4),
        "ranking": round(right / len(pairs), 3),
        "ranking_low": round(low, 3),
        "ranking_high": round(high, 3),
        "pairs": len(pairs),
    }


def measure(
    games: int, episodes_a_game: int, states: int, truth_rollouts: int, seed: int, noise: float, resets: bool
) -> dict:
    started = time.perf_counter()
    homes = {game.id: game for game in generate_games(games, seed, "train")}
    world, play_from = make_world("alfworld"), partial(play_on, noise=noise)
    episodes = []
    for name in sorted(homes):
        begun = starts(world, homes[name], episodes_a_game, seed) if resets else [0] * episodes_a_game
        episodes += [play(world, homes[name], i, noise, start) for i, start in enumerate(begun)]
    turns = turns_from_table(episodes_to_table(episodes, iteration=0, method="scripted", policy=""))
    groups = judged(episodes, states, seed)
    row = turns.starts_E[[e for group in groups for e, _ in group]] + [t for group in groups for _, t in group]
    at = points(episodes, homes, groups)
    options = dict(gamma=GAMMA, outcome=OUTCOME)
    truth = branching_q(at, play_from, rollouts=truth_rollouts, seed=seed + 1, **options)
    found = {}
    for key in ("history", "state"):
        q = monte_carlo_q(turns, visit_key=key, side_N=np.zeros(len(turns.turn_N), bool), **options).q_N
        found[f"monte_carlo_{key}"] = compare(q[row], truth.q_P, groups, 1)
    for rollouts in (1, 4, 16):
        played = branching_q(at, play_from, rollouts=rollouts, seed=seed + 2, **options)
        cost = 1 + played.played_P.sum() / len(at)
        found[f"branching_{rollouts}"] = compare(played.q_P, truth.q_P, groups, cost)
    return {
        "estimators": found,
        "noise_of_truth": round(float(np.sqrt((truth.variance_P / truth.visits_P).mean())), 4),
        "spread_of_truth": round(float(truth.q_P.std()), 4),
        "games": games,
        "episodes": len(episodes),
        "turns": len(turns.turn_N),
        "success": round(float(turns.won_E.mean()), 3),
        "judged_states": len(groups),
        "judged_actions": len(at),
        **{name: round(value, 3) for name, value in coverage_of_keys(turns).items()},
        "held_out": {key: _held_out(coverage_report(turns, visit_key=key, **options)) for key in ("history", "state")},
        "seconds": round(time.perf_counter() - started, 1),
    }


def _held_out(report: dict) -> dict:
    """Plain figures, rounded; ``ranking`` by the visits of the less visited action."""
    returns, ranking = report["held_out"], report["ranking"]
    named = {name: returns[name] for name in ("share", "turns", "correlation", "mse", "mse_of_mean")}
    return _rounded(named) | {"ranking": [_rounded(row) for row in (ranking, *ranking["by_visits"])]}


def _rounded(row: dict) -> dict:
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items() if not isinstance(v, list)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--games", type=count, default=40)
    parser.add_argument("--episodes", type=count, default=16, help="a game")
    parser.add_argument("--states", type=count, default=300)
    parser.add_argument("--truth", type=count, default=128, help="rollouts behind the truth of each action")
    parser.add_argument("--noise", type=share, default=0.6, help="chance of a random command in place of the expert's")
    parser.add_argument("--resets", action="store_true", help="episodes start somewhere on the expert's way")
    parser.add_argument("--seed", type=any_seed, default=0)
    parser.add_argument("--json", action="store_true", help="only the JSON line")
    given = parser.parse_args()
    report = measure(given.games, given.episodes, given.states, given.truth, given.seed, given.noise, given.resets)
    if not given.json:
        with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True):
            print(pl.DataFrame([{"estimator": name} | row for name, row in report["estimators"].items()]))
    print(json.dumps(report))


if __name__ == "__main__":
    main()
