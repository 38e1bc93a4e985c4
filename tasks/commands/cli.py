"""The command ``agentprm``: one ``--help`` from which most commands outside a campaign are found.

    agentprm --help
    agentprm evaluate --help

A subcommand is a line of :data:`COMMANDS`: what it does, and its ``package.module:main``. That module is imported only
when its subcommand is run, so the help is there at once. ``main`` gets the name that it was called by, for its own
``--help``, and reads its arguments from ``sys.argv`` as under ``python -m``. The stages of a campaign are not here:
DVC runs them as ``python -m tasks.NAME``.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import NamedTuple, NoReturn

import click

from agentprm_core.errors import nearest
from tasks.frame.memory import in_memory


class Subcommand(NamedTuple):
    """One line of the help."""

    does: str
    main: str
    """``package.module:function``, called with the program's name (``agentprm evaluate``)."""


COMMANDS = {
    "play": Subcommand("Watch an agent play a game, and take over from it.", "tasks.commands.play:main"),
    "fetch": Subcommand("The champion's weights, or any policy's, into a folder.", "tasks.commands.fetch:main"),
    "champion": Subcommand("Which policy is champion, and the way back.", "tasks.commands.champion:main"),
    "evaluate": Subcommand(
        "Measure a policy, alone or searching under a PRM, on games.", "tasks.commands.standalone:main"
    ),
    "show": Subcommand("A game as one page: turns, probabilities, Q, two policies.", "tasks.commands.show:main"),
    "report": Subcommand("A campaign's page once more, or with other seeds.", "tasks.commands.report:main"),
    "inspect-log": Subcommand("Episodes as a log for `inspect view`.", "tasks.commands.inspect_log:main"),
    "search-curves": Subcommand("Success against compute, in every search.", "tasks.commands.search_curves:main"),
    "plan": Subcommand("Memory and hours of each stage, beforehand.", "tasks.commands.plan:main"),
    "make-chat-model": Subcommand("Train a small chat model from scratch.", "tasks.commands.make_chat_model:main"),
    "check-world": Subcommand("Does a world of your own keep the contract?", "tasks.check_world:main"),
    "serve-world": Subcommand("Serve a world to other trainers, by OpenEnv.", "tasks.serve_world:main"),
}
"""Subcommand → what it does and where it is. In the order of the help."""

ELSEWHERE = """\b
Training is run by make and DVC:
  make run        every stage that is not up to date, and the table
  make ui         Prefect and MLflow on localhost

Every command has its own --help. docs/operations.md lists them all."""


class InOrder(click.Group):
    """A group whose help lists the commands as they were added, not by the alphabet. A wrong command is one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            _refuse(ctx, error.message)

    def resolve_command(self, ctx: click.Context, args: list[str]):
        if (name := args[0]) not in self.commands:
            near = nearest(name, list(self.commands))
            meant = f"did you mean {near}?" if near else f"there are: {', '.join(self.commands)}"
            _refuse(ctx, f"there is no command {name!r}; {meant}")
        return super().resolve_command(ctx, args)


def _refuse(ctx: click.Context, message: str) -> NoReturn:
    """One line, without the usage."""
    click.echo(f"agentprm: {message.removesuffix('.')} (agentprm --help)", err=True)
    ctx.exit(2)


def group() -> click.Group:
    """All subcommands. None of their modules is imported."""
    found = InOrder(
        "agentprm",
        help="Train language-model agents with process reward models, and look at them play.",
        epilog=ELSEWHERE,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for name, subcommand in COMMANDS.items():
        found.add_command(_command(name, subcommand))
    return found


def _command(name: str, subcommand: Subcommand) -> click.Command:
    """One that hands all of its arguments on, ``--help`` too."""
    return click.Command(
        name,
        callback=partial(_run, name),
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        short_help=subcommand.does,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    )


def _run(name: str, arguments: tuple[str, ...]) -> None:
    module, _, function = COMMANDS[name].main.partition(":")
    prog = f"agentprm {name}"
    sys.argv = [prog, *arguments]
    if "" not in sys.path:
        sys.path.append("")  # a world of one's own lies in the current folder
    try:
        with in_memory(name):
            _imported(module, function)(prog)
    finally:
        gc.freeze()  # else the interpreter looks through every module before it ends, for up to a second


def _imported(module: str, function: str) -> Callable[[str], None]:
    gc.disable()  # nothing that an import makes is garbage, and looking for some takes a tenth of its time
    try:
        return getattr(import_module(module), function)
    finally:
        gc.enable()


def main() -> None:
    """The console script."""
    group()(prog_name="agentprm")


if __name__ == "__main__":
    main()
