"""A recorder of a beam search sees what the search did, and changes nothing."""

from collections import Counter, defaultdict

import pytest

from agentprm_core.rollout import starts
from agentprm_core.search.beam import BeamSearch
from agentprm_core.search.recorded import BACK, CROWDED, ENDED, FATES, KEPT, MERGED, PASSED, WON, Weighed, last_fates
from agentprm_core.worlds import make_world
from tests.model.test_search import GAMES, prm_of, sampler, scorer

WIDTH, SAMPLES = 3, 4


def searched(engine, recorder=None):
    search = BeamSearch(sampler(slots=6), scorer(prm_of(0.0), 6), width=WIDTH, samples=SAMPLES, recorder=recorder)
    found = search.search(starts(GAMES, 1, 4), world_name=engine, max_turns=6)
    return sorted(found, key=lambda episode: episode.game_id)


@pytest.fixture
def recorded(toy_engine):
    told = defaultdict(list)
    episodes = searched(toy_engine, lambda start, weighed: told[start.game.id].append(weighed))
    return episodes, told


def test_nothing_changes_by_being_watched(toy_engine, recorded):
    episodes, _ = recorded
    plain = searched(toy_engine)
    assert episodes == plain and [e.extra for e in episodes] == [e.extra for e in plain]


def test_the_path_found_was_kept_at_every_depth(recorded):
    episodes, told = recorded
    for episode in episodes:
        fates = {weighed.path: weighed.fate for weighed in last_fates(told[episode.game_id])}
        actions = tuple(turn.action for turn in episode.turns)
        assert {fates[actions[:depth]] for depth in range(1, len(actions))} <= {KEPT}
        assert fates[actions] == (WON if episode.won else ENDED)
    assert {episode.won for episode in episodes} == {True, False}


def test_every_depth_keeps_at_most_the_width_and_weighs_all_samples(recorded):
    _, told = recorded
    for weighed in told.values():
        kept = Counter(len(w.path) for w in weighed if w.fate == KEPT)
        assert max(kept.values()) <= WIDTH
        by_parent = Counter()
        for w in weighed:
            by_parent[w.path[:-1]] += w.samples
        assert by_parent[()] == WIDTH * SAMPLES
        assert {n for path, n in by_parent.items() if path} <= {SAMPLES, 0}
    assert {w.fate for of_game in told.values() for w in of_game} <= {*FATES}


def test_fates_are_true_of_the_states_that_paths_lead_to(recorded):
    _, told = recorded
    seen = Counter()
    for game in GAMES:
        world = make_world("toy")

        def states(path, world=world, game=game):
            world.reset(game)
            keys = [world.state_key()]
            for action in path:
                world.step(action)
                keys.append(world.state_key())
            return keys

        fates = [w for w in told[game.id] if w.samples]
        kept = {depth: {states(w.path)[-1] for w in fates if w.fate == KEPT and len(w.path) == depth}
                for depth in range(1, 8)}  # fmt: skip
        for w in fates:
            seen[w.fate] += 1
            *before, last = states(w.path)
            if w.fate == BACK:
                assert last in before
            elif w.fate == MERGED:
                assert last in kept[len(w.path)]
    assert {KEPT, MERGED, BACK, PASSED} <= seen.keys()


def test_a_path_told_of_again_has_its_last_fate_and_its_count():
    first = Weighed(("look",), 3, 0.5, 0.4, KEPT)
    again = Weighed(("look",), 0, 0.5, 0.4, CROWDED)
    other = Weighed(("go",), 1, 0.2, 0.1, PASSED)
    assert last_fates([first, other, again]) == [Weighed(("look",), 3, 0.5, 0.4, CROWDED), other]
