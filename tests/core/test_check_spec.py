"""The check of a world: what its spec says, the games that it generates, and what another process finds of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agentprm_core.errors import DataError
from agentprm_core.types import Game
from agentprm_core.worlds import world_names, world_spec
from agentprm_core.worlds.base import Between
from agentprm_core.worlds.check_games import games_to_check
from agentprm_core.worlds.check_spec import game_faults, generated, spec_faults
from agentprm_core.worlds.checking import check_world
from agentprm_core.worlds.held_out_places import games_by_place, generated_games, guard_games
from agentprm_core.worlds.mixture import mixture
from tasks.commands.generated import generated as to_play
from tasks.serve_world import served_games
from tests.core.test_check_world import GAMES, SPEC, generate


def test_splits_that_share_games_and_kinds_that_are_none() -> None:
    def careless(count: int, seed: int, split: str) -> list[Game]:
        return [replace(game, payload=game.id.split("/")[1], kind="fall") for game in generate(count, seed, split)]

    spec = replace(SPEC, generate=careless, attributes={"height": Between(1, 9, "steps")}, name="steps")
    games, lines = generated(spec, 3, 0)
    assert lines == []
    said = "\n".join(game_faults(spec, games))
    assert "train and seen share 3 games" in said
    assert "train/0: its kind 'fall' is not one of the spec's: climb" in said
    assert "train/0: its world is 'stairs', the spec's name is 'steps'" in said
    assert "train/0: its attribute height is None, and the spec expects Between(low=1, high=9" in said


def test_a_fault_of_many_games_is_one_line() -> None:
    games = [replace(game, kind="fall") for game in GAMES]
    assert list(game_faults(SPEC, {"train": games[:3], "seen": [replace(games[3], goal="Climb!")]})) == [
        "train/0: its kind 'fall' is not one of the spec's: climb (and 3 more)",
        "train/3: its goal 'Climb!' is not a sentence (2 words or more)",
    ]


def test_games_in_no_order_and_games_there_twice_are_two_faults() -> None:
    first, second, *_ = GAMES
    assert list(game_faults(SPEC, {"train": [second, first]})) == [
        "games of train are not sorted by id, as generate must return them: train/1 comes before train/0"
    ]
    assert list(game_faults(SPEC, {"train": [first, first, second, second]})) == [
        "games of train: 2 ids are there more than once: train/0, train/1"
    ]


def test_a_goal_of_one_word() -> None:
    short, shorter = (replace(GAMES[0], goal=goal) for goal in ("Craft clock.", "Climb!"))
    assert not list(game_faults(SPEC, {"train": [short]}))
    (line,) = game_faults(SPEC, {"train": [shorter]})
    assert line == "train/0: its goal 'Climb!' is not a sentence (2 words or more)"


def test_a_generator_that_draws_anew_and_one_that_has_one_split() -> None:
    def fickle(count: int, seed: int, split: str) -> list[Game]:
        if split != "train":
            raise DataError("there is only train")
        return generate(count, seed, f"{split}{random.random()}")

    _, lines = generated(replace(SPEC, generate=fickle), 3, 0)
    assert "no games of the split seen: there is only train" in lines
    assert "generate(3, 0, 'train') returns other games the second time" in lines


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"max_turns": 0}, "max_turns is 0: 1 or more"),
        ({"expert_turns": 0}, "expert_turns is 0: 1 or more"),
        ({"success": 2.0}, "success is 2.0: above 0 and at most 1"),
        ({"mixed": 0.5}, "mixed is 0.5: 0, or with place and generate_mixed"),
        ({"mixed": 1.0, "place": "floor", "generate_mixed": lambda *_: []}, "mixed is 1.0: 0 or more, and less than 1"),
        ({"measured_in": "nowhere"}, "measured_in is 'nowhere': 'nowhere' is not one of alfworld, "),
        ({"measured_in": "alfworld-textworld"}, "its texts are those of alfworld, not of stairs"),
    ],
)
def test_what_a_spec_says_with_which_nothing_can_be_played_won_or_measured(change: dict, said: str) -> None:
    (line,) = spec_faults(replace(SPEC, **change))
    assert said in line
    assert not list(spec_faults(SPEC))


def _raises(*_: object) -> list[Game]:
    raise ValueError("no bricks")


_NOTHING_USABLE = [
    (_raises, "raised ValueError: no bricks"),
    (lambda *_: None, "returned None, not a list of games"),
    (lambda *_: [{"id": "a"}], "not a list of games"),
]
_NO_GAMES = (lambda *_: [], "returned no games")


@pytest.mark.parametrize(("generate", "said"), [*_NOTHING_USABLE, _NO_GAMES])
@pytest.mark.parametrize(
    "ask",
    [
        lambda spec: generated(spec, 30, 0),
        lambda spec: generated_games(spec, 30, 0, "train"),
        lambda spec: guard_games(spec, 30, 0, []),
        lambda spec: served_games(spec, None, 30, 0),
        lambda spec: to_play(spec, 30, 0, "train"),
        lambda spec: mixture("both", [spec, replace(SPEC, name="ladder")]).generate(60, 0, "train"),
    ],
    ids=["check-world", "games", "guards", "serve-world", "evaluate", "mixture"],
)
def test_a_generator_that_gives_no_games_is_one_line(ask: Callable, generate: Callable, said: str) -> None:
    with pytest.raises(DataError, match=rf"^stairs: generate\(30, \d+, '(train|unseen)'\) .*{said}"):
        ask(replace(SPEC, generate=generate))


@pytest.mark.parametrize(("mix", "said"), [*_NOTHING_USABLE, _NO_GAMES])
def test_a_generator_of_mixed_places_that_gives_no_games_is_one_line(mix: Callable, said: str) -> None:
    def tall(count: int, seed: int, split: str) -> list[Game]:
        return [replace(game, attributes={"height": 3}) for game in generate(count, seed, split)]

    spec = replace(SPEC, generate=tall, place="height", mixed=0.5, generate_mixed=mix)
    with pytest.raises(DataError, match=rf"^stairs: generate_mixed\(15, 0, \d+ places\) .*{said}"):
        generated_games(spec, 30, 0, "train")


@pytest.mark.parametrize(("load", "said"), _NOTHING_USABLE)
@pytest.mark.parametrize(
    "ask",
    [
        lambda spec, root: games_to_check(spec, root, 30, 0, "stairs"),
        lambda spec, root: served_games(spec, root, 30, 0),
        lambda spec, root: games_by_place(spec, root, {"train": 3, "seen": 3, "unseen": 3}, 0, 0),
    ],
    ids=["check-world", "serve-world", "games"],
)
def test_published_games_that_the_world_cannot_read_are_one_line(
    ask: Callable, load: Callable, said: str, tmp_path: Path
) -> None:
    spec = replace(SPEC, load=load, place="height", published_splits={"train": "easy", "seen": "hard"})
    with pytest.raises(DataError, match=rf"^stairs: load\('.+', 'easy', (30|None)\) .*{said}"):
        ask(spec, tmp_path)


def test_attributes_that_are_no_json() -> None:
    games = {"train": [replace(GAMES[0], attributes={"height": {1}})]}
    assert any("its attributes cannot be written as JSON" in line for line in game_faults(SPEC, games))


def test_the_games_of_a_mixture_are_those_of_its_worlds() -> None:
    spec = world_spec("all_worlds")
    games = {"train": spec.generate(5, 1, "train")}
    assert not list(game_faults(spec, games))
    odd = {"train": [replace(games["train"][0], world="elsewhere")]}
    assert any("its world is 'elsewhere', the spec's worlds are" in line for line in game_faults(spec, odd))


BY_PROCESS = """
import dataclasses
from tests.core.test_check_world import SPEC as STAIRS, Stairs, generate
print("a module may print")
class Shuffled(Stairs):
    def look(self, text):
        return super().look(" ".join({"here", "there", "everywhere", "nowhere"}))
