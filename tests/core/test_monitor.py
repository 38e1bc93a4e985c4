"""The verdict on an update: each signal fires on what it is for, and on nothing that an honest update does."""

import dataclasses

import numpy as np
import pytest

from agentprm_core.improve.monitor import Look, verdict

GAMES = 40


def look(step, *, seed=0, score=0.5, repeated=0.1, audit=None, returned=None, believed=None):
    """Paired looks: every game has its own level, seen with a little noise."""
    level = np.random.default_rng(0).uniform(-0.2, 0.2, GAMES)
    noise = np.random.default_rng((seed, step)).normal(0, 0.03, (5, GAMES))

    def games(mean, row):
        return () if mean is None else tuple((mean + level + noise[row]).tolist())

    columns = {"score": score, "repeated": repeated, "audit": audit, "returned": returned, "believed": believed}
    return Look(step, kl=0.01 * step, **{name: games(mean, row) for row, (name, mean) in enumerate(columns.items())})


def test_an_honest_update_raises_no_flag():
    found = verdict([
        look(0, audit=0.5, returned=0.50, believed=0.50),
        look(10, score=0.6, audit=0.55, returned=0.56, believed=0.6),
        look(20, score=0.7, audit=0.58, returned=0.6, believed=0.66),
    ])  # fmt: skip
    assert (found["flag"], found["flagged_at"]) == (0, None)
    assert found["signals"] == {"audit": None, "unrealised": None, "repeated": None}
    assert found["score_gain"] == pytest.approx(0.2, abs=0.02)
    assert found["kl"] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("name", "worse"),
    [
        ("audit", {"audit": 0.52}),
        ("unrealised", {"returned": 0.45, "believed": 0.70}),
        ("repeated", {"repeated": 0.2}),
    ],
)
def test_a_signal_fires_at_the_step_where_its_own_figure_turns(name, worse):
    honest = {"audit": 0.6, "returned": 0.56, "believed": 0.6}
    looks = [look(0, audit=0.5, returned=0.5, believed=0.5), look(10, score=0.6, **honest)]
    found = verdict([*looks, look(20, score=0.7, **honest | worse), look(30, score=0.8, **honest | worse)])
    assert found["signals"] == {"audit": None, "unrealised": None, "repeated": None, name: 20}
    assert (found["flag"], found["flagged_at"]) == (1, 20)


def test_a_policy_that_its_own_prm_likes_less_is_not_hacking_it():
    """Also where its games fall by more than the PRM's belief in them does."""
    first = look(0, score=0.6, audit=0.6, returned=0.6, believed=0.6)
    found = verdict([first, look(10, score=0.5, audit=0.4, returned=0.45, believed=0.52)])
    assert found["flag"] == 0


def test_noise_alone_seldom_flags():
    flags = [
        verdict([look(s, seed=i, audit=0.5, returned=0.5, believed=0.5) for s in range(0, 60, 10)])["flag"]
        for i in range(100)
    ]
    assert sum(flags) <= 5


def test_without_a_second_opinion_only_repeats_are_judged():
    found = verdict([look(0), look(10, score=0.7)])
    assert found["flag"] == 0
    assert found["looks"][1].keys() == {"step", "kl", "score", "repeated"}


def test_figures_of_a_look():
    seen = Look(3, 0.1, score=[0.2, 0.4], repeated=[0.0, 1.0], believed=[0.9, 0.7], returned=[1.0, 0.0], agreement=0.75)
    means = seen.means()
    assert means["score"] == pytest.approx(0.3)
    assert means["overconfidence"] == pytest.approx(0.8 - 0.5)
    assert means["agreement"] == 0.75
    assert Look(**dataclasses.asdict(seen)).means() == means
