"""What conversations have in common, against a loop over their tokens."""

from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st

from agentprm_core.policy.conversations import common_prefix

tokens = st.lists(st.integers(0, 2), max_size=40)


@given(tokens, tokens, tokens)
def test_the_longest_common_prefix(before, a, b):
    a, b = before + a, before + b
    assert common_prefix(a, b) == len(list(takewhile(lambda pair: pair[0] == pair[1], zip(a, b))))
