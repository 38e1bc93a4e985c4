"""``python -m tasks.evaluate`` by itself: any checkpoint, any games, one JSON object last."""

import argparse
import json
import sys
from dataclasses import replace

import pytest
from peft import LoraConfig, get_peft_model

from agentprm_core.datasets import games_from_table, games_to_table, read_table, write_table
from agentprm_core.errors import DataError
from agentprm_core.policy.models import MANIFEST, load_checkpoint, measured_where, save_checkpoint
from agentprm_core.policy.speech import API_KEY
from agentprm_core.prm.model import new_prm
from agentprm_core.types import GAMES, Game, Turn
from agentprm_core.worlds import world_spec
from agentprm_core.worlds.alfworld.spec import ALFWORLD
from agentprm_core.worlds.arithmetic.spec import ARITHMETIC
from agentprm_core.worlds.published import world_of_games
from tasks.commands import play, show, standalone
from tasks.commands.measuring import settle_world
from tasks.commands.standalone import STANDALONE
from tests.data.project import ROOT
from tests.model.test_server import serving

NAMES = {
    "greedy": "greedy", "sample": "sample", "best_of_n": "best_of_2", "best_trajectory": "best_trajectory_of_2",
    "beam": "beam_2x2",
}  # fmt: skip


SIZES = {"best_of_n": ("--n", 2), "best_trajectory": ("--n", 2), "beam": ("--width", 2, "--samples", 2)}


def playing(checkpoints, method: str) -> tuple:
    """Who plays, and in which way."""
    prm = ("--prm", checkpoints / "prm") if method in SIZES else ()
    return ("--policy", checkpoints / "policy", *prm, "--method", method, *SIZES.get(method, ()))


def said(capsys, monkeypatch, *arguments: str) -> dict:
    monkeypatch.setattr(sys, "argv", ["evaluate", *map(str, arguments), "--max-turns", "3", "--json"])
    standalone.main()
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.parametrize("method", STANDALONE)
def test_every_method_ends_with_one_json_object(checkpoints, capsys, monkeypatch, method):
    figures = said(capsys, monkeypatch, *playing(checkpoints, method), "--games", checkpoints, "--split", "unseen")
    assert {"success", "ci_low", "ci_high", "games", "mean_actions", "seconds"} <= figures.keys()
    assert (figures["games"], figures["mean_actions"], figures["max_turns"]) == (2, 3.0, 3)
    assert figures["decoding"] == NAMES[method]
    assert (figures["prm_read"] > 0) == (method not in ("greedy", "sample"))
    assert figures["generated"] > 0


@pytest.mark.parametrize("method", STANDALONE)
def test_every_method_plays_in_bfloat16(checkpoints, capsys, monkeypatch, method):
    figures = said(
        capsys, monkeypatch, *playing(checkpoints, method), "--games", checkpoints, "--split", "unseen",
        "--precision", "bfloat16",
    )  # fmt: skip
    assert (figures["games"], figures["inadmissible"]) == (2, 0.0)


def test_adapters_play_and_choose_in_bfloat16(checkpoints, capsys, monkeypatch, tmp_path):
    base = load_checkpoint(checkpoints / "policy")
    config = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    policy = get_peft_model(base.model, config)
    save_checkpoint(policy, base.tokenizer, tmp_path / "policy")
    save_checkpoint(new_prm(policy), base.tokenizer, tmp_path / "prm", kind="prm")
    figures = said(
        capsys, monkeypatch, "--policy", tmp_path / "policy", "--prm", tmp_path / "prm", "--games", checkpoints,
        "--split", "unseen", "--method", "best_of_n", "--precision", "bfloat16",
    )  # fmt: skip
    assert figures["games"] == 2 and figures["prm_read"] > 0


def test_a_published_tree_and_a_table_of_it_give_the_same(checkpoints, capsys, monkeypatch):
    common = ("--policy", checkpoints / "policy", "--split", "unseen", "--method", "sample")
    table = said(capsys, monkeypatch, *common, "--games", checkpoints)
    tree = said(capsys, monkeypatch, *common, "--games", checkpoints / "tree")
    assert {**table, "seconds": 0} == {**tree, "seconds": 0}


