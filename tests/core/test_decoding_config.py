"""Names of ways of playing: each says all of it, and comes back as what it was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentprm_core.search.decoding_config import SCORERS, DecodingConfig, decoding

sizes = st.integers(2, 99)
temperatures = st.none() | st.sampled_from([0.1, 0.25, 0.7, 1.0, 1.5, 10.0])
scorers = st.sampled_from(SCORERS)
ways = st.one_of(
    st.builds(DecodingConfig, st.just("greedy")),
    st.builds(DecodingConfig, st.just("sample"), temperature=temperatures),
    st.builds(DecodingConfig, st.just("best_trajectory"), n=sizes, temperature=temperatures, path=st.booleans()),
    st.builds(DecodingConfig, st.just("best_of_n"), n=sizes, temperature=temperatures, by=scorers),
    st.builds(
        DecodingConfig,
        st.just("beam"),
        width=sizes,
        samples=sizes,
        temperature=temperatures,
        back=st.booleans(),
        path=st.booleans(),
        by=scorers,
    ),
    st.builds(DecodingConfig, st.just("lookahead"), n=sizes, depth=st.integers(0, 9), temperature=temperatures),
)


@given(ways)
def test_a_name_comes_back_as_what_it_was(way):
    assert decoding(way.name) == way


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("greedy", DecodingConfig("greedy")),
        ("best_of_16", DecodingConfig("best_of_n", n=16)),
        ("best_of_16@0.7", DecodingConfig("best_of_n", n=16, temperature=0.7)),
        ("best_trajectory_of_4", DecodingConfig("best_trajectory", n=4)),
        ("best_trajectory_of_4_path", DecodingConfig("best_trajectory", n=4, path=True)),
        (
            "best_trajectory_of_4_by_untrained_likelihood",
            DecodingConfig("best_trajectory", n=4, by="untrained_likelihood"),
        ),
        ("beam_1x16", DecodingConfig("beam", width=1, samples=16)),
        ("beam_4x2_back", DecodingConfig("beam", width=4, samples=2, back=True)),
        ("beam_8x8_path", DecodingConfig("beam", width=8, samples=8, path=True)),
        ("beam_2x2_back_path_by_head", DecodingConfig("beam", width=2, samples=2, back=True, path=True, by="head")),
        ("beam_1x16_back_by_random", DecodingConfig("beam", width=1, samples=16, back=True, by="random")),
        (
            "best_of_8_by_untrained_likelihood@0.7",
            DecodingConfig("best_of_n", n=8, by="untrained_likelihood", temperature=0.7),
        ),
        ("lookahead_of_8x1@1", DecodingConfig("lookahead", n=8, depth=1, temperature=1.0)),
    ],
)
def test_names(name, way):
    assert decoding(name) == way
    assert way.name == name
    assert way.is_search == (name != "greedy")


@pytest.mark.parametrize("name", ["", "best_of", "beam_4", "beam_4x", "best_of_-2", "best_of_16@", "best_of_16@hot",
                                  "best_of_16@-1", "best_of_16@0.7@0.8", "Greedy", "best_of_16 ", "best_of_16_back",
                                  "best_of_16@0.7_by_random"])  # fmt: skip
def test_a_name_that_there_is_not_says_which_there_are(name):
    with pytest.raises(ValueError, match=r"is not one of greedy, sample, best_of_N, .*lookahead_of_NxD"):
        decoding(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("best_of_1", "best_of_1: needs at least 2 to choose among"),
        ("best_trajectory_of_1", "best_trajectory_of_1: needs at least 2 to choose among"),
        ("beam_1x1", "beam_1x1: of one sample nothing is chosen"),
        ("beam_0x4", "beam_0x4: needs numbers of at least 1"),
        ("best_of_4_by_chance", "'chance' is not one of prm, head, trained_likelihood"),
        ("beam_4x4_by_", "'' is not one of prm, head"),
        ("greedy@0.7", "greedy@0.7: greedy play draws nothing, so it has no temperature; sample has"),
        ("best_of_16@0", "best_of_16@0: needs a temperature above 0"),
        ("sample_by_random", "sample_by_random: only best_of_N and beam_NxM are played by another scorer than the PRM"),
        ("best_trajectory_of_4_by_random", "the PRM, and best_trajectory_of_N by untrained_likelihood"),
        ("best_trajectory_of_4_path_by_untrained_likelihood", "and best_trajectory_of_N by untrained_likelihood"),
    ],
)
def test_what_chooses_nothing_is_refused(name, message):
    with pytest.raises(ValueError, match=message):
        decoding(name)


def test_no_prior_beside_the_likelihood_that_it_estimates():
    assert decoding("best_of_16").prior(0.1) == decoding("beam_4x4_by_constant").prior(0.1) == 0.1
    assert decoding("best_of_16_by_untrained_likelihood").prior(0.1) == 0.0
