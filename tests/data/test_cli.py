"""The console script: one help, nothing imported before it is needed, arguments handed on as they are."""

import argparse
import ast
import resource
import subprocess
import sys

import pytest
import torch
from click.testing import CliRunner

from tasks.commands import cli
from tests.data.test_structure import SOURCE

HEAVY = ("torch", "transformers", "pyarrow", "numpy", "textual", "mlflow", "prefect", "dvc")
RUN = "import sys; from tasks.commands.cli import main; sys.argv = ['agentprm', *sys.argv[1:]]\n"
SAY = "try: main()\nfinally: print([name for name in {heavy} if name in sys.modules])"


def said(*arguments: str) -> str:
    code = RUN + SAY.format(heavy=HEAVY)
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True).stdout


@pytest.mark.integration
def test_help_names_every_command_and_imports_nothing_heavy():
    *text, imported = said("--help").splitlines()
    listed = [line.split()[0] for line in text[text.index("Commands:") + 1 :] if line.startswith("  ") and line.strip()]
    assert listed[: len(cli.COMMANDS)] == list(cli.COMMANDS)
    assert imported == "[]"


@pytest.mark.integration
def test_help_takes_less_than_half_a_second_of_a_core():
    took = []
    for _ in range(3):
        before = seconds_of_children()
        said("--help")
        took.append(seconds_of_children() - before)
    assert min(took) < 0.5


def seconds_of_children() -> float:
    """On a processor, of those that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_is_a_module_of_ours_and_a_line(name):
    does, main = cli.COMMANDS[name]
    assert main.partition(":")[0] in SOURCE.paths and main.endswith(":main")
    assert does.endswith((".", "?")) and len(does) < 70


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_a_help_under_its_own_name(name):
    done = CliRunner().invoke(cli.group(), [name, "--help"], prog_name="agentprm")
    assert done.exit_code == 0, done.output
    assert done.output.lower().startswith(f"usage: agentprm {name}")


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_option_of_a_command_has_a_help(monkeypatch, name):
    asked = []
    monkeypatch.setattr(argparse.ArgumentParser, "print_help", lambda parser: asked.append(parser))
    CliRunner().invoke(cli.group(), [name, "--help"], prog_name="agentprm")
    (parser,) = asked
    assert [action.dest for action in parser._actions if not action.help] == []


@pytest.mark.integration
@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_help_of_no_command_waits_for_torch(name):
    imported = said(name, "--help").splitlines()[-1]
    assert not {"torch", "transformers", "mlflow", "prefect", "dvc"} & set(ast.literal_eval(imported))


def test_arguments_are_handed_on_as_they_are(monkeypatch):
    seen = []
    monkeypatch.setattr("tasks.check_world.main", lambda prog: seen.append((prog, sys.argv)))
    CliRunner().invoke(cli.group(), ["check-world", "a:B", "--games", "3", "--json"], catch_exceptions=False)
    assert seen == [("agentprm check-world", ["agentprm check-world", "a:B", "--games", "3", "--json"])]


EVALUATE = ("evaluate", "--policy", "shipped:households", "--games", "games", "--split", "unseen", "--slots", "7")


@pytest.mark.parametrize(
    ("arguments", "asks", "todo"),
    [
        (EVALUATE, "tasks.commands.measuring.measured", "lower --slots (it is 7)"),
        (("show", "--game", "a", "--policy", "shipped:households"), "tasks.commands.show_page.shown_page", "end other"),
        (("play", "--print"), "tasks.commands.play.load", "end other programs"),
        (("check-world", "a:B"), "tasks.check_world.main", "end other programs"),
    ],
)
def test_too_little_memory_is_one_line(monkeypatch, arguments, asks, todo):
    monkeypatch.setattr(asks, lambda *given: torch.empty(10**15))
    done = CliRunner().invoke(cli.group(), arguments)
    assert done.exit_code == 1
    assert done.output.startswith(f"{arguments[0]}: not enough memory: {todo}") and "DefaultCPUAllocator" in done.output
    assert done.output.count("\n") == 1


def test_too_little_memory_for_a_commands_modules_is_one_line(monkeypatch):
    def imported(module: str):
        raise ImportError("libtorch_cpu.so: failed to map segment from shared object")

    monkeypatch.setattr(cli, "import_module", imported)
    done = CliRunner().invoke(cli.group(), ["play"])
    assert done.exit_code == 1 and done.output.startswith("play: not enough memory: ") and done.output.count("\n") == 1


def test_a_fault_of_a_command_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr("tasks.check_world.main", lambda prog: torch.empty(2) @ torch.empty(3))
    with pytest.raises(RuntimeError, match="size"):
        CliRunner().invoke(cli.group(), ["check-world", "a:B"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["evalute"], "agentprm: there is no command 'evalute'; did you mean evaluate? (agentprm --help)\n"),
        (["foo"], "agentprm: there is no command 'foo'; there are: play, fetch, champion, evaluate, show, "),
        (["--foo"], "agentprm: No such option '--foo' (agentprm --help)\n"),
        (["play", "--server", "http://x/v1", "--model", "m"],
         "play: --server needs --speech, --context (agentprm play --help)\n"),
        (["play", "--speech", "chat"], "play: --speech: of --server, and no server is named (agentprm play --help)\n"),
        (["evaluate"], "evaluate: one of the arguments --policy --server is required (agentprm evaluate --help)\n"),
        (["plan", "--memory", "no"], "plan: argument --memory: 'no' is not a number above 0 (agentprm plan --help)\n"),
        (["check-world"], "check-world: the following arguments are required: world (agentprm check-world --help)\n"),
        (["check-world", "nosuch"], "check-world: 'nosuch' is not one of alfworld, "),
    ],
)  # fmt: skip
def test_a_wrong_line_is_answered_with_one_that_says_what_is_wrong(arguments, said):
    done = CliRunner().invoke(cli.group(), arguments)
    assert done.exit_code == (1 if "nosuch" in arguments else 2)
    assert done.output.startswith(said) and done.output.count("\n") == 1