def test_on_published_games(checkpoints, alfworld_data, capsys, monkeypatch):
    figures = said(
        capsys, monkeypatch, "--policy", checkpoints / "policy", "--games", alfworld_data, "--split", "valid_seen",
        "--limit", 3,
    )  # fmt: skip
    assert figures["games"] == 3


def test_an_address_with_a_password_is_refused_and_not_repeated(monkeypatch, capsys):
    given = ["evaluate", "--games", "y", "--split", "z", "--server", "http://ann:hunter22@h/v1"]
    monkeypatch.setattr(sys, "argv", given)
    with pytest.raises(SystemExit):
        standalone.main()
    said = capsys.readouterr().err
    assert "argument --server: an address with a password is not allowed: http://HOST:8000/v1" in said
    assert "hunter22" not in said


def test_a_split_without_games_is_one_line(checkpoints, tmp_path, monkeypatch):
    write_table(games_to_table([]), tmp_path / "none.parquet")
    given = ["evaluate", "--policy", checkpoints / "policy", "--games", tmp_path, "--split", "none"]
    monkeypatch.setattr(sys, "argv", [str(word) for word in given])
    with pytest.raises(SystemExit, match="none: no games there"):
        standalone.main()


@pytest.mark.parametrize("policy, world", [("shipped:webshop", "webshop"), ("shipped:babyai", "babyai")])
@pytest.mark.parametrize("split", ["valid_seen", "seen"])
def test_published_games_of_another_world_than_the_policys_are_told(alfworld_data, monkeypatch, policy, world, split):
    """The policy's world knows no such split, or has no published games: that is not what is wrong."""
    monkeypatch.setattr(sys, "argv", ["evaluate", "--policy", policy, "--games", str(alfworld_data), "--split", split])
    with pytest.raises(SystemExit) as stopped:
        standalone.main()
    assert stopped.value.code == (
        f"evaluate: {alfworld_data}, {split}: these are games of alfworld, not of {world}: take a policy that was "
        f"trained in alfworld (and --world alfworld), or games of {world}"
    )


def test_a_split_that_no_world_has_is_the_worlds_own_line(alfworld_data, monkeypatch):
    command = ["evaluate", "--policy", "shipped:webshop", "--games", str(alfworld_data), "--split", "nosuch"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit, match=r"^evaluate: webshop: split 'nosuch' is not one of train, seen, unseen$"):
        standalone.main()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nosuch", "nosuch: no such folder"),
        ("README.md", "README.md: neither a folder of tables (unseen.parquet) nor one of published games"),
        (
            "docs",
            "docs: neither a table unseen.parquet nor published games there: no split 'valid_unseen' in docs/json",
        ),
        ("tables", "tables: no split 'unseen'; there are tables of guard, seen"),
    ],
)
@pytest.mark.parametrize("program", [standalone, play])
def test_what_holds_no_games_is_named(tmp_path, monkeypatch, program, name, said):
    (tmp_path / "docs").mkdir()
    for split in ("seen", "guard"):
        write_table(games_to_table(ALFWORLD.generate(1, 1, "seen")), tmp_path / "tables" / f"{split}.parquet")
    (tmp_path / "README.md").write_text("# Games")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["x", "--policy", "shipped:households", "--games", name])
    with pytest.raises(SystemExit) as stopped:
        program.main("agentprm x")
    _, _, line = str(stopped.value.code).partition(": ")
    assert line.startswith(said) and "\n" not in line


def test_a_search_needs_a_prm(checkpoints, capsys, monkeypatch):
    arguments = ["evaluate", "--policy", "x", "--games", "y", "--split", "z", "--method", "beam"]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as stopped:
        standalone.main()
    assert stopped.value.code == 2
    assert "--method beam needs --prm, the PRM that chooses" in capsys.readouterr().err


def test_a_beam_wider_than_its_slots_is_one_line(checkpoints, monkeypatch, capsys):
    who = ("--policy", checkpoints / "policy", "--prm", checkpoints / "prm")
    how = ("--games", checkpoints, "--split", "unseen", "--method", "beam", "--width", 9, "--slots", 4)
    monkeypatch.setattr(sys, "argv", ["evaluate", *map(str, (*who, *how))])
    with pytest.raises(SystemExit) as stopped:
        standalone.main()
    assert stopped.value.code == 2
    assert "--width 9: a beam needs as many --slots, not 4" in capsys.readouterr().err


