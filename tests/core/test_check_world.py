"""The check of a world: what it says of sound worlds, and of worlds that are wrong in one way each."""

from __future__ import annotations

import itertools
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Self

import pytest

from agentprm_core.types import Game
from agentprm_core.worlds import check_costs, world_spec
from agentprm_core.worlds.alfworld.games import write_game
from agentprm_core.worlds.base import NothingLeft, Observation, WorldSpec, admits
from agentprm_core.worlds.check_spec import game_faults, generated, missing
from agentprm_core.worlds.checking import CHECKS, Report, check_world
from agentprm_core.worlds.replay import Replayed
from tasks import check_world as command

LISTED = ("down", "up")
END = 3


class Stairs:
    """A sound world: from step 0 up to step 3, which wins, or down from it."""

    def reset(self, game: Game) -> Observation:
        self.game, self.at = game.id, 0
        return self.look("You stand at 0.")

    def step(self, command: str) -> Observation:
        if command not in LISTED:
            return self.look("Nothing happens.")
        self.at = max(self.at + (1 if command == "up" else -1), -END)
        return self.look(f"You stand at {self.at}.")

    def look(self, text: str) -> Observation:
        won = self.at == END
        return Observation(text, LISTED, float(won), won)

    def clone(self) -> Self:
        other = type(self)()
        other.__dict__.update(self.__dict__)
        return other

    def state_key(self) -> str:
        return f"{self.game}/{self.at}"


class Climber:
    def act(self, seen: Observation, done: str | None = None) -> str:
        return "up"


def generate(count: int, seed: int, split: str) -> list[Game]:
    return [Game(f"{split}/{i}", "stairs", split, "climb", "climb to the top", f"{split}{i}") for i in range(count)]