SPEC = dataclasses.replace(STAIRS, make=Shuffled)
def by_process(count, seed, split):
    return [dataclasses.replace(game, payload=f"{game.payload}{hash(split)}") for game in generate(count, seed, split)]
DRAWN = dataclasses.replace(STAIRS, generate=by_process)
"""


def test_texts_and_games_that_differ_by_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "by_process_world.py").write_text(BY_PROCESS)
    monkeypatch.syspath_prepend(tmp_path)
    spec = world_spec("by_process_world:SPEC")
    report = check_world(spec, GAMES, name="by_process_world:SPEC")
    assert (
        set(report.faults) == {"deterministic"}
        and "in another process: observation 0 was" in report.faults["deterministic"]
    )
    _, lines = generated(world_spec("by_process_world:DRAWN"), 3, 0, "by_process_world:DRAWN")
    assert len(lines) == 3 and all("returns other games in another process" in line for line in lines)


def test_an_installed_package_names_its_world_by_an_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_stranger.py").write_text("from tests.core.test_check_world import SPEC")
    installed = tmp_path / "a_stranger-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: a-stranger\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[agentprm.worlds]\nstairs-of-a-stranger = a_stranger:SPEC\n")
    with pytest.raises(DataError, match="'stairs-of-a-stranger' is not one of alfworld"):
        world_spec("stairs-of-a-stranger")
    monkeypatch.syspath_prepend(tmp_path)
    assert "stairs-of-a-stranger" in world_names()
    assert world_spec("stairs-of-a-stranger") is SPEC


@pytest.mark.parametrize(
    ("module", "said"),
    [("x = (", "SyntaxError"), ("SPEC = nothing", "NameError"), ("raise OSError('no disk')", "OSError: no disk")],
)
def test_a_module_that_cannot_be_read_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module, said
) -> None:
    name = f"unreadable_{said[:4].lower()}"
    (tmp_path / f"{name}.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DataError, match=f"^'{name}:SPEC' cannot be imported: {said}"):
        world_spec(f"{name}:SPEC")
    with pytest.raises(DataError, match=r"^':SPEC' cannot be imported"):
        world_spec(":SPEC")
