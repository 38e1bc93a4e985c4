"""A world that breaks the contract while it is played: one line says what, where and what to do."""

import math
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Self

import pytest

from agentprm_core.datasets import games_to_table, write_table
from agentprm_core.errors import DataError
from agentprm_core.one_game import Minds, OneGame
from agentprm_core.policy.models import save_checkpoint
from agentprm_core.policy.sampler import Sampler
from agentprm_core.prm.model import new_prm
from agentprm_core.rollout import Start, play, starts
from agentprm_core.search.beam import BeamSearch
from agentprm_core.search.controls import Random
from agentprm_core.search.decoding_config import decoding
from agentprm_core.search.playing import PlaySettings, Search
from agentprm_core.types import Episode, Game
from agentprm_core.worlds import Observation
from agentprm_core.worlds.base import UnsupportedGame
from agentprm_core.worlds.demonstrations import demonstrate, none_won
from tasks.commands import standalone
from tests.model import toy

GAMES = [toy.game(n) for n in range(3)]


class Counting(toy.ToyWorld):
    """Knows how many steps were made."""

    steps = 0

    def step(self, command: str) -> Observation:
        self.steps += 1
        return super().step(command)


class Raises(Counting):
    def step(self, command: str) -> Observation:
        seen = super().step(command)
        return seen._replace(reward=0 / (self.steps - 2)) if self.steps == 2 else seen


class Pays(Counting):
    def step(self, command: str) -> Observation:
        seen = super().step(command)
        return seen._replace(reward=7.0 if self.steps == 2 else 0.0)


class PaysNan(Counting):
    def step(self, command: str) -> Observation:
        return super().step(command)._replace(reward=math.nan)


class PaysNothing(Counting):
    def step(self, command: str) -> Observation:
        return super().step(command)._replace(reward=None)


class PaysText(Counting):
    def step(self, command: str) -> Observation:
        return super().step(command)._replace(reward="1")


class Silent(Counting):
    def step(self, command: str) -> Observation:
        return None  # pyright: ignore[reportReturnType]


class SaysNoText(Counting):
    def step(self, command: str) -> Observation:
        return super().step(command)._replace(text=None)


class Lists(Counting):
    def reset(self, game: Game) -> Observation:
        return super().reset(game)._replace(admissible=["look"])


class ListsNumbers(Counting):
    def step(self, command: str) -> Observation:
        return super().step(command)._replace(admissible=("look", 7))


class RaisesAtReset(Counting):
    def reset(self, game: Game) -> Observation:
        raise KeyError("no such level")


class Leaves(Counting):
    def step(self, command: str) -> Observation:
        sys.exit("bye")


class Refuses(Counting):
    def reset(self, game: Game) -> Observation:
        raise UnsupportedGame(f"{game.id}: of another kind")


class ClonesItself(Counting):
    def clone(self) -> Self:
        return self


class Forgets(Counting):
    """A clone is at the game's first state."""

    def clone(self) -> Self:
        other = type(self)()
        other.reset(self.game)
        return other


class CannotClone(Counting):
    def clone(self) -> Self:
        raise RuntimeError("no copies")


class Wanders(Counting):
    """Being cloned changes it."""

    def clone(self) -> Self:
        other = super().clone()
        self.here += 1
        return other


class Keyless(Counting):
    def state_key(self) -> str:
        raise AttributeError("key")


class Numbered(Counting):
    def state_key(self) -> str:
        return self.steps  # pyright: ignore[reportReturnType]


RAISES, PAYS, PAYS_NAN, PAYS_NOTHING, PAYS_TEXT, RAISES_AT_RESET, LEAVES, REFUSES, KEYLESS, NUMBERED = (
    replace(toy.TOY, make=make)
    for make in (Raises, Pays, PaysNan, PaysNothing, PaysText, RaisesAtReset, Leaves, Refuses, Keyless, Numbered)
)
SILENT, SAYS_NO_TEXT, LISTS, LISTS_NUMBERS = (
    replace(toy.TOY, make=make) for make in (Silent, SaysNoText, Lists, ListsNumbers)
)
CLONES_ITSELF, FORGETS, CANNOT_CLONE, WANDERS = (
    replace(toy.TOY, make=make) for make in (ClonesItself, Forgets, CannotClone, Wanders)
)
LIKE_TOY = replace(toy.TOY, name="mine", texts_of="toy")


class Goes:
    """An expert that looks about."""

    def act(self, seen: Observation, done: str | None = None) -> str:
        return "look"


SHOWN = replace(RAISES, expert=lambda world, game, seed, knowledge: Goes())