SPEC = WorldSpec(
    name="stairs",
    make=Stairs,
    generate=generate,
    kinds=("climb",),
    instruction="Climb.",
    expert=lambda world, game, seed, knowledge: Climber(),
    max_turns=12,
)
GAMES = generate(4, 0, "train")


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are not what is tested."""
    monkeypatch.setattr(check_costs, "_SECONDS", 0.01)


def check(make: Callable[[], object], **changes: object) -> Report:
    return check_world(replace(SPEC, make=make, **changes), GAMES)


def failed(report: Report) -> set[str]:
    return set(report.faults)


def test_a_sound_world() -> None:
    report = check(Stairs)
    assert not report.faults and not report.unchecked
    assert all(report.holds(name) for name in CHECKS)
    assert (report.games, report.expert_success, report.expert_actions) == (4, 1.0, 3.0)
    assert report.steps > 12 and report.steps_per_s > 1000 and report.clone_us > 0 and report.episode_kb > 0


def test_a_replayed_world_is_sound() -> None:
    class Engine:
        def __init__(self) -> None:
            self.stairs = Stairs()

        def reset(self, game: Game) -> Observation:
            return self.stairs.reset(game)

        def step(self, command: str) -> Observation:
            return self.stairs.step(command)

    assert not check(lambda: Replayed(Engine)).faults


class Raises(Stairs):
    def step(self, command: str) -> Observation:
        if self.at == 1:
            raise KeyError("the third door")
        return super().step(command)


def test_a_world_that_raises_in_step_is_said_with_game_step_and_command() -> None:
    report = check(Raises)
    assert "plays" in failed(report)
    assert report.faults["plays"].startswith("train/")
    assert "('up'): raised KeyError: 'the third door'" in report.faults["plays"]
    assert "the expert raised KeyError" in report.faults["expert"]


def test_what_is_raised_is_said_with_its_place_in_the_worlds_own_code() -> None:
    def lost(world: Stairs) -> str:
        return json.loads("nothing")  # raised in a library

    line = next(number for number, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "a library" in text)
    said = check(_keyed(lost)).faults["plays"]
    assert f"raised JSONDecodeError: Expecting value: line 1 column 1 (char 0) ({_here()}:{line})" in said


def _here() -> str:
    file = Path(__file__).resolve()
    return str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else str(file)


class RaisesAtReset(Stairs):
    def reset(self, game: Game) -> Observation:
        raise OSError("no such level")


def test_a_world_that_cannot_be_reset() -> None:
    report = check(RaisesAtReset)
    assert "reset raised OSError: no such level" in report.faults["plays"]
    assert report.holds("deterministic") is None
    assert {report.holds(name) for name in ("observations", "rewards", "accepts", "refuses")} == {None}
    assert (report.steps, report.steps_per_s, report.clone_us, report.episode_kb) == (0, None, None, None)


class Keyless:
    """Stairs of which nobody can tell where one stands."""

    def __init__(self) -> None:
        stairs = Stairs()
        self.reset, self.step = stairs.reset, stairs.step


@pytest.mark.parametrize(
    ("make", "clones", "said"),
    [
        (Stairs(), True, "the spec's make is a Stairs, not a callable: give the class"),
        (lambda: 1 / 0, True, "make raised ZeroDivisionError: division by zero (tests/core/test_check_world.py:"),
        (Keyless, True, "the world, a Keyless, has no clone, state_key: write what agentprm_core/worlds/base.py asks"),
        (Keyless, False, "the world, a Keyless, has no state_key: write"),
    ],
)
def test_a_world_that_cannot_be_made_or_lacks_a_method(make: Callable, clones: bool, said: str) -> None:
    report = check(make, clones=clones)
    assert report.faults.keys() == {"plays"} and report.faults["plays"].startswith(said.split(" (")[0])
    assert said.partition(" (")[2] in report.faults["plays"]
    assert report.unchecked.keys() == CHECKS.keys() - {"plays"}


class Pays(Stairs):
    def look(self, text: str) -> Observation:
        return super().look(text)._replace(reward=7.0 if self.at == END else 0.0)


def test_a_reward_of_seven() -> None:
    report = check(Pays)
    assert failed(report) == {"rewards"}
    assert "the reward 7.0 is not in [0, 1]" in report.faults["rewards"]


class ClonesItself(Stairs):
    def clone(self) -> Self:
        return self


class SharesItsState(Stairs):
    def reset(self, game: Game) -> Observation:
        self.path: list[int] = []
        return super().reset(game)

    def step(self, command: str) -> Observation:
        self.path.append(self.at)
        return super().step(command)

    def look(self, text: str) -> Observation:
        return super().look(f"{text} {len(self.path)} steps so far.")

    def state_key(self) -> str:
        return f"{super().state_key()}/{len(self.path)}"


class ForgetsInClones(Stairs):
    def clone(self) -> Self:
        other = super().clone()
        other.at = 0
        return other


class ClonesRaise(Stairs):
    def clone(self) -> Self:
        raise NotImplementedError("cannot be copied")


@pytest.mark.parametrize("make", [ClonesItself, SharesItsState, ForgetsInClones, ClonesRaise])
def test_clones_that_are_not_independent(make: type) -> None:
    report = check(make)
    assert "clones_independent" in failed(report)
    assert report.holds("deterministic") and report.clone_us is None


def test_a_clone_that_raises_says_what() -> None:
    assert "raised NotImplementedError: cannot be copied" in check(ClonesRaise).faults["clones_independent"]


def test_a_world_that_says_it_has_no_clones_is_not_asked_for_one() -> None:
    report = check(ClonesRaise, clones=False)
    assert not report.faults
    assert report.holds("clones_independent") is None and report.clone_us is None
    (line,) = [line for line in missing(replace(SPEC, clones=False)) if line.startswith("no clones: no beam search")]
    assert "Replayed copies a deterministic world" in line


def test_a_served_world_is_not_told_to_be_replayed() -> None:
    (line,) = [line for line in missing(replace(SPEC, clones=False, remote=True)) if line.startswith("no clones")]
    assert line.endswith("a session of a server cannot be copied. Best-of-N by turn needs no clones")


class Random(Stairs):
    def step(self, command: str) -> Observation:
        seen = super().step(command)
        return seen._replace(text=f"{seen.text} It is {random.random()} o'clock.")


class Remembers(Stairs):
    resets = 0

    def reset(self, game: Game) -> Observation:
        self.resets += 1
        return super().reset(game)._replace(text=f"Episode {self.resets}.")


@pytest.mark.parametrize(("make", "place"), [(Random, "in a fresh world"), (Remembers, "after a reset")])
def test_a_world_that_is_not_deterministic(make: type, place: str) -> None:
    report = check(make)
    assert place in report.faults["deterministic"]
    assert "and is now" in report.faults["deterministic"]


def _keyed(key: Callable[[Stairs], str]) -> type:
    return type("Keyed", (Stairs,), {"state_key": key})


_counter = itertools.count()


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (lambda world: world.game, "share a key and differ|under one key and lead to different states"),
        (lambda world: str(world.at), "are two games and share a key"),
        (lambda world: str(next(_counter)), "changes nothing, and the key is another|the key is another"),
        (lambda world: hash(world.at), "state_key is 0, not a string"),
    ],
)
def test_keys_that_are_not_sound(key: Callable, said: str) -> None:
    report = check(_keyed(key))
    assert "keys_sound" in failed(report)
    assert any(part in report.faults["keys_sound"] for part in said.split("|")), report.faults


class CountsNonsense(SharesItsState):
    def clone(self) -> Self:
        other = super().clone()
        other.path = list(self.path)
        return other


def test_a_key_that_changes_where_nothing_does() -> None:
    report = check_world(replace(SPEC, make=CountsNonsense), generate(40, 0, "train"))
    assert failed(report) == {"keys_sound"}
    assert "changes nothing, and the key is another" in report.faults["keys_sound"]


def _looks(**changes: object) -> type:
    return type("Looks", (Stairs,), {"look": lambda self, text: Stairs.look(self, text)._replace(**changes)})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"admissible": ("up", "down")}, "must be sorted, each once"),
        ({"admissible": ["down", "up"]}, "must be a tuple of strings"),
        ({"admissible": ("down", "up", "up")}, "must be sorted, each once"),
        ({"text": None}, "the text None is not a string"),
        ({"done": 0}, "done is 0, not a bool"),
    ],
)
def test_observations_that_are_none(changes: dict, said: str) -> None:
    report = check(_looks(**changes))
    assert said in report.faults["observations"]


@pytest.mark.parametrize(("returned", "kind"), [(("text", 0.0), "tuple"), (None, "NoneType")])
def test_a_step_that_returns_no_observation(returned: object, kind: str) -> None:
    class Returns(Stairs):
        def step(self, command: str):
            super().step(command)
            return returned

    assert f"a {kind}, not an Observation" in check(Returns).faults["observations"]


@pytest.mark.parametrize("last", [0, 1])
def test_a_key_that_cannot_be_had_after_a_step(last: int) -> None:
    class Forgets(Stairs):
        def reset(self, game: Game) -> Observation:
            self.steps = 0
            return super().reset(game)

        def step(self, command: str) -> Observation:
            self.steps += 1
            return super().step(command)

        def state_key(self) -> str:
            return {}["key"] if self.steps > last else super().state_key()

    report = check(Forgets)
    assert f"step {last + 1} (" in report.faults["plays"] and "raised KeyError: 'key'" in report.faults["plays"]
    assert report.steps == 4 * last and "keys_sound" not in report.faults


def test_a_listed_command_that_does_nothing() -> None:
    assert "'jump' is listed as admissible" in check(_looks(admissible=("down", "jump", "up"))).faults["accepts"]


def test_a_command_that_is_not_listed_and_works() -> None:
    class Obliging(Stairs):
        def step(self, command: str) -> Observation:
            return super().step(command if command in LISTED else "up")

    report = check_world(replace(SPEC, make=Obliging), generate(40, 0, "train"))
    assert "is not admissible and changes commands, reward or done" in report.faults.get(
        "refuses", ""
    ) or "changes nothing, and the key is another" in report.faults.get("keys_sound", "")


class CutOff(Stairs):
    """Ends every episode at its sixth turn, as a server with a limit does."""

    def reset(self, game: Game) -> Observation:
        self.turns = 0
        return super().reset(game)

    def step(self, command: str) -> Observation:
        self.turns += 1
        seen = super().step(command)
        return seen._replace(done=seen.done or self.turns == 6)


class EndsAtNonsense(CutOff):
    def step(self, command: str) -> Observation:
        seen = super().step(command)
        return seen._replace(done=seen.done or command not in LISTED)


@pytest.mark.parametrize(
    ("engine", "remote", "bad"), [(CutOff, True, False), (CutOff, False, True), (EndsAtNonsense, True, True)]
)
def test_a_servers_limit_of_turns_is_no_fault_of_its_world(engine: type, remote: bool, bad: bool) -> None:
    spec = replace(SPEC, make=lambda: Replayed(engine), clones=False, remote=remote)
    report = check_world(spec, generate(40, 0, "train"))
    assert failed(report) == ({"refuses"} if bad else set())


def test_the_speed_of_a_served_world_is_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step works for 1 ms and waits for 3."""
    taken = 0

    class Waits(Stairs):
        def step(self, command: str) -> Observation:
            nonlocal taken
            taken += 1
            return super().step(command)

    clocks = SimpleNamespace(perf_counter=lambda: 0.004 * taken, process_time=lambda: 0.001 * taken)
    monkeypatch.setattr(check_costs, "time", clocks)
    played = [(GAMES[0], ["up"] * 3)]
    assert check_costs.steps_per_second(Waits, played, remote=True) == pytest.approx(250)
    assert check_costs.steps_per_second(Waits, played) == pytest.approx(1000)