def test_a_search_that_chooses_nothing_is_one_line(checkpoints, monkeypatch, capsys):
    who = ("--policy", checkpoints / "policy", "--prm", checkpoints / "prm")
    how = ("--games", checkpoints, "--split", "unseen", "--method", "beam", "--width", 1, "--samples", 1)
    monkeypatch.setattr(sys, "argv", ["evaluate", *map(str, (*who, *how))])
    with pytest.raises(SystemExit):
        standalone.main()
    assert "evaluate: --method: beam_1x1: of one sample nothing is chosen (" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["best_of_2", "best_trajectory_of_2", "beam_2x2", "best_of_2_by_random@0.7"])
def test_the_names_of_params_yaml_are_the_same_ways_of_playing(checkpoints, capsys, monkeypatch, name):
    common = ("--games", checkpoints, "--split", "unseen")
    who = ("--policy", checkpoints / "policy", *(() if "random" in name else ("--prm", checkpoints / "prm")))
    named = said(capsys, monkeypatch, *who, *common, "--method", name)
    assert (named["decoding"], named["games"]) == (name, 2)
    method = next((method for method, way in NAMES.items() if way == name), None)
    if method:
        plain = said(capsys, monkeypatch, *playing(checkpoints, method), *common)
        assert {**named, "seconds": 0} == {**plain, "seconds": 0}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("--prm Q", "--prm: no --method is named; a PRM chooses in best_of_n, best_trajectory or beam, and greedy "),
        ("--method sample --prior 0", "--prior: of --method best_of_n, best_trajectory or beam, and sample was asked"),
        ("--n 4", "--n: of --method best_of_n or best_trajectory, and greedy was asked for"),
        ("--prm Q --method best_of_n --width 4", "--width: of --method beam, and best_of_n was asked for"),
        ("--prm Q --method best_of_n --path-prior", "--path-prior: of --method best_trajectory or beam, and best_of_n"),
        ("--temperature 1", "--temperature: of --method sample, best_of_n, best_trajectory or beam, and greedy was"),
        ("--model m", "--model: of --server, and no server is named"),
        ("--speech chat", "--speech: of --server, and no server is named"),
        ("--prm Q --method best_of_16 --n 4", "--n: the name best_of_16 says it already"),
        ("--prm Q --method best_of_16@0.7 --temperature 1", "--temperature: the name best_of_16@0.7 says it already"),
        ("--method best_of_16", "--method best_of_16 needs --prm, the PRM that chooses"),
        ("--method best_of_many", "argument --method: 'best_of_many' is not one of greedy, sample, best_of_N, "),
        ("--method lookahead_of_4x1", "argument --method: lookahead needs a world model"),
        ("--out .", "--out .: is a folder; name a file"),
    ],
)
def test_what_the_way_of_playing_does_not_use_is_refused(capsys, monkeypatch, given, told):
    monkeypatch.setattr(sys, "argv", ["evaluate", "--policy", "P", *given.split()])
    with pytest.raises(SystemExit) as stopped:
        standalone.main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith(f"evaluate: {told}")


def test_a_prm_beside_greedy_by_name_changes_nothing(checkpoints, capsys, monkeypatch):
    """The same command measures each method in turn."""
    who, games = ("--policy", checkpoints / "policy"), ("--games", checkpoints, "--split", "unseen")
    plain = said(capsys, monkeypatch, *who, *games)
    named = said(capsys, monkeypatch, *who, "--prm", checkpoints / "prm", *games, "--method", "greedy")
    assert {**named, "seconds": 0} == {**plain, "seconds": 0} and named["prm_read"] == 0


def test_every_game_is_written(checkpoints, capsys, monkeypatch, tmp_path):
    games = games_from_table(read_table(checkpoints / "unseen.parquet", GAMES))
    common = ("--policy", checkpoints / "policy", "--games", checkpoints, "--split", "unseen")
    figures = said(capsys, monkeypatch, *common, "--out", tmp_path / "games.json")
    rows = json.loads((tmp_path / "games.json").read_text())
    assert [(row["id"], row["kind"]) for row in rows] == [(game.id, game.kind) for game in games]
    assert sum(row["won"] for row in rows) == figures["success"] * 2
    assert {len(row["actions"]) for row in rows} == {3}


