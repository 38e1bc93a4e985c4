"""The terminal's screen of ``agentprm play``: the game so far, what is thought of the state, and the keys.

Models are loaded and asked in a thread, so keys are answered meanwhile. What a key wants while the models think waits
for nobody: it is refused with a word, except to stop and to quit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from rich.table import Table
from rich.text import Text
from textual import events, work
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.suggester import SuggestFromList
from textual.widgets import Input, Static

from tasks.commands.play_lines import bar, how_it_ended, percent, score, seen_lines, shown
from tasks.frame.memory import memory_line

if TYPE_CHECKING:
    from agentprm_core.one_game import OneGame, Option, Outlook, Step
    from tasks.commands.play import Loaded

NARROWEST = 40
"""Columns below which nothing is shown but how many are needed."""
WIDE = 100
"""Columns from which on the game and the thoughts stand side by side."""
PACE_S = 0.6
"""Between two steps of a run."""
POLICY, PRM, TAKEN = "cyan", "green", "bold yellow"

KEYS = (
    Binding("space", "step", "step"),
    Binding("r", "run", "run/stop"),
    Binding("t", "take_over", "take over"),
    Binding("b", "undo", "back"),
    Binding("g", "go", "go to turn"),
    Binding("m", "mode", "mode"),
    Binding("n", "new", "new game"),
    Binding("q", "quit", "quit"),
    Binding("escape", "leave_input", show=False),
    Binding("pageup", "page(-1)", show=False),
    Binding("pagedown", "page(1)", show=False),
)


def _keys(width: int) -> str:
    """Textual's markup of the keys that are shown, in lines of ``width`` columns. Each of them can be clicked at."""
    lines: list[list[Binding]] = [[]]
    for binding in (b for b in KEYS if b.show):
        beside = [*lines[-1], binding]
        if lines[-1] and sum(len(f"{b.key} {b.description}  ") for b in beside) - 2 > width:
            lines.append([binding])
        else:
            lines[-1] = beside
    return "\n".join(
        "  ".join(f"[@click=app.{b.action}][bold $accent]{b.key}[/] {b.description}[/]" for b in line) for line in lines
    )