def test_the_speed_of_a_world_that_waits_is_what_a_user_sees() -> None:
    class Waits(Stairs):
        def step(self, command: str) -> Observation:
            time.sleep(0.005)
            return super().step(command)

    report = check_world(replace(SPEC, make=Waits, clones=False), GAMES[:1])
    assert report.steps_per_s < 200 and report.cpu_steps_per_s > 2 * report.steps_per_s
    line = next(line for line in command._lines(SPEC, None, report, [], []) if "steps a second" in line)
    said = f"{report.steps_per_s:,.0f} steps a second in games played before, by the clock ("
    assert f"{said}{report.cpu_steps_per_s:,.0f} of CPU time" in line


def test_rewards_of_single_steps_are_noted() -> None:
    class Stepwise(Stairs):
        """Pays a step up 0.2 and any other nothing, as gymnasium does."""

        def step(self, command: str) -> Observation:
            seen = super().step(command)
            return seen if seen.done else seen._replace(reward=0.2 * (command == "up"))

    report = check_world(replace(SPEC, make=Stepwise), generate(40, 0, "train"))
    (note,) = report.notes
    assert "the reward falls from 0.2 to 0. It is what the episode has earned so far, not what the step earned" in note
    assert note.startswith("train/") and "step " in note and " more)" in note
    assert not check(Stairs).notes


