"""The keys of ``agentprm play`` do what the screen says, at any width, and what goes wrong is a line on it."""

import asyncio
import io

import pytest
import torch
from rich.console import Console
from textual.pilot import Pilot
from textual.widgets import Input, Static

from agentprm_core.errors import DataError, SilentServer
from agentprm_core.one_game import Minds
from agentprm_core.policy.requests import START_IT
from agentprm_core.search.decoding_config import decoding
from agentprm_core.search.playing import PlaySettings, Search
from tasks.commands import play_screen
from tasks.commands.play import Loaded
from tasks.commands.play_screen import KEYS, PlayApp
from tests.model import toy
from tests.model.test_search import prm_of


@pytest.fixture
def loaded(toy_engine, monkeypatch):
    monkeypatch.setattr(play_screen, "PACE_S", 0.01)
    room = {"context": 512, "max_action_tokens": 8, "constrained": True, "slots": 1, "cache_mb": 64}
    minds = Minds(toy.policy(), prm_of(0.3), Search(decoding("greedy"), PlaySettings("toy", 6, **room), 2.0, 0.1))
    ways = [decoding(name) for name in ("greedy", "best_of_8", "beam_2x2")]
    return Loaded(minds, [toy.game(n) for n in range(3)], 0, ways[0], ways, "toy, judged by toy", 1)


def driven(load, drive, size=(100, 30)):
    """What ``drive(app, press)`` returns; ``press`` waits until the models have thought."""

    async def run():
        app = PlayApp(load)
        async with app.run_test(size=size) as pilot:

            async def press(*keys):
                await pilot.press(*keys)
                await settled(app, pilot)

            await settled(app, pilot)
            found = await drive(app, press)
        return found, app.return_value

    return asyncio.run(run())


async def settled(app, pilot):
    await pilot.pause()
    while app.is_running and (app.running or app.busy):
        await asyncio.sleep(0.01)
    if app.is_running:
        await app.workers.wait_for_complete()
    await pilot.pause()


def text(app, part):
    """What stands there, without styles."""
    written = io.StringIO()
    Console(file=written, width=app.size.width, color_system=None).print(app.query_one(part, Static).content)
    return written.getvalue()


def actions(app):
    return [step.turn.action for step in app.game.steps]


def test_a_step_does_what_is_marked(loaded):
    async def drive(app, press):
        marked, before = app.outlook.choice, text(app, "#thoughts")
        await press("space")
        return marked, before, text(app, "#turns"), text(app, "#head"), actions(app)

    (marked, before, turns, head, done), _ = driven(lambda: loaded, drive)
    assert f"▶ {marked}" in before
    assert done == [marked] and f"1 > {marked}" in turns
    assert "turn 2 of 6 · greedy · toy, judged by toy" in head


def test_a_run_goes_on_to_the_end_and_a_new_game_starts(loaded):
    async def drive(app, press):
        await press("r")
        ended, said, first = app.game.ended, text(app, "#said"), app.game.game.id
        await press("space", "n")
        return ended, said, first, app.game.game.id, actions(app)

    (ended, said, first, second, done), _ = driven(lambda: loaded, drive)
    assert ended and "after" in said and "action" in said
    assert (first, second, done) == ("toy/000", "toy/001", [])


def test_going_back_by_one_and_to_a_turn(loaded):
    async def drive(app, press):
        await press("space")
        await press("space")
        await press("space")
        played = actions(app)
        await press("b")
        after_b = actions(app)
        await press("g", "1", "enter")
        return played, after_b, actions(app), app.query_one(Input).has_class("asking")

    (played, after_b, after_g, asking), _ = driven(lambda: loaded, drive)
    assert (len(played), after_b, after_g, asking) == (3, played[:2], [], False)


def test_a_turn_that_was_not_played_is_refused(loaded):
    async def drive(app, press):
        await press("space")
        await press("g", "7", "enter")
        return text(app, "#said"), actions(app)

    (said, done), _ = driven(lambda: loaded, drive)
    assert "7: not a turn that was played, 1 to 1" in said and len(done) == 1


def test_one_takes_over_and_is_judged(loaded):
    async def drive(app, press):
        await press("t", *"look")
        listed = text(app, "#thoughts")
        await press("enter")
        return listed, app.game.steps[0].by, actions(app), text(app, "#turns")

    (listed, by, done, turns), _ = driven(lambda: loaded, drive)
    assert "look" in listed and "inventory" not in listed and "PRM's Q" in listed
    assert (by, done) == ("you", ["look"]) and "you" in turns


def test_a_command_that_means_nothing_is_judged_first_and_done_when_asked_again(loaded):
    async def drive(app, press):
        await press("t", *"dance", "enter")
        said, before = text(app, "#said"), actions(app)
        await press("enter")
        return said, before, actions(app), app.game.steps[0].turn.valid

    (said, before, done, valid), _ = driven(lambda: loaded, drive)
    assert "dance: not among the admissible commands." in said and "Q" not in said.split("PRM")[0]
    assert (before, done, valid) == ([], ["dance"], False)


def test_q_ends_it(loaded):
    async def drive(app, press):
        await press("space", "q")
        return app.is_running, actions(app)

    (running, done), _ = driven(lambda: loaded, drive)
    assert not running and len(done) == 1