class PlayApp(App[str]):
    """Ends with the line of what went wrong, or None."""

    TITLE = "agentprm play"
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None
    CSS = """
    #head { height: auto; max-height: 3; background: $primary-background; padding: 0 1; }
    #body { height: 1fr; layout: vertical; }
    #game { height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
    #side { height: auto; max-height: 50%; padding: 0 1; border-top: solid $primary; scrollbar-size-vertical: 1; }
    #said { height: auto; max-height: 2; padding: 0 1; background: $boost; }
    #keys { height: auto; padding: 0 1; background: $panel; link-style: none; link-color: $foreground; }
    #narrow { display: none; height: 1fr; padding: 1; }
    Input { display: none; }
    Input.asking { display: block; }
    .wide #body { layout: horizontal; }
    .wide #game { width: 1fr; }
    .wide #side { width: 50%; min-width: 58; height: 1fr; max-height: 100%; }
    .wide #side { border-top: none; border-left: solid $primary; }
    .narrow #narrow { display: block; }
    .narrow #head, .narrow #body, .narrow #said, .narrow #keys { display: none; }
    """
    BINDINGS: ClassVar = [*KEYS]

    def __init__(self, load: Callable[[], Loaded]) -> None:
        super().__init__()
        self._load = load
        self._loaded: Loaded | None = None
        self._game: OneGame | None = None
        self.outlook: Outlook | None = None
        self.number, self.busy, self.running = 0, True, False
        self.asking, self.doubted = "", ""
        self.doubt: Option | None = None

    @property
    def loaded(self) -> Loaded:
        """What is there once the screen has said that it is loaded."""
        assert self._loaded is not None
        return self._loaded

    @property
    def game(self) -> OneGame:
        """The one that is played, once there is one."""
        assert self._game is not None
        return self._game

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        with Horizontal(id="body"):
            with VerticalScroll(id="game", can_focus=False):
                yield Static(id="turns")
            with VerticalScroll(id="side", can_focus=False):
                yield Static(id="thoughts")
        yield Static(id="said")
        yield Input(id="typed", compact=True)
        yield Static(f"At least {NARROWEST} columns are needed. Make the terminal wider.", id="narrow")
        yield Static(id="keys")  # Textual's Footer has one line, and cuts what is beyond it

    def on_mount(self) -> None:
        self._say("Loading the agent …")
        self._begin()

    def on_resize(self, event: events.Resize) -> None:
        width = event.size.width  # self.size is still that of before
        self.screen.set_class(width >= WIDE, "wide")
        self.screen.set_class(width < NARROWEST, "narrow")
        self.query_one("#keys", Static).update(_keys(width - 2))
        self.show()

    def leave(self) -> None:
        """Give up the game's seats and connections."""
        if self._game is not None:
            self._game.close()

    # what the keys do

    def action_step(self) -> None:
        self.running = False
        self._step()

    def action_run(self) -> None:
        self.running = not self.running
        if self.running:
            self._step()

    def action_undo(self) -> None:
        if self._free() and self.game.steps:
            self._back(len(self.game.steps) - 1)

    def action_go(self) -> None:
        if self._free() and self.game.steps:
            self._ask("go", f"To before which turn, 1 to {len(self.game.steps)}? Enter goes there, escape stays.", [])

    def action_take_over(self) -> None:
        if self._free() and not self.game.ended:
            listed = [option.action for option in self.outlook.options if option.admissible] if self.outlook else []
            self._ask("do", "Type a command: → completes it, enter does it, escape leaves it.", listed)

    def action_mode(self) -> None:
        if self._free():
            ways = self.loaded.ways
            self._change(ways[(ways.index(self.game.way) + 1) % len(ways)])

    def action_new(self) -> None:
        if self._free():
            self.number += 1
            self._begin()

    def action_page(self, pages: int) -> None:
        """Through what has happened."""
        told = self.query_one("#game", VerticalScroll)
        told.scroll_relative(y=pages * told.size.height, animate=False)

    def action_leave_input(self) -> None:
        self._answered()

    # what takes time, in a thread

    def _begin(self) -> None:
        """Load what is not loaded yet, and start a game."""

        def work() -> None:
            if self._loaded is None:
                self._loaded = self._load()
                self.number = self.loaded.first
            way = self._game.way if self._game else self.loaded.way
            self.leave()
            self._game = self.loaded.game(self.number, way)
            self.outlook = self.game.look()

        self._think(work, fatal=self._loaded is None)

    def _change(self, way) -> None:
        def work() -> None:
            self.game.way = way
            self.outlook = self.game.look()

        self._think(work)

    def _back(self, to: int) -> None:
        def work() -> None:
            self.game.back(to)
            self.outlook = self.game.look()

        self._think(work)

    def _do(self, action: str, reason: str, by: str) -> None:
        def work() -> None:
            self.game.do(action, reason, by)
            self.outlook = None
            self.outlook = self.game.look()

        self._think(work)

    def _look(self) -> None:
        def work() -> None:
            self.outlook = self.game.look()

        self._think(work)

    def _judge(self, command: str) -> None:
        def work() -> None:
            self.doubted, self.doubt = command, self.game.judge(command)

        self._think(work)

    def _think(self, work: Callable[[], None], fatal: bool = False) -> None:
        """Have ``work`` done in a thread. Keys wait from now on until what it led to is shown."""
        self.busy = True
        self._done_in_a_thread(work, fatal)

    @work(thread=True, exclusive=True)
    def _done_in_a_thread(self, work: Callable[[], None], fatal: bool) -> None:
        """Data that cannot be used, a server that has gone and memory that ran out are said in one line."""
        from agentprm_core.errors import DataError, SilentServer, out_of_memory
        from agentprm_core.policy.requests import START_IT

        said = ""
        try:
            work()
        except (DataError, OSError) as error:
            said, self.running = " ".join(str(error).split()), False
            if isinstance(error, SilentServer) and not fatal:  # first, since a narrow screen shows no more
                said = said.partition(f"{START_IT}; ")[2]
                said = f"The server does not answer. Start it again, then press space. {said}"
        except Exception as error:
            if not out_of_memory(error):
                raise
            said, self.running = memory_line({}, error), False
        if not self.is_running:  # one has quit meanwhile
            return
        if said and fatal:
            self.call_from_thread(self.exit, said)
            return
        self.call_from_thread(self._thought, said)

    def _thought(self, said: str) -> None:
        self.show()
        self._say(said or self._word(), wrong=bool(said))
        if self.running and self.outlook is not None:
            self.set_timer(PACE_S, self._run_on)
        else:
            self.running = False
        self.busy = False

    def _run_on(self) -> None:
        if self.running and not self.busy:
            self._step()

    def _step(self) -> None:
        if not self._free() or self.game.ended:
            return
        if self.outlook is None:  # a server had gone
            self._look()
        else:
            self._do(self.outlook.choice, self.outlook.reason, "policy")

    def _free(self) -> bool:
        """Whether a key may act. It may not while the models think."""
        if self.busy or self._game is None:
            self._say("Thinking …" if self._game else "Loading the agent …")
            return False
        return True

    # what is typed

    def _ask(self, what: str, words: str, completions: list[str]) -> None:
        self.running, self.asking, self.doubted = False, what, ""
        typed = self.query_one(Input)
        self._say(words)
        typed.value = ""
        typed.suggester = SuggestFromList(completions) if completions else None
        typed.add_class("asking")
        typed.focus()
        self.show()

    def _answered(self) -> None:
        self.asking, self.doubted, self.doubt = "", "", None
        self.query_one(Input).remove_class("asking")
        self.set_focus(None)
        self.show()
        self._say(self._word())

    def on_input_changed(self, typed: Input.Changed) -> None:
        if typed.value != self.doubted:
            self.doubted, self.doubt = "", None
        self.show()

    def on_input_submitted(self, typed: Input.Submitted) -> None:
        text = typed.value.strip()
        if not text or not self._free():
            return
        if self.asking == "go":
            self._go_to(text)
        elif text == self.doubted or any(o.action == text and o.admissible for o in self._options()):
            self._answered()
            self._do(text, "", "you")
        else:
            self._judge(text)

    def _go_to(self, text: str) -> None:
        if text.isdecimal() and 1 <= int(text) <= len(self.game.steps):
            self._answered()
            self._back(int(text) - 1)
        else:
            self._say(f"{text}: not a turn that was played, 1 to {len(self.game.steps)}", wrong=True)

    # what one sees

    def show(self) -> None:
        """Draw everything anew."""
        if self._game is None or not self.is_mounted:
            return
        wide = self.size.width >= WIDE
        self.query_one("#head", Static).update(self._head())
        self.query_one("#turns", Static).update(self._turns())
        self.query_one("#thoughts", Static).update(self._thoughts(wide))
        self.query_one("#game", VerticalScroll).scroll_end(animate=False)

    def _head(self) -> Text:
        head = Text(self.game.game.goal, style="bold", no_wrap=True, overflow="ellipsis")
        head.append(f"\nturn {len(self.game.steps) + 1} of {self.game.max_turns} · ", style="not bold")
        head.append(self.game.way.name, style="not bold yellow")
        head.append(f" · {self.loaded.players}", style="not bold dim")
        return head

    def _turns(self) -> Text:
        """All that has happened."""
        told = Text()
        for number, step in enumerate(self.game.steps, 1):
            told.append("\n".join(seen_lines(step.turn.observation)) + "\n", style="dim")
            told.append(_done(number, step))
        told.append("\n".join(seen_lines(self.game.seen.text)))
        if self.game.ended:
            won = self.game.ended == "won"
            told.append(f"\n\n{how_it_ended(self.game)}", style="bold green" if won else "bold red")
        return told

    def _thoughts(self, wide: bool) -> Table | Text:
        """What could be done here."""
        outlook = self.outlook
        if outlook is None:
            return Text("Press n for another game, b to go back." if self.game.ended else "", style="dim")
        room = self.size.height - 8 if wide else (self.size.height - 6) // 2 - 3
        most = max(3, room - bool(outlook.plan) - bool(outlook.reason))
        options = self._typed_options(most) if self.asking == "do" else shown(outlook, most)
        table = Table.grid(padding=(0, 1), expand=True)
        cells = self._columns(table, wide, options)
        for option in options:
            style = TAKEN if option.action == outlook.choice and self.asking != "do" else ""
            table.add_row(*cells(option), style=style)
        if outlook.reason:
            table.add_row("", Text(f"because: {outlook.reason}", style="italic"))
        if outlook.plan and self.asking != "do":
            table.add_row("", Text("then " + ", ".join(outlook.plan), style="dim italic"))
        return table

    def _columns(self, table: Table, wide: bool, options: list[Option]) -> Callable[[Option], list[Text | str]]:
        """The table's head, and what fills a row of it: bars where there is room."""
        width = 58 if wide else self.size.width
        bars = 8 if width >= 58 else 0
        known = any(not math.isnan(option.chance) for option in options)
        judged = any(not math.isnan(option.q) for option in options)
        sampled = any(option.samples for option in options)
        table.add_column(width=1)
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        head: list[Text | str] = ["", Text("could do", style="dim")]
        for there, name, style in ((known, "policy", POLICY), (judged, "PRM's Q", PRM)):
            if there:
                table.add_column(width=bars + 5 if bars else 7, no_wrap=True)
                head.append(Text(name, style=style))
        if sampled:
            table.add_column(width=4, no_wrap=True)
            head.append(Text("drew", style="dim"))
        table.add_row(*head)

        def cells(option: Option) -> list[Text | str]:
            chosen = self.outlook is not None and option.action == self.outlook.choice and self.asking != "do"
            row: list[Text | str] = ["▶" if chosen else "", option.action]
            if known:
                row.append(Text(f"{percent(option.chance)} {bar(option.chance, bars)}", style=POLICY))
            if judged:
                row.append(Text(f"{score(option.q)} {bar(option.q, bars)}", style=PRM))
            return [*row, f"{option.samples:3}×" if option.samples else ""] if sampled else row

        return cells

    def _options(self) -> list[Option]:
        return list(self.outlook.options) if self.outlook else []

    def _typed_options(self, most: int) -> list[Option]:
        """While one types: what begins so, the PRM's best first; and a command that is not admissible, judged."""
        typed = self.query_one(Input).value.strip()
        matching = [option for option in self._options() if option.action.startswith(typed)]
        matching.sort(key=lambda option: -option.q if not math.isnan(option.q) else -option.chance)
        return ([self.doubt] if self.doubt else []) + matching[:most]

    def _word(self) -> str:
        """The line above the keys."""
        if self.doubt is not None:
            says = "" if math.isnan(self.doubt.q) else f" The PRM gives it {score(self.doubt.q)}."
            return f"{self.doubted}: not among the admissible commands.{says} Enter again does it all the same."
        if self._game is not None and self.game.ended:
            return how_it_ended(self.game)
        return "space: the agent does what is marked ▶"

    def _say(self, words: str, wrong: bool = False) -> None:
        self.query_one("#said", Static).update(Text(words, style="bold red" if wrong else ""))


def _done(number: int, step: Step) -> Text:
    """One turn's action, with what was thought of it."""
    line = Text(f"{number:2} > {step.turn.action}", style="bold yellow" if step.by == "policy" else "bold magenta")
    option = next((o for o in step.outlook.options if o.action == step.turn.action), None) if step.outlook else None
    if option is not None and not math.isnan(option.chance):
        line.append(f"  {percent(option.chance).strip()}", style=f"not bold {POLICY}")
    if option is not None and not math.isnan(option.q):
        line.append(f"  Q {score(option.q)}", style=f"not bold {PRM}")
    if step.by == "you":
        line.append("  you", style="not bold magenta")
    return line.append("\n")


def show(load: Callable[[], Loaded]) -> str | None:
    """Run the screen until one quits; returns the line of what could not be loaded, if anything."""
    app = PlayApp(load)
    said = app.run()
    app.leave()
    return f"play: {said}" if said else None