def test_a_reward_that_is_no_number() -> None:
    report = check(_looks(reward=None))
    assert "the reward None is not in [0, 1]" in report.faults["rewards"] and not report.notes


def test_a_reward_that_is_nan_is_told_as_that_alone() -> None:
    report = check(_looks(reward=float("nan")))
    assert "the reward is not a number" in report.faults["rewards"]
    assert not {"deterministic", "keys_sound", "clones_independent"} & report.faults.keys()


def test_listed_commands_that_nobody_did_are_not_called_templates() -> None:
    class Ended(Stairs):
        def step(self, command: str) -> Observation:
            return super().step("xyzzy")._replace(done=True)

    for seed in range(40):  # until the one command of the one step is nonsense
        report = check_world(replace(SPEC, make=Ended, expert=None), GAMES[:1], seed=seed)
        if "accepts" in report.unchecked:
            assert (
                report.unchecked["accepts"]
                == "no command that is listed was done; 1 texts were tried, 0 of them the expert's"
            )
            return
    raise AssertionError("no seed draws nonsense first")


def test_templates_and_free_text_are_filled() -> None:
    class Shop(Stairs):
        said: tuple[str, ...] = ()

        def step(self, command: str) -> Observation:
            Shop.said += (command,)
            return super().step("up" if admits(("search[…]",), command) else command)

    report = check_world(
        replace(SPEC, make=type("S", (Shop,), {"look": _looks(admissible=("search[…]",)).look})), GAMES
    )
    assert "accepts" not in report.faults
    assert any(command.startswith("search[") and "…" not in command for command in Shop.said)


