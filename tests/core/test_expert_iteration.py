"""Expert iteration: what is searched, kept over a kill, and imitated."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from agentprm_core.credit.cutting import Cut
from agentprm_core.datasets import episodes_from_table
from agentprm_core.draws import share_of
from agentprm_core.errors import DataError
from agentprm_core.expectations import Check
from agentprm_core.improve import rft
from agentprm_core.methods import expert_iteration, update_base
from agentprm_core.methods.expert_iteration import Config, collect, knows_an_end, update
from agentprm_core.policy.models import Checkpoint
from agentprm_core.prm.model import new_prm
from agentprm_core.types import Episode, Turn
from tests.core.given import PLAY, given, know, write_episodes, write_games
from tests.model import toy

CONFIG = Config(
    name="expert_iteration", learning_rate=0.1, steps=5, batch_tokens=64, games=2, search="beam_1x3", keeps="won",
    replay=0.0,
)  # fmt: skip
APART = Check("demonstrated games", pa.table({"chance": [1.0]}), ("chance",), ())
WON = Episode("game", 0, 0, (Turn("a room", "look", ("look",), True, "s"),), True)


class Killed(Exception):
    pass


@pytest.fixture
def searching(tmp_path, monkeypatch):
    """``searching(config, **changes)`` searches two of four games; ``.played`` are the games of each portion that was,
    ``.dies_at`` the portion before which the next one is killed."""
    policy = toy.policy()
    prm = Checkpoint(new_prm(policy.model).eval(), policy.tokenizer, policy.renderer, "prm")
    games = [toy.game(n) for n in range(4)]
    playing = expert_iteration.play_games

    def noted(policy, prm, games, *how):
        if len(searched.played) == searched.dies_at:
            raise Killed
        searched.played.append([game.id for game in games])
        return playing(policy, prm, games, *how)

    def searched(config=CONFIG, **changes):
        data = given(tmp_path, **({"play": replace(PLAY, slots=4, max_turns=4), "prior": 0.1} | changes))
        write_games(data, games)
        return collect(config, know(data, policy=policy, prm=prm))

    searched.played, searched.dies_at, searched.games, searched.policy = [], None, games, policy
    monkeypatch.setattr(expert_iteration, "of_search", lambda given, searched: ({"in_rollouts": 0.5}, APART))
    monkeypatch.setattr(expert_iteration, "play_games", noted)
    return searched


def test_every_game_is_searched_once(searching):
    """Those at the far end of the order that rollouts draw from."""
    table = searching().table
    episodes = list(episodes_from_table(table))
    wanted = share_of(searching.games, 2, seed=1, iteration=1, backwards=True)
    assert [episode.game_id for episode in episodes] == [game.id for game in wanted]
    assert set(table["method"].to_pylist()) == {"beam_1x3"}
    assert set(table["policy"].to_pylist()) == {searching.policy.digest}
    assert all(1 <= episode.length <= 4 for episode in episodes)


def test_figures_and_checks_are_of_what_was_searched(searching):
    found = searching()
    episodes = list(episodes_from_table(found.table))
    assert found.figures == {
        "games": 2,
        "turns": sum(episode.length for episode in episodes),
        "success": sum(episode.won for episode in episodes) / 2,
        "mean_actions": sum(episode.length for episode in episodes) / 2,
        "in_rollouts": 0.5,
    }
    assert [check.name for check in found.checks] == ["search turns", "search episodes", "search games", APART.name]


def test_a_killed_search_plays_what_is_missing(searching):
    whole = searching().table
    assert len(searching.played) == 2  # fewer games than portions
    second = searching.played[1]
    searching.played.clear()
    assert searching().table == whole and searching.played == []
    searching.dies_at = 1
    with pytest.raises(Killed):
        searching(prior=0.2)
    searching.dies_at = None
    searching.played.clear()
    searching(prior=0.2)
    assert searching.played == [second]


def test_other_settings_search_anew_and_slots_do_not(searching):
    searching()
    searching(play=replace(PLAY, slots=3, cache_mb=100, max_turns=4))
    assert len(searching.played) == 2
    searching(replace(CONFIG, search="best_of_3"))
    searching(temperature=1.0)
    assert len(searching.played) == 6


def test_what_is_no_search_is_refused():
    with pytest.raises(ValueError, match=r"^search: 'greedy' is not allowed: a search, as beam_1x16"):
        replace(CONFIG, search="greedy")
    with pytest.raises(ValueError, match="'best' is not one of greedy"):
        replace(CONFIG, search="best")


@pytest.fixture
def imitation(tmp_path, monkeypatch):
    """The data of an update whose training only says what it was given."""
    monkeypatch.setattr(update_base, "train_sft", lambda kept, *_: (list(kept), {}))
    policy = toy.policy()
    prm = Checkpoint(None, policy.tokenizer, None, "prm")
    return know(given(tmp_path), trainee=policy, prm=prm, most_turns=defaultdict(lambda: 30))


def test_what_the_search_won_is_imitated(imitation):
    """Not the rollouts, and no game that was lost."""
    write_episodes(imitation.folders.collected, [replace(WON, game_id=f"game/{n}", won=n != 1) for n in range(3)])
    updated = update(CONFIG, imitation)
    assert [episode.game_id for episode in updated.model] == ["game/0", "game/2"]
    assert updated.figures == {"imitated": 2, "demonstrations": 0}


def test_what_ends_as_demonstrations_do_is_imitated_whatever_its_outcome(imitation, monkeypatch, capsys):
    searched = [replace(WON, game_id=f"game/{n}", won=n == 3) for n in range(4)]
    searched[1] = replace(searched[1], turns=WON.turns * 30)  # ran out of actions, and scores as an expert's end
    write_episodes(imitation.folders.demos, [replace(WON, game_id=f"demo/{n}") for n in range(20)])
    write_episodes(imitation.folders.collected, searched)
    ends = iter([[0.2, 0.7, 0.1, 0.6], np.linspace(0.45, 0.83, 20)])  # one demonstration in twenty is below 0.47
    monkeypatch.setattr(rft, "score_episodes", lambda *_: [np.array([0.9, end]) for end in next(ends)])
    updated = update(replace(CONFIG, keeps="expert_like"), imitation)
    assert [episode.game_id for episode in updated.model] == ["game/1", "game/3"]
    assert updated.figures == {
        "imitated": 2, "demonstrations": 0, "out_of_actions": 1, "out_of_actions_imitated": 1,
    }  # fmt: skip
    assert "1 of the 1 episodes that ran out of actions are imitated" in capsys.readouterr().out


def test_what_ended_early_is_imitated_without_a_prm(imitation):
    """Whatever its outcome: a world may end lost episodes too."""
    searched = [replace(WON, game_id=f"game/{n}", won=n == 0) for n in range(3)]
    searched[2] = replace(searched[2], turns=WON.turns * 30)
    write_episodes(imitation.folders.collected, searched)
    imitation.__dict__["prm"] = None
    updated = update(replace(CONFIG, keeps="ended_early"), imitation)
    assert [episode.game_id for episode in updated.model] == ["game/0", "game/1"]
    assert updated.figures == {"imitated": 2, "demonstrations": 0}
    write_episodes(imitation.folders.collected, searched[2:])
    with pytest.raises(DataError, match="none of the 1 episodes ended before its last action: nothing to imitate"):
        update(replace(CONFIG, keeps="ended_early"), imitation)


def test_where_nothing_tells_an_end_cut_episodes_are_held_against_cut_demonstrations(imitation, monkeypatch):
    """And what is imitated is cut too. The end of no episode is scored but where the cut comes after it."""
    turns = tuple(WON.turns[0]._replace(action=f"go to place {t}") for t in range(30))
    searched = [replace(WON, game_id=f"game/{n}", turns=turns[: 30 - 20 * (n % 2)]) for n in range(20)]
    demos = [replace(WON, game_id=f"demo/{n}", turns=turns[:15]) for n in range(20)]
    write_episodes(imitation.folders.collected, searched)
    write_episodes(imitation.folders.demos, demos)
    scored = []

    def score(prm, renderer, episodes, tokens):
        scored.append([episode.length for episode in episodes])
        return [np.array([float(len(scored) == 2 or n % 4 == 0)]) for n in range(len(episodes))]

    monkeypatch.setattr(rft, "score_episodes", score)
    updated = update(replace(CONFIG, keeps="expert_like_cut"), imitation)
    cut = Cut(imitation.most_turns, imitation.campaign_seed)
    lengths = [cut.episode(episode, "searched 1").length for episode in sorted(searched, key=lambda e: e.game_id)]
    assert scored[0] == lengths and len(set(lengths)) > 5
    assert scored[1] == [cut.episode(demo, 0).length for demo in sorted(demos, key=lambda e: e.game_id)]
    assert [episode.length for episode in updated.model] == lengths[::4]
    assert updated.figures["mean_actions_imitated"] == sum(lengths[::4]) / 5


@pytest.mark.parametrize(("imitated", "said"), [(1, False), (2, True)])
def test_a_prm_that_does_not_know_an_end_is_spoken_of(imitated, said, capsys):
    """Where more than a tenth of what ran out of actions is imitated; replayed actions count, as where it is played."""
    short = [replace(WON, turns=WON.turns * 29)]
    long = [replace(WON, turns=WON.turns * 30, start=6)] * 10
    found = knows_an_end([*short, *long], [*short, *long[:imitated]], {WON.game_id: 30})
    assert found == {"out_of_actions": 10, "out_of_actions_imitated": imitated}
    assert ("hardly knows how an expert ends" in capsys.readouterr().out) == said