class Falls:
    def act(self, seen, done=None):
        return {}["plan"] if done else "look"


class Wraps:
    """An expert that returns its command in a list."""

    def act(self, seen, done=None):
        return ["look"]


class Errs:
    def act(self, seen, done=None):
        return "fly" if done else "look"


FALLS = replace(SHOWN, expert=lambda world, game, seed, knowledge: Falls())
WRAPS = replace(SHOWN, expert=lambda world, game, seed, knowledge: Wraps())
ERRS = replace(toy.TOY, expert=lambda world, game, seed, knowledge: Errs())
NEVER_BEGINS = replace(SHOWN, expert=lambda world, game, seed, knowledge: Falls(world))


def named(attribute: str) -> str:
    return f"{__name__}:{attribute}"


def sampler() -> Sampler:
    return Sampler(toy.policy(), slots=4, context=512, temperature=2.0, constrained=True, max_action_tokens=8)


def played(attribute: str) -> Iterator[Episode]:
    return play(sampler(), starts(GAMES, 1, 4), world_name=named(attribute), max_turns=6)


def searched(attribute: str, begun: list[Start] | None = None) -> list[Episode]:
    beam = BeamSearch(sampler(), Random(), width=2, samples=2)
    return list(beam.search(begun or starts(GAMES, 1, 4), world_name=named(attribute), max_turns=6))


HERE = r" \(tests/model/test_guarded\.py:\d+\)"
"""Where a world or an expert raised."""
FAULTS = {
    "RAISES": r"step 2 \('.+'\): raised ZeroDivisionError: division by zero" + HERE,
    "PAYS": r"step 2 \('.+'\): the reward 7\.0 is not in \[0, 1\]",
    "PAYS_NAN": r"step 1 \('.+'\): the reward nan is not in \[0, 1\]",
    "PAYS_NOTHING": r"step 1 \('.+'\): the reward None is not in \[0, 1\]",
    "PAYS_TEXT": r"step 1 \('.+'\): the reward '1' is not in \[0, 1\]",
    "RAISES_AT_RESET": r"reset: raised KeyError: 'no such level'" + HERE,
    "LEAVES": r"step 1 \('.+'\): raised SystemExit: bye" + HERE,
    "KEYLESS": r"reset: state_key raised AttributeError: key" + HERE,
    "NUMBERED": r"reset: state_key is 0, not a string",
    "SILENT": r"step 1 \('.+'\): returned a NoneType, not an Observation",
    "SAYS_NO_TEXT": r"step 1 \('.+'\): the text None is not a string",
    "LISTS": r"reset: admissible must be a tuple of strings: \['look'\]",
    "LISTS_NUMBERS": r"step 1 \('.+'\): admissible must be a tuple of strings: \('look', 7\)",
}


@pytest.mark.parametrize("player", [played, searched])
@pytest.mark.parametrize("attribute", FAULTS)
def test_what_a_world_does_wrong_is_one_line_with_game_step_and_command(attribute, player):
    where = re.escape(named(attribute))
    line = rf"^{where}, toy/00\d, {FAULTS[attribute]}; run agentprm check-world {where}$"
    with pytest.raises(DataError, match=line):
        list(player(attribute))


@pytest.mark.parametrize(
    ("attribute", "says"),
    [
        ("CLONES_ITSELF", "reset: a clone, or a step in it, changes its world: state_key was "),
        ("WANDERS", "reset: a clone, or a step in it, changes its world: state_key was "),
        ("FORGETS", "a clone is in another state than its world: state_key was "),
        ("CANNOT_CLONE", f"reset: clone raised RuntimeError: no copies{HERE}; run agentprm check-world "),
    ],
)
def test_clones_that_are_none_end_a_search(attribute, says):
    assert len(list(played(attribute))) == len(GAMES), "nothing else needs them"
    with pytest.raises(DataError, match=f"^{re.escape(named(attribute))}, toy/00\\d, .*{says}"):
        searched(attribute)


def test_a_search_that_begins_in_the_middle_looks_at_the_clones_too():
    (begun,) = (replace(start, actions=("look", "go to cabinet 1")) for start in starts(GAMES[:1], 1, 4))
    with pytest.raises(DataError, match="a clone, or a step in it, changes its world"):
        searched("CLONES_ITSELF", [begun])


def test_an_expected_error_is_as_it_was():
    with pytest.raises(UnsupportedGame, match=r"^toy/000: of another kind$"):
        list(played("REFUSES"))


def test_demonstrations_say_it_too():
    how = {"world_name": named("SHOWN"), "max_turns": 6, "seed": 0, "knowledge": 1.0}
    with pytest.raises(DataError, match=r"toy/000, step 2 \('look'\): raised ZeroDivisionError"):
        demonstrate(Raises(), GAMES[0], **how)