def test_where_no_commands_are_listed_the_expert_is_asked_and_it_is_said_what_was_tried() -> None:
    class Spoken(Stairs):
        """Any text is an action."""

        def look(self, text: str) -> Observation:
            return super().look(text)._replace(admissible=())

    report = check_world(replace(SPEC, make=Spoken), GAMES[:1])
    said = report.unchecked["accepts"]
    assert re.fullmatch(
        rf"no commands are listed; {report.steps} texts were tried, [1-9]\d* of them the expert's", said
    )
    assert report.unchecked["refuses"] == "no commands are listed, so any text is an action"


def test_an_expert_that_gives_up_wins_nothing() -> None:
    class Quitter:
        def act(self, seen: Observation, done: str | None = None) -> str:
            raise NothingLeft("tired")

    report = check(Stairs, expert=lambda *_: Quitter())
    assert (report.expert_success, report.expert_actions) == (0.0, None)
    assert report.faults == {"expert": "it wins none of the 4 games"}


def test_an_expert_that_raises_is_a_fault_and_ends_nothing() -> None:
    class Broken:
        def act(self, seen: Observation, done: str | None = None) -> str:
            raise ZeroDivisionError("no plan")

    def unborn(*_: object) -> Broken:
        raise OSError("no map")

    report = check(Stairs, expert=lambda *_: Broken())
    assert failed(report) == {"expert"} and "raised ZeroDivisionError: no plan" in report.faults["expert"]
    assert report.steps > 12
    assert "raised OSError: no map" in check(Stairs, expert=unborn).faults["expert"]


class Leaves(Stairs):
    def step(self, command: str) -> Observation:
        raise SystemExit(0)


class Over(Stairs):
    def look(self, text: str) -> Observation:
        return super().look(text)._replace(done=True)


def test_a_world_that_ends_the_process_and_one_that_is_over_at_reset() -> None:
    assert "raised SystemExit: 0" in check(Leaves).faults["plays"]
    report = check(Over)
    assert report.steps == 0 and "is done at reset" in report.faults["plays"] and "deterministic" in report.unchecked


class Silent:
    def act(self, seen: Observation, done: str | None = None) -> None:
        return None


class Lost:
    def act(self, seen: Observation, done: str | None = None) -> str:
        return "down"


def test_an_expert_that_says_nothing_and_one_that_never_wins() -> None:
    said = check(Stairs, expert=lambda *_: Silent()).faults["expert"]
    assert "act returned None, not a command" in said
    assert check(Stairs, expert=lambda *_: Lost()).faults["expert"] == "it wins none of the 4 games"


class Flies:
    """Flies at first and then climbs as often as it is told."""

    def __init__(self, climbs: int) -> None:
        self.climbs, self.acted = climbs, 0

    def act(self, seen: Observation, done: str | None = None) -> str:
        self.acted += 1
        return "up" if 1 < self.acted <= 1 + self.climbs else "fly"


def test_an_expert_whose_advice_is_not_admissible() -> None:
    report = check(Stairs, expert=lambda *_: Flies(0), expert_turns=5)
    line = "it wins none of the 4 games; train/0, step 1: its 'fly' is not admissible (and 19 more)"
    assert report.faults == {"expert": line} and not report.notes
    report = check(Stairs, expert=lambda *_: Flies(3))
    assert not report.faults and report.expert_success == 1.0
    assert report.notes == ("the expert: train/0, step 1: its 'fly' is not admissible (and 3 more)",)


class Rusts(Stairs):
    """Fails in the step number 400 of the process."""

    steps = 0

    def step(self, command: str) -> Observation:
        Rusts.steps += 1
        if Rusts.steps > 400:
            raise OSError("rust")
        return super().step(command)


def test_a_world_that_fails_late_is_a_finding_too() -> None:
    assert "played many times, it raised OSError: rust" in check(Rusts).faults["plays"]


class Lists(Stairs):
    def state_key(self) -> list[int]:
        return [self.at]


