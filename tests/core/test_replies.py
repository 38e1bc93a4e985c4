"""What is guessed from earlier replies: what most of them said, and nothing that none of them said."""

from hypothesis import given
from hypothesis import strategies as st

from agentprm_core.policy.replies import KNOWN, SHARE, Replies

STOP = 0
replies = st.lists(st.lists(st.integers(1, 3), max_size=5).map(lambda said: (*said, STOP)), max_size=60)


def remembered(said):
    memory = Replies(STOP)
    for reply in said:
        memory.remember(reply)
    return memory


def test_a_reply_said_often_is_guessed_up_to_its_end():
    memory = remembered([(5, 6, 7, STOP)] * (5 * KNOWN))
    assert memory.likely((), 9) == (5, 6, 7)
    assert memory.likely((5,), 1) == (6,)
    assert memory.likely((5, 6, 7), 9) == ()
    assert memory.likely((6,), 9) == (), "nobody began so"


def test_nothing_is_guessed_of_few_replies_or_where_they_part():
    assert remembered([(5, STOP)] * (KNOWN - 1)).likely((), 9) == ()
    assert remembered([(5, 6, STOP), (5, 7, STOP)] * 50).likely((), 9) == (5,)


def test_a_guess_ends_where_half_of_those_who_began_have_left_it():
    """After (5) six in ten go on with 6, of those two thirds with 7: likely by itself, but not from the beginning."""
    memory = remembered(([(5, 6, 7, STOP)] * 4 + [(5, 6, 8, STOP)] * 2 + [(5, 9, STOP)] * 4) * 50)
    assert memory.likely((5,), 9) == (6,)
    assert memory.likely((5, 6), 9) == (7,)


def test_replies_said_once_leave_next_to_nothing():
    memory = remembered([(5, number, *range(20), STOP) for number in range(1000, 2000)])
    nodes, count = [memory._root], 0
    while nodes:
        nodes += nodes.pop().after.values()
        count += 1
    assert count < 1_100


@given(replies, st.lists(st.integers(0, 3), max_size=4), st.integers(0, 4))
def test_a_guess_is_what_more_than_a_share_said(said, path, most):
    guess = remembered(said).likely(path, most)
    began = [reply for reply in said if reply[: len(path)] == tuple(path)]
    followed = [reply for reply in began if reply[len(path) : len(path) + len(guess)] == guess]
    assert len(guess) <= most
    assert STOP not in guess
    if guess:
        # counts leave out the first few of every place, so some fewer than the share are allowed for
        assert len(followed) > SHARE * (len(began) - KNOWN * (len(path) + 1))
        assert len(followed) >= 1
