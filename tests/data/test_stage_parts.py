"""Parts of the stages that decide what data is: which games, which mistakes, where time went."""

import json
import math
import os
import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentprm_core.draws import demonstrated, share_of
from agentprm_core.errors import DataError
from agentprm_core.methods.relative import check_pairs
from agentprm_core.prm import ranking
from agentprm_core.prm.rows import Labelled, Tried
from agentprm_core.worlds import make_world
from agentprm_core.worlds.alfworld.expert import Expert
from agentprm_core.worlds.alfworld.households import generate_games
from agentprm_core.worlds.demonstrations import demonstrate
from tasks import policy as policy_stage
from tasks.frame import clock
from tasks.frame.clock import Clock, read_timing, write_timing
from tasks.frame.stage import ENDED, _sweep
from tasks.report.text import BUDGET_WORDS, iteration_report, iterations_text


@pytest.fixture(scope="module")
def games():
    return generate_games(20, 1, "train")


def share(games, count: int, iteration: int, **how):
    return share_of(games, count, seed=1, iteration=iteration, **how)


def test_iterations_take_turns_with_the_games(games):
    shares = [{game.id for game in share(games, 6, i)} for i in (1, 2, 3, 4)]
    assert [len(share) for share in shares] == [6, 6, 6, 6]
    assert not shares[0] & shares[1] | shares[1] & shares[2] | shares[0] & shares[2]
    assert len(set.union(*shares)) == 20  # the fourth takes the last two and starts over
    assert share(games, 20, 1) == share(games, 20, 3) == games


def test_a_search_begins_where_the_rollouts_come_last(games):
    """Of 20 games three rollouts of 6 and a search of 2 share none, and later searches go on towards them."""
    rolled = {game.id for i in (1, 2, 3) for game in share(games, 6, i)}
    searched = [{game.id for game in share(games, 2, i, backwards=True)} for i in (1, 2)]
    assert not searched[0] & rolled and searched[1] < rolled and not searched[0] & searched[1]


def test_a_game_that_is_played_was_demonstrated_as_often_as_any_other(games):
    """Over many seeds, of 20 games 5 of which are demonstrated, a quarter of the rollouts' games and of the searched
    ones: the draws know nothing of each other."""
    shared = {False: 0, True: 0}
    for seed in range(200):
        demos = {game.id for game in demonstrated(games, 5, seed=seed)}
        assert len(demos) == 5
        for backwards in shared:
            shared[backwards] += len(
                demos & {g.id for g in share_of(games, 8, seed=seed, iteration=1, backwards=backwards)}
            )
    assert all(abs(count / (200 * 8) - 0.25) < 0.05 for count in shared.values()), shared


def test_games_are_drawn_by_the_seed(games):
    drawn = [share_of(games, 5, seed=seed, iteration=1) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0] == sorted(drawn[0], key=lambda game: game.id)