@pytest.mark.parametrize(
    ("attribute", "says"),
    [
        ("FALLS", f"turn 2: the expert raised KeyError: 'plan'{HERE}; run agentprm check-world "),
        (
            "WRAPS",
            r"turn 1: the expert raised TypeError: act returned \['look'\], not a command; run agentprm check-world ",
        ),
        ("NEVER_BEGINS", rf"turn 1: the expert raised TypeError: Falls\(\) takes no arguments{HERE}; run agentprm "),
    ],
)
def test_an_expert_that_raises_ends_demonstrations_with_a_line(attribute, says):
    how = {"world_name": named(attribute), "max_turns": 6, "seed": 0, "knowledge": 1.0}
    with pytest.raises(DataError, match=f"^{re.escape(named(attribute))}, toy/000, {says}"):
        demonstrate(Counting(), GAMES[0], **how)


def test_an_expert_that_wins_nothing_is_told_with_what_is_not_admissible():
    how = {"max_turns": 6, "seed": 0, "knowledge": 1.0}
    lost = [demonstrate(toy.ToyWorld(), game, world_name=named("ERRS"), **how) for game in GAMES]
    assert none_won(lost, "mine:SPEC") == (
        "the expert won none of 3 games in 18 actions, 15 of them not admissible: the first is 'fly' in toy/000, "
        "turn 2; run agentprm check-world mine:SPEC"
    )
    looks = [replace(episode, turns=episode.turns[:1]) for episode in lost]
    assert none_won(looks, "mine:SPEC") == (
        "the expert won none of 3 games in 3 actions; run agentprm check-world mine:SPEC"
    )


@pytest.mark.parametrize(
    ("attribute", "says"),
    [
        ("RAISES", FAULTS["RAISES"]),
        ("CLONES_ITSELF", "reset: a clone, or a step in it, changes its world: state_key was "),
        ("WANDERS", "reset: a clone, or a step in it, changes its world: state_key was "),
        ("FORGETS", "a clone is in another state than its world: state_key was "),
    ],
)
def test_a_game_that_is_looked_at_stays_where_its_world_breaks_the_contract(attribute, says):
    settings = PlaySettings(named(attribute), 6, 512, max_action_tokens=8, constrained=True, slots=1, cache_mb=64)
    game = OneGame(Minds(toy.policy(), None, Search(decoding("greedy"), settings, 1.0)), GAMES[0], decoding("greedy"))
    with pytest.raises(DataError, match=f"^{re.escape(named(attribute))}, toy/000, .*{says}"):
        for turn in range(6):
            before = len(game.steps), game.seen
            game.do(f"go to cabinet {1 + turn % 2}")
    assert (len(game.steps), game.seen) == before


@pytest.fixture
def agent(tmp_path):
    policy = toy.policy()
    save_checkpoint(policy.model, policy.tokenizer, tmp_path / "policy", world="toy")
    save_checkpoint(new_prm(policy.model), policy.tokenizer, tmp_path / "prm", kind="prm", world="toy")
    write_table(games_to_table(GAMES), tmp_path / "toys.parquet")
    return tmp_path


def evaluated(agent, monkeypatch, attribute: str, *more: str) -> None:
    asked = ["evaluate", "--policy", agent / "policy", "--games", agent, "--split", "toys", "--max-turns", "3", *more]
    monkeypatch.setattr(sys, "argv", [*map(str, asked), "--world", named(attribute)])
    standalone.main()


@pytest.mark.parametrize("attribute", ["RAISES", "PAYS", "PAYS_NAN", "SAYS_NO_TEXT"])
def test_evaluate_ends_with_that_line(agent, toy_engine, monkeypatch, attribute):
    with pytest.raises(SystemExit, match=f"^evaluate: {re.escape(named(attribute))}, toy/00\\d, {FAULTS[attribute]}"):
        evaluated(agent, monkeypatch, attribute)


def test_evaluate_by_a_beam_ends_where_a_world_changes_under_clone(agent, toy_engine, monkeypatch):
    with pytest.raises(SystemExit, match="a clone, or a step in it, changes its world"):
        evaluated(agent, monkeypatch, "CLONES_ITSELF", "--method", "beam", "--prm", str(agent / "prm"))


def test_evaluate_plays_ones_own_world_that_has_the_texts_of_the_policys(agent, toy_engine, monkeypatch, capsys):
    evaluated(agent, monkeypatch, "LIKE_TOY")
    assert "greedy on 3 games of toys" in capsys.readouterr().out
