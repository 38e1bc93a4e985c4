"""The scripted policy of ``benchmarks.credit``: where its episodes start, and which of their turns are judged."""

from agentprm_core.worlds import make_world
from agentprm_core.worlds.alfworld.households import generate_games
from benchmarks.credit import judged, play, starts


def test_an_episode_with_resets_starts_on_the_experts_way_and_is_judged_from_there():
    world, games = make_world("alfworld"), generate_games(4, 3, "train")
    episodes, drawn = [], []
    for game in games:
        expert = play(world, game, 0, noise=0.0)
        assert expert.won
        for start in starts(world, game, 8, seed=1):
            assert 0 <= start < expert.length
            found = play(world, game, len(episodes), noise=0.99, start=start)
            assert found.start == start and found.turns[:start] == expert.turns[:start]
            episodes.append(found)
            drawn.append(start)
    assert len(set(drawn)) > 4
    rows = [place for group in judged(episodes, 100, seed=0) for place in group]
    assert rows and all(t >= episodes[e].start for e, t in rows)
    assert {t for _, t in rows} & set(range(3)), "turns after an early start are judged"