@given(st.integers(1, 12), st.integers(0, 30), st.integers(1, 9), st.booleans())
def test_any_iterations_next_to_each_other_play_all_games_as_often(count, seed, iteration, backwards):
    """So many iterations as make the games come out whole play each game equally often, wherever they begin."""
    games = [SimpleNamespace(id=f"{n:02d}") for n in range(12)]
    rounds = math.lcm(count, 12) // count
    how = {"seed": seed, "backwards": backwards}
    shares = (share_of(games, count, iteration=i, **how) for i in range(iteration, iteration + rounds))
    assert set(Counter(game.id for share in shares for game in share).values()) == {rounds * count // 12}


def test_an_expert_with_mistakes_still_wins_and_needs_longer(games):
    world = make_world("alfworld")

    def lengths(corrupt: float) -> list[int]:
        how = {"world_name": "alfworld", "max_turns": 50, "knowledge": 1.0, "corrupt": corrupt}
        episodes = [demonstrate(world, game, seed=seed, **how) for seed, game in enumerate(games)]
        assert sum(episode.won for episode in episodes) > 15
        assert demonstrate(world, games[0], seed=0, **how) == episodes[0]
        return [episode.length for episode in episodes]

    assert sum(lengths(0.4)) > 1.2 * sum(lengths(0.0))


def test_mistakes_of_the_expert_are_random_commands_that_it_goes_on_from(games):
    world, share = make_world("alfworld"), 0.3
    how = {"world_name": "alfworld", "max_turns": 50, "knowledge": 1.0, "corrupt": share}
    odd = turns = 0
    for seed, game in enumerate(games):
        episode, expert = demonstrate(world, game, seed=seed, **how), Expert(seed, 1.0)
        seen, done = world.reset(game), None
        for turn in episode.turns:
            assert (turn.observation, turn.admissible) == (seen.text, seen.admissible)  # what the mistake led to
            mistaken = expert.act(seen, done) != turn.action
            assert turn.action in seen.admissible or not mistaken
            odd, turns = odd + mistaken, turns + 1
            seen, done = world.step(turn.action), turn.action
        assert seen.done == episode.won
    assert abs(odd / turns - share) < 0.1  # a random command is the expert's own now and then


def test_a_relative_loss_without_pairs_says_what_to_do():
    def item(*worths: float) -> Labelled:
        tried = [Tried(1, f"go to desk {n}", q) for n, q in enumerate(worths)]
        return Labelled(SimpleNamespace(), np.array([0.9, 0.9, 0.1]), tried)

    check_pairs([item(), item(0.5, 0.56)], 0.05, Path("data/rollouts/1"))  # the turn's own label, 0.9, is no partner
    with pytest.raises(DataError) as stopped:
        check_pairs([item(), item(0.5), item(0.5, 0.54)], 0.05, Path("data/rollouts/1"))
    assert str(stopped.value).startswith(
        "data/rollouts/1: no state of a training game has two tried actions whose values differ by more than "
        "critic.margin, 0.05, and critic relative learns from nothing else. Try actions at more of them (rollout"
    )


def test_the_figures_of_a_ranking_come_from_single_plays(monkeypatch):
    tried = [Tried(0, "look", 0.75, returns=[1.0, 0.5]), Tried(0, "inventory", 0.5, returns=[0.0, 1.0])]
    item = Labelled(SimpleNamespace(game_id="g", index=0), np.zeros(1), tried)
    monkeypatch.setattr(ranking, "MARGIN", 0.6)
    monkeypatch.setattr(ranking, "score_actions", lambda *arguments: [np.array([0.9, 0.1])])
    found = ranking.ranked(None, None, [item, replace(item, tried=())], batch_tokens=1, seed=1)
    assert [found[name]["pairs"] for name in ("ranking", "ranking_of_all")] == [0, 1]
    # apart by more than 0.6 in the first play alone, which the second contradicts
    assert (found["ranking"]["half_pairs"], found["ranking"]["half_accuracy"], found["ranking"]["ceiling"]) == (
        0.5,
        1,
        0,
    )
    assert found["choosing"]["gain"] == pytest.approx(0.125)
    assert found["choosing"]["headroom"] == pytest.approx(-0.375)  # the mean of -0.5 and -0.25


def test_a_prm_is_judged_in_new_places_where_it_was_measured_there():
    known, new = {"accuracy": 0.7}, {"accuracy": 0.6}
    assert ranking.judged_by({"ranking": known}) == known
    assert ranking.judged_by({"ranking": known, "guard": {"ranking": new}}) == new


@pytest.mark.parametrize(("end", "launch"), [(103.0, 1.0), (104.01, 0.0), (99.0, 4.0)])
def test_launch_is_counted_from_the_end_of_the_stage_before_or_from_dvcs_start(tmp_path, monkeypatch, end, launch):
    """Also where the clocks' drift puts that end after the start: not from DVC's start then."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(clock, "_is_dvc", lambda process: True)
    dvc = SimpleNamespace(create_time=lambda: 100.0)
    monkeypatch.setattr(clock.psutil, "Process", lambda pid: SimpleNamespace(parents=lambda: [dvc]))
    write_timing("games", "first", {})
    (clock.TIMINGS / "first/games.json").write_text(json.dumps({"ended": end}))
    assert clock._launch_seconds(104.0) == pytest.approx(launch)


def test_the_clock_books_time_to_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    clock = Clock()
    for name in ("gates", "gates", "tracking", "seen/greedy"):
        with clock.lap(name):
            time.sleep(0.02)
    report = clock.report()
    assert report["launch"] == 0  # no dvc started this process
    assert report["gates"] >= 0.04
    assert report["orchestration"] == report["gates"] + report["tracking"]
    assert report["seconds"] > report["orchestration"] + report["seen/greedy"]
    assert read_timing("games", "first") is None
    write_timing("games", "first", report)
    assert read_timing("games", "first")["gates"] == report["gates"]
    assert read_timing("games", "second") is None


ROW = {
    "iteration": 1, "split": "unseen", "decoding": "greedy", "constrained": False, "games": 40, "success": 0.5,
    "ci_low": 0.35, "ci_high": 0.65, "mean_reward": 0.625, "mean_actions": 12.25, "inadmissible": 0.1,
    "seconds": None, "episodes_played": 3600, "tokens_trained": 1234567,
    "by_kind": {"pick_and_place_simple": {"games": 40, "success": 0.5}},
    "paired": {"difference": 0.25, "gained": 12, "lost": 2, "p_value": 0.0129, "p_holm": 0.0387},
}  # fmt: skip


def test_the_printed_table_and_the_report():
    timings = {"games": {"seconds": 9.0, "orchestration": 3.0, "launch": 1, "tracking": 1, "gates": 1}, "demos": None}
    text = iterations_text([ROW], timings)
    said = (
        "unseen  greedy, free  40     50.0%    35.0% – 65.0%  0.625        +25.0 (12 won, 2 lost)  0.0129  0.0387  12.2"
    )
    assert said in text
    assert text.splitlines()[1].endswith("10.0%         3,600            1,234,567")
    assert "p: McNemar's exact test on the same games. p Holm: the same, corrected for the number of such tests" in text
    assert [line.split() for line in text.splitlines()][-1] == ["games", "9.0", "3.0", "1.0", "1.0", "1.0"]
    report = iteration_report(1, [ROW], {"prm-1": {"ranking": {"accuracy": 0.61}, "curve": [1, 2], "name": "x"}})
    assert report.startswith("# Iteration 1\n")
    assert BUDGET_WORDS in text.splitlines() and BUDGET_WORDS in report.splitlines()
    assert "| pick_and_place_simple | 40 | 50.0% |" in report
    assert "| ranking.accuracy | 0.61 |" in report
    assert "curve" not in report and "refused" not in text + report
    assert "Reward hacking" not in report
    assert "| 0.625 | +25.0 (12 won, 2 lost) | 0.0129 | 0.0387 |" in report


def test_table_and_report_say_which_prm_was_refused():
    said = "PRM 1 was refused (58 % [48, 68] of 184 pairs): policy 1 is policy 0"
    rows = [ROW, ROW | {"refused": said}, ROW | {"refused": said, "split": "seen"}, ROW | {"refused": None}]
    lines = iterations_text(rows, {}).splitlines()
    assert lines.count(said) == 1 and lines[7:] == ["", said]  # no stage ran here: no table of times
    report = iteration_report(1, [ROW], {"collect-1": {"refused": said}, "policy-1": {"refused": said, "steps": 0}})
    assert report.count(f"**{said}.**") == 1


def test_the_report_says_where_the_monitor_raised_its_flag():
    found = {"flag": 1, "flagged_at": 44, "signals": {"audit": 44, "unrealised": None, "repeated": 66}}
    report = iteration_report(1, [ROW], {"policy-1": {"monitor": found}})
    assert "**Reward hacking suspected** in policy-1: audit at step 44, repeated at step 66 (" in report


@pytest.mark.parametrize("flag", [True, False])
def test_what_a_monitor_found_is_told_where_people_look(flag, capsys):
    told = {}
    tracker = SimpleNamespace(tag=told.__setitem__, log_curve=told.__setitem__)
    stage = SimpleNamespace(name="policy@2", tracking=nullcontext, tracker=tracker)
    looks = [{"step": 44, "score": 0.9}]
    signals = {"audit": 44 if flag else None, "repeated": None}
    policy_stage._tell(stage, {"flag": flag, "signals": signals, "looks": looks})  # pyright: ignore[reportArgumentType]
    said = "audit at step 44" if flag else "none"
    assert told == {"reward_hacking": said, "monitor": looks}
    assert capsys.readouterr().out == (f"policy@2: reward hacking suspected: {said}\n" if flag else "")


def test_what_a_stage_kept_goes_once_dvc_has_its_outs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own, other, beside, killed = (Path(".scratch") / name for name in ("rollout@1", "sft", "prm@1", "label@1"))
    for folder in (own, other, beside, killed):
        folder.mkdir(parents=True)

    def swept(taken: float | None) -> list[bool]:
        for folder, ended in ((own, 100), (other, 100), (beside, 300)):
            if folder.exists():
                (folder / ENDED).touch()
                os.utime(folder / ENDED, (ended, ended))
        if taken is not None:
            Path("dvc.lock").touch()
            os.utime("dvc.lock", (taken, taken))
        _sweep(own)
        return [folder.exists() for folder in (own, other, beside, killed)]

    assert swept(None) == swept(50) == [True, True, True, True]
    assert not (own / ENDED).exists(), "it runs again: a stage that begins meanwhile leaves it what it has"
    assert swept(200) == [False, False, True, True]