def test_a_context_that_games_outgrow_is_told_and_one_that_none_begins_in_is_refused(checkpoints, capsys, monkeypatch):
    common = ["evaluate", "--policy", checkpoints / "policy", "--games", checkpoints, "--split", "unseen"]

    def run(context: int, *more: str) -> str:
        monkeypatch.setattr(sys, "argv", [*map(str, common), "--context", str(context), *more])
        standalone.main()
        return capsys.readouterr().out

    policy = load_checkpoint(checkpoints / "policy")
    games = games_from_table(read_table(checkpoints / "unseen.parquet", GAMES))
    begins = max(len(policy.renderer.episode([Turn(begun(game), "", (), True, "")]).input_ids) for game in games)
    assert f"; 2 of the games outgrew the context of {begins + 20} tokens\n" in run(begins + 20)
    assert "outgrew" not in run(4096, "--max-turns", "3")
    with pytest.raises(SystemExit, match=r"^evaluate: no game begins: .* fills a context of 2 tokens; a larger"):
        run(2)


def begun(game: Game) -> str:
    """What the world says first."""
    return world_spec(game.world).make().reset(game).text


def test_a_policy_behind_a_server_plays_as_it_does_here(checkpoints, capsys, monkeypatch):
    games = ("--games", checkpoints, "--split", "unseen")
    monkeypatch.setenv(API_KEY, "secret")
    with serving() as server:
        server.policy = load_checkpoint(checkpoints / "policy")
        url = f"http://127.0.0.1:{server.server_port}/v1"
        there = said(
            capsys, monkeypatch, "--server", url, "--model", "mine", "--speech", "text", "--context", 4096, *games
        )
        assert {key for _, _, key in server.asked} == {"Bearer secret"}
        assert {body["temperature"] for _, body, _ in server.asked} == {0.0}
    here = said(capsys, monkeypatch, "--policy", checkpoints / "policy", "--free", *games)
    differ = (
        "seconds",
        "policy",
        "context",
        "policy_read",
        "generated",
    )  # the server counts the history anew at every turn
    assert {**there, **dict.fromkeys(differ)} == {**here, **dict.fromkeys(differ)}
    assert (there["policy"], there["constrained"], there["games"]) == ("mine", False, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--server needs --model, --speech, --context"),
        (("--model", "m", "--speech", "chat", "--context", "9", "--method", "beam"), "greedy and sample, not beam"),
        (("--policy", "x"), "not allowed with argument --server"),
        (("--prm", "x", "--method", "greedy"), "--prm: of --policy, and a --server plays without one"),
    ],
)
def test_what_a_server_cannot_be_asked(capsys, monkeypatch, arguments, message):
    given = ["evaluate", "--games", "y", "--split", "z", "--server", "http://127.0.0.1:9/v1", *arguments]
    monkeypatch.setattr(sys, "argv", given)
    with pytest.raises(SystemExit) as stopped:
        standalone.main()
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_the_world_is_that_of_the_games_and_its_turns_are_the_worlds(tmp_path, capsys, monkeypatch):
    command = ["evaluate", "--policy", "shipped:arithmetic", "--games", str(tmp_path), "--split", "unseen", "--json"]
    games = ARITHMETIC.generate(2, 1, "unseen")
    write_table(games_to_table(games), tmp_path / "unseen.parquet")
    monkeypatch.setattr(sys, "argv", command)
    standalone.main()
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (figures["games"], figures["max_turns"]) == (2, ARITHMETIC.max_turns)


def test_games_are_generated_where_none_are_named(tmp_path, capsys, monkeypatch):
    """The same as in a table of them: the world's, in ``unseen``, by the seed."""
    who = ("evaluate", "--policy", "shipped:arithmetic", "--seed", "7")
    write_table(games_to_table(ARITHMETIC.generate(3, 7, "unseen")), tmp_path / "unseen.parquet")
    told = []
    for games in (("--limit", "3"), ("--games", str(tmp_path))):
        monkeypatch.setattr(sys, "argv", [*who, *games, "--json"])
        standalone.main()
        line, last = capsys.readouterr().out.splitlines()[-1:], None
        told.append({**json.loads(line[0]), "seconds": last})
    assert told[0] == told[1] and told[0]["games"] == 3
    monkeypatch.setattr(sys, "argv", [*who, "--limit", "3"])
    standalone.main()
    assert capsys.readouterr().out.startswith("greedy on 3 generated games of arithmetic, unseen, seed 7: success ")


