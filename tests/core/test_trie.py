"""Tries and the two ways of decoding on them: nothing is lost, nothing is made up, and guessing changes nothing."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentprm_core.policy.decoding import Constrained, Decision, Free, Said
from agentprm_core.policy.drawing import EVERYTHING, AllBut
from agentprm_core.policy.trie import Leaf, Unspeakable, build_trie, spelling
from agentprm_core.worlds.base import admits

STOP, UNKNOWN = 0, 9
EACH = {0, 1, 2, 3, 4, 9}
"""The vocabulary."""
commands = st.lists(st.text("abcd", min_size=1, max_size=5), min_size=1, max_size=12, unique=True).map(tuple)


class Letters:
    """A renderer for which a letter is a token, and ``?`` the unknown one."""

    stop_token = STOP

    def action_text(self, command):
        return tuple(UNKNOWN if letter == "?" else ord(letter) - ord("a") + 1 for letter in command)

    marks = frozenset({STOP, UNKNOWN})

    def words(self, text):
        return self.action_text(text)

    def said(self, tokens):
        return self.parse(tokens)[1]

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
    if isinstance(first, Said):
        return [first.decision], 0
    lines, decisions, calls, path = [first], [], 0, []
    while lines:
        line = lines.pop()
        path, calls = [*path[: line.keep], *line.feed], calls + 1
        allowed = line.way.allowed(line)
        draws = [
            (draw(sample, line.depth + place, tokens), 0.5)
            for place, tokens in enumerate(allowed)
            for sample in line.samples
        ]
        progress = line.way.advance(line, path, iter(draws))
        lines += progress.lines
        decisions += [said.decision for said in progress.said]
    return decisions, calls


def at_random(random):
    """Draws for :func:`decode`, the same ones whenever the same is asked."""
    drawn = {}
    return lambda sample, depth, allowed: drawn.setdefault((sample, depth, tuple(allowed)), random.choice(allowed))


def said(decisions):
    return sorted((d.action, d.count) for d in decisions)


@given(commands, st.integers(1, 6), st.randoms(use_true_random=False))
def test_constrained_decoding_says_what_was_drawn(commands, samples, random):
    decisions, _ = decode(Constrained(POLICY, 9), commands, samples, at_random(random))
    assert sum(d.count for d in decisions) == samples
    assert len({d.action for d in decisions}) == len(decisions)
    assert {d.action for d in decisions} <= set(commands)


@given(commands, st.integers(1, 6), st.randoms(use_true_random=False))
def test_guessing_what_is_likely_changes_nothing_but_the_calls(commands, samples, random):
    draw = at_random(random)  # the same draws both times
    with_guesses, calls = decode(Constrained(POLICY, 9), commands, samples, draw)
    without, more_calls = decode(Constrained(POLICY, 9, guessing=False), commands, samples, draw)
    assert sorted(with_guesses) == sorted(without)
    assert calls <= more_calls


def test_most_commands_under_one_token_are_guessed_and_save_a_call():
    def draws(word):
        spelling = (*Letters().action_text(word), STOP)
        return lambda sample, depth, allowed: spelling[depth] if spelling[depth] in allowed else allowed[0]

    commands = ("aa", "ab", "ac", "b")  # after ``a`` there is a decision left
    assert decode(Constrained(POLICY, 9), commands, 3, draws("ab")) == ([Decision("ab", "", 1.0, 3)], 1)
    assert decode(Constrained(POLICY, 9), commands, 3, draws("b")) == ([Decision("b", "", 0.5, 3)], 1)
    assert decode(Constrained(POLICY, 9), ("aa", "ab", "b", "c"), 1, draws("ab"))[1] == 2, "no more than half"


@given(commands, st.integers(1, 6), st.integers(2, 7), st.randoms(use_true_random=False))
def test_guessing_changes_nothing_but_the_calls(commands, samples, most, random):
    """Samples that mostly follow a command, and sometimes leave it."""
    wanted = [(*Letters().action_text(random.choice(commands)), STOP) for _ in range(samples)]
    strays = {(s, d): random.randrange(5) for s in range(samples) for d in range(8) if random.random() < 0.1}

    def draw(sample, depth, allowed):
        spelling = wanted[sample]
        return strays.get((sample, depth), spelling[depth] if depth < len(spelling) else STOP)

    ways = Free(POLICY, most), Free(POLICY, most, guessing=False)
    (with_guesses, calls), (without, more_calls) = (decode(free, commands, samples, draw) for free in ways)
    assert said(with_guesses) == said(without)
    assert sorted(d.log_prob for d in with_guesses) == sorted(d.log_prob for d in without)
    assert calls <= more_calls


def test_a_guess_that_comes_true_saves_calls():
    def draw(sample, depth, allowed):
        return (*Letters().action_text("abcd"), STOP)[depth]

    assert decode(Free(POLICY, 16), ("abcd", "bb"), 1, draw)[1] == 2


@given(st.lists(st.text("ab", max_size=6), min_size=1, max_size=60), st.integers(1, 6), st.integers(2, 7), st.randoms())
def test_guessing_by_earlier_replies_changes_nothing_but_the_calls(earlier, samples, most, random):
    """Samples that mostly say what was said before, and sometimes leave it, where no command is listed."""
    taught, without = Free(POLICY, most), Free(POLICY, most, guessing=False)
    for text in earlier:
        decode(taught, (), 3, says(text))
    wanted = [(*Letters().action_text(random.choice(earlier)), STOP) for _ in range(samples)]
    strays = {(s, d): random.randrange(5) for s in range(samples) for d in range(8) if random.random() < 0.1}

    def draw(sample, depth, allowed):
        return strays.get((sample, depth), (*wanted[sample], *[STOP] * 8)[depth])

    (guessed, calls), (plain, more_calls) = (decode(free, (), samples, draw) for free in (taught, without))
    assert said(guessed) == said(plain)
    assert sorted(d.log_prob for d in guessed) == sorted(d.log_prob for d in plain)
    assert calls <= more_calls


def test_a_reply_that_is_said_again_and_again_takes_one_call():
    free = Free(POLICY, 16)
    calls = [decode(free, (), 1, says("abcd"))[1] for _ in range(40)]
    assert calls[0] == 5
    assert calls[-1] == 1


def test_free_decoding_needs_no_speakable_command_and_constrained_does():
    assert decode(Free(POLICY, 3), ("?",), 1, lambda *_: 1)[0][0].action == "aaa"
    with pytest.raises(Unspeakable, match="none of the 1 admissible commands is made of known tokens"):
        Constrained(POLICY, 9).start(("?",), 1)
    only = Constrained(POLICY, 9).start(("?", "ab"), 2)
    assert only == Said(Decision("ab", "", 0.0, 2), (0, 1), 0, (1, 2, STOP))


def says(text):
    """Draws that write ``text``, whatever is allowed; the same for every sample."""
    tokens = (*Letters().action_text(text), STOP)
    return lambda sample, depth, allowed: tokens[depth] if depth < len(tokens) else STOP


def test_where_nothing_is_listed_any_text_is_an_action():
    assert decode(Constrained(POLICY, 6), (), 2, says("cab"))[0] == [Decision("cab", "", 2.0, 2)]
    assert decode(Constrained(POLICY, 2), (), 1, says("cab"))[0][0].action == "ca"
    line = Constrained(POLICY, 6).start((), 1)
    assert line.way.allowed(line) == [EVERYTHING]


def drawn_as(text, most=9, commands=("a…d", "a…c", "bb")):
    """(what is said, what was allowed at each draw) where the letters of ``text`` are drawn, and then the end."""
    asked, tokens = [], (*Letters().action_text(text), STOP)

    def draw(sample, depth, allowed):
        asked.append(allowed)
        return tokens[depth]

    ((decision,), _) = decode(Constrained(POLICY, most, guessing=False), commands, 1, draw)
    return decision.action, asked


def test_a_template_is_walked_written_and_closed():
    """``a…d`` and ``a…c``: a letter or more between, which a ``d`` or ``c`` ends."""
    said, asked = drawn_as("abbc")
    assert said == "abbc"
    assert asked[0] == (1, 2)
    assert [sorted(allowed.tokens) for allowed in asked[1:]] == [[STOP, UNKNOWN]] * 3, "all but marks"
    assert drawn_as("add")[0] == "add", "the first letter closes nothing"
    assert drawn_as("bb")[0] == "bb"


def test_text_without_an_end_is_closed_at_the_limit():
    said, asked = drawn_as("abbbbd", most=5)
    assert said == "abbbbd"
    assert asked[-1] == (3, 4), "one of the closing tokens"
    assert Constrained(POLICY, 5).longest(("a…d",)) == 8, "room for the text and what must follow it"


def test_a_template_may_end_in_text_or_have_several():
    said, asked = drawn_as("dbc", commands=("d…", "a"))
    assert (said, STOP in asked[-1].tokens) == ("dbc", False), "the end closes"
    assert STOP in asked[1].tokens, "but not before there is any"
    assert drawn_as("bbcad", commands=("a…c…d",))[0] == "abbcad"
    assert drawn_as("ab", commands=("a……b",))[0] == "aab", "two with nothing between them are one"


def test_a_listed_command_goes_before_text():
    commands = ("a…", "ab")
    assert drawn_as("bb", commands=commands)[0] == "ab"
    assert drawn_as("cb", commands=commands)[0] == "acb"


open_commands = st.lists(st.text("abcd…", min_size=1, max_size=5), min_size=1, max_size=6, unique=True).map(tuple)


@given(open_commands, st.integers(1, 5), st.integers(2, 7), st.randoms(use_true_random=False))
def test_whatever_is_drawn_in_templates_is_admitted(commands, samples, most, random):
    drawn = {}

    def draw(sample, depth, allowed):
        tokens = allowed if isinstance(allowed, tuple) and not isinstance(allowed, AllBut) else EACH - {*allowed.tokens}
        among = tuple(sorted(tokens))  # a guess that is not taken draws at the same depth among others
        return drawn.setdefault((sample, depth, among), random.choice(among))

    decoding = Constrained(POLICY, most)
    with_guesses, calls = decode(decoding, commands, samples, draw)
    assert sum(decision.count for decision in with_guesses) == samples
    for decision in with_guesses:
        assert admits(commands, decision.action)
        assert len(decision.action) <= decoding.longest(commands)
    without, more_calls = decode(Constrained(POLICY, most, guessing=False), commands, samples, draw)
    assert sorted(with_guesses) == sorted(without)
    assert calls <= more_calls


@given(open_commands, st.integers(2, 7), st.randoms(use_true_random=False))
def test_what_an_action_was_drawn_among_is_told_afterwards(commands, most, random):
    asked = []

    def draw(sample, depth, allowed):
        open_ = isinstance(allowed, AllBut)
        asked.append((random.choice(sorted(EACH - {*allowed.tokens} if open_ else allowed)), allowed))
        return asked[-1][0]

    ((decision,), _) = decode(Constrained(POLICY, most, guessing=False), commands, 1, draw)
    tokens = (*Letters().action_text(decision.action), STOP)
    told = Constrained(POLICY, most).along(commands, tokens)
    drawn = [(token, allowed) for token, allowed in zip(tokens, told, strict=True) if allowed != (token,)]
    assert drawn == [(token, allowed) for token, allowed in asked if allowed != (token,)]


@given(commands)
def test_an_action_is_drawn_among_what_the_commands_go_on_with(commands):
    spellings = [(*Letters().action_text(command), STOP) for command in commands]
    for spelt in spellings:
        told = Constrained(POLICY, 9).along(commands, spelt)
        slow = [{other[i] for other in spellings if other[:i] == spelt[:i]} for i in range(len(spelt))]
        assert list(map(set, told)) == slow


def test_an_action_that_is_not_admissible_was_not_drawn():
    constrained = Constrained(POLICY, 9)
    for text in ("b", "abb", "abab", "abc"):
        assert constrained.along(("aba", "abd"), (*Letters().action_text(text), STOP)) is None
    assert constrained.along(("?",), (UNKNOWN, STOP)) is None
    assert constrained.along((), (1, STOP)) == [EVERYTHING] * 2


def test_what_is_admitted():
    assert admits(("look",), "look") and not admits(("look",), "loo")
    assert admits((), "anything")
    assert admits(("a……b",), "axb") and admits(("……",), "a") and not admits(("……",), "")
    assert admits(("get … oak log", "search[…]"), "get 2 oak log")
    assert admits(("search[…]",), "search[red (shoes)]") and not admits(("search[…]",), "search[]")