def test_a_key_that_is_no_text_is_said() -> None:
    assert "is [0], not a string" in check(Lists).faults["keys_sound"]


@pytest.mark.parametrize("name", ["arithmetic", "alfworld"])
def test_our_worlds_are_sound(name: str) -> None:
    spec = world_spec(name)
    games, lines = generated(spec, 4, 1)
    report = check_world(spec, games["train"], name=name)
    assert not report.faults and not lines and not list(game_faults(spec, games))
    assert report.expert_success == 1.0


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command in a process, in the folder of somebody's module."""
    root = Path(command.__file__).resolve().parents[1]
    code = f"import sys; sys.path.append({str(root)!r}); from tasks.check_world import main; main()"
    asked = [sys.executable, "-c", code, *arguments]
    return subprocess.run(asked, cwd=folder, capture_output=True, text=True, timeout=120)


MODULE = """
from dataclasses import replace
from agentprm_core.worlds.base import Observation
from tests.core.test_check_world import SPEC, Stairs

class Hashed(Stairs):
    def state_key(self):
        return f"{hash(self.game)}/{self.at}"

SOUND = SPEC
HASHED = replace(SPEC, make=Hashed)
"""


def test_the_command_on_a_module_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    ran = run("mine:SOUND", "--games", "3", "--json", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout.splitlines()[-1])
    last = ["deterministic", "clones_independent", "keys_sound", "steps_per_s", "clone_us", "episode_kb"]
    assert list(said)[-6:] == last
    assert said["deterministic"] is said["clones_independent"] is said["keys_sound"] is True
    assert "  ok   deterministic: the same actions" in ran.stdout
    assert "missing: no published games" in ran.stdout


def test_keys_that_differ_by_process(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    ran = run("mine:HASHED", "--games", "2", "--json", folder=tmp_path)
    assert ran.returncode == 1
    assert json.loads(ran.stdout.splitlines()[-1])["keys_sound"] is False
    assert "  BAD  keys_sound: train/0: another process has other keys" in ran.stdout


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere", "check_world: 'nowhere' is not one of alfworld"),
        ("mine:NOTHING", "check_world: 'mine:NOTHING' cannot be imported"),
    ],
)
def test_a_world_that_is_not_there_is_one_line(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")
    ran = run(name, folder=tmp_path)
    assert ran.returncode == 1 and ran.stderr.startswith(said) and ran.stderr.count("\n") == 1


def test_a_folder_of_published_games_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    ran = run("alfworld", "--root", "nowhere", folder=tmp_path)
    assert ran.returncode == 1 and ran.stderr.count("\n") == 1
    assert ran.stderr.startswith("check_world: ") and "nowhere" in ran.stderr


def test_a_world_without_generator_and_data_says_which_data(tmp_path: Path) -> None:
    ran = run("gsm8k", folder=tmp_path)
    assert ran.returncode == 1
    assert ran.stderr == (
        "check_world: gsm8k has no generator: give --root, the folder or archive of its published games, or set "
        "GSM8K_DATA to it\n"
    )


def test_published_games_of_a_world_with_a_generator_and_of_one_without(tmp_path: Path) -> None:
    for split in ("train", "seen", "unseen"):
        for game in world_spec("alfworld").generate(2, 1, split):
            name = {"train": "", "seen": "valid_", "unseen": "valid_"}[split]
            write_game(replace(game, id=f"{name}{game.id}"), tmp_path)
    ran = run("alfworld", "--root", str(tmp_path), "--games", "2", folder=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.startswith(f"alfworld: 2 games of {tmp_path}, ") and "no generator" not in ran.stdout
    for file, start in (("train", 0), ("test", 80)):
        problems = [{"question": f"{n} cups, all red?", "answer": f"Yes.\n#### {n}"} for n in range(start, start + 80)]
        (tmp_path / f"{file}.jsonl").write_text("\n".join(map(json.dumps, problems)))
    ran = run("gsm8k", "--root", str(tmp_path), "--games", "2", folder=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.startswith(f"gsm8k: 2 games of {tmp_path}, ")
    assert "  missing: no generator: games.published must say where the games are" in ran.stdout