def test_so_many_games_as_the_page_says_are_generated(monkeypatch):
    asked = []
    monkeypatch.setattr("tasks.commands.measuring.generated", lambda spec, *how: asked.append((spec.name, *how)) or [])
    monkeypatch.setattr("tasks.commands.measuring.play_games", lambda *given: [])
    monkeypatch.setattr(sys, "argv", ["evaluate", "--policy", "shipped:households"])
    with pytest.raises(ValueError):
        standalone.main()
    assert asked == [("alfworld", 200, 1, "unseen")]
    assert (
        "`evaluate` plays 200 games that the policy's world generates, of the split `unseen` and by seed 1."
        in (ROOT / "docs/play.md").read_text()
    )


def test_a_world_that_makes_no_games_says_to_name_some(monkeypatch):
    server = ("--server", "http://127.0.0.1:9/v1", "--model", "m", "--speech", "chat", "--context", "512")
    monkeypatch.setattr(sys, "argv", ["evaluate", *server, "--world", "gsm8k"])
    with pytest.raises(SystemExit, match=r"^evaluate: gsm8k generates no games: give --games DIR and --split NAME$"):
        standalone.main()


@pytest.mark.parametrize("command", [("evaluate", standalone), ("play", play), ("show", show)])
def test_a_split_that_is_not_generated_is_answered_with_those_that_are(monkeypatch, tmp_path, command):
    name, module = command
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, "--policy", "shipped:households", "--split", "foo"])
    said = (
        f"^{name}: alfworld: split 'foo' is not one of train, seen, unseen; for published games give --games DIR too$"
    )
    with pytest.raises(SystemExit, match=said):
        module.main()


def test_games_of_no_table_or_of_several_worlds_leave_the_world_to_the_policy(tmp_path):
    homes, sums = ALFWORLD.generate(1, 1, "unseen"), ARITHMETIC.generate(1, 1, "unseen")
    for name, games in (("homes", homes), ("both", [*homes, *sums])):
        write_table(games_to_table(games), tmp_path / f"{name}.parquet")
    assert world_of_games(tmp_path, "homes") == world_of_games(tmp_path / "homes.parquet", "") == "alfworld"
    assert world_of_games(tmp_path, "both") == world_of_games(tmp_path, "valid_seen") == ""
    assert measured_where("shipped:arithmetic") == "arithmetic"
    assert measured_where(None) == measured_where(tmp_path) == ""


def test_games_of_ones_own_world_are_played_where_the_policy_was_trained(tmp_path):
    homes = [replace(game, world="homes") for game in ALFWORLD.generate(1, 1, "unseen")]
    write_table(games_to_table(homes), tmp_path / "unseen.parquet")
    trained = tmp_path / "policy"
    trained.mkdir()
    asked = {"games": tmp_path, "split": "unseen", "world": None, "max_turns": None, "policy": trained}
    for world, found in (("tests.data.test_evaluate_standalone:HOMES", True), ("homes", False), ("arithmetic", False)):
        (trained / MANIFEST).write_text(json.dumps({"world": world}))
        arguments = argparse.Namespace(**asked)
        if found:
            settle_world(arguments)
            assert (arguments.world, arguments.max_turns) == (world, 7)
        else:
            with pytest.raises(DataError, match=r"^'homes' is no world's name here: give --world package\.module:SPEC"):
                settle_world(arguments)


HOMES = replace(ALFWORLD, name="homes", max_turns=7)


def test_a_policy_trained_with_a_memory_is_measured_without_it(tmp_path, checkpoints):
    policy = load_checkpoint(checkpoints / "policy")
    save_checkpoint(policy.model, policy.tokenizer, tmp_path, world="alfworld-remembering")
    assert measured_where(tmp_path) == "alfworld"
