"""Tries and the two ways of decoding on them: nothing is lost, nothing is made up, and guessing changes nothing."""

from types import SimpleNamespace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentprm_core.policy.decoding import Constrained, Decision, Free, Line
from agentprm_core.policy.trie import Leaf, Node, Unspeakable, build_trie, spelling

STOP, UNKNOWN = 0, 9
commands = st.lists(st.text("abcd", min_size=1, max_size=5), min_size=1, max_size=12, unique=True).map(tuple)


class Letters:
    """A renderer for which a letter is a token, and ``?`` the unknown one."""

    stop_token = STOP

    def action_text(self, command):
        return tuple(UNKNOWN if letter == "?" else ord(letter) - ord("a") + 1 for letter in command)

    def parse(self, tokens):
        return "", "".join(chr(ord("a") + token - 1) for token in tokens if token != STOP)


POLICY = SimpleNamespace(renderer=Letters(), tokenizer=SimpleNamespace(unk_token_id=UNKNOWN))


def spelt(commands):
    return [spelling((*Letters().action_text(command), STOP), command) for command in commands]


def walk(edge, before=()):
    """The spelling of every way to a leaf; checks each node on the way."""
    path = (*before, *edge.forced)
    if isinstance(edge.end, Leaf):
        return [spelling(path, edge.end.command)]
    assert len(edge.end.tokens) > 1
    assert list(edge.end.tokens) == sorted(set(edge.end.tokens))
    return [way for token in edge.end.tokens for way in walk(edge.end.edge(token), (*path, token))]


@given(commands)
def test_the_ways_through_a_trie_are_its_commands(commands):
    assert sorted(walk(build_trie(spelt(commands)))) == sorted(spelt(commands))


def test_of_two_commands_with_one_spelling_the_first_counts():
    edge = build_trie([spelling((1, 2, STOP), "go to the cabinet"), spelling((1, 2, STOP), "go to a cabinet")])
    assert edge.forced == (1, 2, STOP)
    assert edge.end == Leaf("go to the cabinet")


def decode(decoding, commands, samples, draw):
    """All decisions, the draw of a sample being ``draw(sample, depth, allowed tokens)``; and the calls it took."""
    first = decoding.start(commands, samples)
    if isinstance(first, Decision):
        return [first], 0
    lines, decisions, calls, path = [first], [], 0, []
    while lines:
        line: Line = lines.pop()
        path, calls = [*path[: line.keep], *line.feed], calls + 1
        allowed = decoding.allowed(line) or [None] * len(line.places)
        draws = [
            (draw(sample, line.depth + place, tokens), 0.5)
            for place, tokens in enumerate(allowed)
            for sample in line.samples
        ]
        progress = decoding.advance(line, path, iter(draws))
        lines += progress.lines
        decisions += progress.decisions
    return decisions, calls


def at_random(random):
    """Draws for :func:`decode`, the same ones whenever the same is asked."""
    drawn = {}
    return lambda sample, depth, allowed: drawn.setdefault(
        (sample, depth, tuple(allowed)), random.randrange(len(allowed))
    )


def said(decisions):
    return sorted((d.action, d.count) for d in decisions)


@given(commands, st.integers(1, 6), st.randoms(use_true_random=False))
def test_constrained_decoding_says_what_was_drawn(commands, samples, random):
    decisions, _ = decode(Constrained(POLICY), commands, samples, at_random(random))
    assert sum(d.count for d in decisions) == samples
    assert len({d.action for d in decisions}) == len(decisions)
    assert {d.action for d in decisions} <= set(commands)


@given(commands, st.integers(1, 6), st.randoms(use_true_random=False))
def test_guessing_what_is_likely_changes_nothing_but_the_calls(commands, samples, random):
    draw = at_random(random)  # the same draws both times
    with_guesses, calls = decode(Constrained(POLICY), commands, samples, draw)
    with patch.object(Node, "likely", None):
        without, more_calls = decode(Constrained(POLICY), commands, samples, draw)
    assert sorted(with_guesses) == sorted(without)
    assert calls <= more_calls


def test_most_commands_under_one_token_are_guessed_and_save_a_call():
    def draws(word):
        spelling = (*Letters().action_text(word), STOP)
        return lambda sample, depth, allowed: allowed.index(spelling[depth]) if spelling[depth] in allowed else 0

    commands = ("aa", "ab", "ac", "b")  # after ``a`` there is a decision left
    assert decode(Constrained(POLICY), commands, 3, draws("ab")) == ([Decision("ab", "", 1.0, 3)], 1)
    assert decode(Constrained(POLICY), commands, 3, draws("b")) == ([Decision("b", "", 0.5, 3)], 1)
    assert decode(Constrained(POLICY), ("aa", "ab", "b", "c"), 1, draws("ab"))[1] == 2, "no more than half"


@given(commands, st.integers(1, 6), st.integers(2, 7), st.randoms(use_true_random=False))
def test_guessing_changes_nothing_but_the_calls(commands, samples, most, random):
    """Samples that mostly follow a command, and sometimes leave it."""
    wanted = [(*Letters().action_text(random.choice(commands)), STOP) for _ in range(samples)]
    strays = {(s, d): random.randrange(5) for s in range(samples) for d in range(8) if random.random() < 0.1}

    def draw(sample, depth, allowed):
        spelling = wanted[sample]
        return strays.get((sample, depth), spelling[depth] if depth < len(spelling) else STOP)

    guessing, unguessing = Free(POLICY, most), Free(POLICY, most)
    unguessing._trie = lambda commands: None
    (with_guesses, calls), (without, more_calls) = (
        decode(free, commands, samples, draw) for free in (guessing, unguessing)
    )
    assert said(with_guesses) == said(without)
    assert sorted(d.log_prob for d in with_guesses) == sorted(d.log_prob for d in without)
    assert calls <= more_calls


def test_a_guess_that_comes_true_saves_calls():
    def draw(sample, depth, allowed):
        return (*Letters().action_text("abcd"), STOP)[depth]

    assert decode(Free(POLICY, 16), ("abcd", "bb"), 1, draw)[1] == 2


def test_free_decoding_needs_no_speakable_command_and_constrained_does():
    assert decode(Free(POLICY, 3), ("?",), 1, lambda *_: 1)[0][0].action == "aaa"
    with pytest.raises(Unspeakable, match="none of the 1 admissible commands is made of known tokens"):
        Constrained(POLICY).start(("?",), 1)
    assert Constrained(POLICY).start(("?", "ab"), 2) == Decision("ab", "", 0.0, 2)