def test_the_mode_changes_in_the_middle_of_a_game(loaded):
    async def drive(app, press):
        await press("space")
        seen = []
        for _ in range(3):
            await press("m")
            seen.append((app.game.way.name, bool(app.outlook.plan), text(app, "#thoughts")))
        return seen, actions(app)

    (seen, done), _ = driven(lambda: loaded, drive)
    assert [way for way, _, _ in seen] == ["best_of_8", "beam_2x2", "greedy"]
    assert "drew" in seen[0][2] and "×" in seen[0][2]
    assert seen[1][1] and "then " in seen[1][2]
    assert len(done) == 1


@pytest.mark.parametrize("width", [40, 60, 80, 99, 100, 140])
def test_every_width_shows_room_options_and_keys(loaded, width):
    async def drive(app, press):
        await press("space")
        choice = app.outlook.choice
        beyond = [w.id for w in app.query(Static) if w.display and w.region.right > width]
        return choice, text(app, "#thoughts"), beyond, app.screen.has_class("wide"), app.query_one("#body").display

    (choice, thoughts, beyond, wide, there), _ = driven(lambda: loaded, drive, (width, 24))
    assert choice[:8] in thoughts and there and beyond == [] and wide == (width >= 100)


@pytest.mark.parametrize("width", [40, 41, 60, 200])
def test_every_key_is_read_whole_and_can_be_clicked_at(loaded, width):
    async def drive(app, press):
        lines = app.query_one("#keys", Static).visual.plain.splitlines()
        await Pilot(app).click("#keys", offset=(2, 0))  # the first one, within the padding
        await press()
        return lines, len(app.game.steps)

    (lines, steps), _ = driven(lambda: loaded, drive, (width, 24))
    there = [binding for binding in KEYS if binding.show]
    assert [part for line in lines for part in line.split("  ")] == [f"{b.key} {b.description}" for b in there]
    assert max(map(len, lines)) <= width - 2
    assert (there[0].key, steps) == ("space", 1)


def test_too_narrow_a_terminal_says_what_it_needs(loaded):
    async def drive(app, press):
        return app.query_one("#narrow").display, app.query_one("#body").display, text(app, "#narrow")

    (told, body, said), _ = driven(lambda: loaded, drive, (30, 20))
    assert told and not body and "At least 40 columns" in said


def test_what_cannot_be_loaded_ends_the_screen_with_its_line(loaded):
    def load():
        raise DataError("shipped:x: no such agent")

    async def drive(app, press):
        return None

    assert driven(load, drive)[1] == "shipped:x: no such agent"


def test_too_little_memory_for_the_agent_ends_the_screen_with_its_line():
    async def drive(app, press):
        return None

    said = driven(lambda: torch.empty(10**15), drive)[1]
    assert said.startswith("not enough memory: end other programs, or use a machine that has more")


def test_too_little_memory_for_a_step_is_said_and_space_tries_again(loaded, monkeypatch):
    async def drive(app, press):
        with monkeypatch.context() as patched:
            patched.setattr("agentprm_core.one_game.OneGame._decided", lambda game: torch.empty(10**15))
            await press("space")
            said = text(app, "#said")
        await press("space")
        return said, text(app, "#said")

    (said, again), _ = driven(lambda: loaded, drive)
    assert "not enough memory: end other programs" in said and "space: the agent does" in again


@pytest.mark.parametrize("columns", [40, 100])
def test_a_server_that_ends_is_said_and_space_asks_again(loaded, monkeypatch, columns):
    async def drive(app, press):
        await press("space")
        with monkeypatch.context() as patched:
            patched.setattr("agentprm_core.one_game.OneGame._decided", gone)
            await press("space")
            said, done, seen = text(app, "#said"), len(actions(app)), app.export_screenshot()
        await press("space")
        again = text(app, "#said"), len(actions(app))
        return said, done, seen.replace("&#160;", " "), again

    (said, done, seen, again), _ = driven(lambda: loaded, drive, size=(columns, 30))
    assert "http://x/completions did not answer" in said and done == 2
    assert START_IT not in said, "one need not run it anew"
    assert "The server does not answer. Start it" in seen and "again, then press space." in seen
    assert "space: the agent does" in again[0] and again[1] == 2


def test_a_server_that_is_not_there_ends_the_screen_with_its_line(loaded, monkeypatch):
    async def drive(app, press):
        return None

    monkeypatch.setattr("agentprm_core.one_game.OneGame._decided", gone)
    said = driven(lambda: loaded, drive)[1]
    assert said.startswith(f"the server at http://x does not answer: {START_IT}; ") and "press space" not in said


def gone(game):
    tried = "http://x/completions did not answer in 3 tries;\nlast: refused"
    raise SilentServer(f"the server at http://x does not answer: {START_IT}; {tried}")


def test_a_key_waits_also_where_the_thread_has_not_begun(loaded):
    async def drive(app, press):
        app.action_step()
        app.action_step()
        said = text(app, "#said")
        await press()
        return said, actions(app)

    (said, done), _ = driven(lambda: loaded, drive)
    assert "Thinking" in said and len(done) == 1


def test_keys_wait_while_the_models_think(loaded):
    async def drive(app, press):
        app.busy = True
        app.action_undo()
        app.action_step()
        said = text(app, "#said")
        app.busy = False
        return said, actions(app)

    (said, done), _ = driven(lambda: loaded, drive)
    assert "Thinking" in said and done == []
