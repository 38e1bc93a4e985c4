"""Episodes as pages: what stands beside what, what is escaped, what the command says of bad input."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentprm_core.branches import BRANCHES
from agentprm_core.datasets import episodes_to_table, games_from_table, games_to_table, read_table, write_table
from agentprm_core.opinions import Candidate
from agentprm_core.policy.models import load_checkpoint, save_checkpoint
from agentprm_core.search.recorded import BACK, CROWDED, ENDED, FATES, KEPT, MERGED, PASSED, WON, Weighed
from agentprm_core.types import GAMES, LABELS, Episode, Game, Turn
from agentprm_core.worlds import world_spec
from agentprm_core.worlds.alfworld.households import generate_games
from tasks.commands import show, show_page
from tasks.report.pages import first_words
from tasks.report.shown import Branch, Label, Shown, aligned, beside, episode_page, told_apart
from tasks.report.tree import SAID

GAME = Game("g/1", "alfworld", "unseen", "pick", "put a mug in the cabinet", "(payload)")


def episode(*did: tuple[str, str], won: bool = True) -> Episode:
    """``did``: state and action of each turn."""
    turns = tuple(Turn(f"you are in {state}", action, ("go", "look", "take"), True, state) for state, action in did)
    return Episode(GAME.id, 0, 1, turns, won)


def shown(played: Episode, name: str = "policy", scores: int = 1, **more) -> Shown:
    told = [
        tuple(Candidate(a, 0.5, (0.25,) * scores, a == turn.action) for a in turn.admissible) for turn in played.turns
    ]
    return Shown(name, played, told, ending="the end", **more)


@given(st.lists(st.sampled_from("abc"), max_size=9), st.lists(st.sampled_from("abc"), max_size=9))
def test_every_turn_stands_once_and_in_order(first, second):
    rows = aligned(first, second)
    for side, keys in enumerate((first, second)):
        assert [row.turns[side] for row in rows if row.turns[side] is not None] == list(range(len(keys)))
    for row in rows:
        a, b = row.turns
        if row.shared:
            assert first[a] == second[b]


def test_states_that_both_share_stand_beside_each_other_again():
    rows = aligned("abxyc", "abzc")
    assert [row.turns for row in rows if row.shared] == [(0, 0), (1, 1), (4, 3)]


def test_episodes_that_begin_alike_are_paired_from_their_first_turn():
    rows = aligned("aaab", "aab")
    assert [row.turns for row in rows] == [(0, 0), (1, 1), (2, None), (3, 2)]


def test_they_part_where_one_repeats_a_state_and_the_other_leaves_it():
    one = episode(("a", "look"), ("a", "look"), ("a", "look"), ("b", "go"))
    other = episode(("a", "look"), ("a", "go"), ("b", "go"))
    assert [row.turns for row in beside([one, other]) if row.parts] == [(1, 1)]


def test_the_first_divergence_is_marked_once():
    one = episode(("a", "go"), ("b", "go"), ("c", "look"), ("d", "go"))
    other = episode(("a", "go"), ("b", "look"), ("x", "go"), ("d", "take"))
    rows = beside([one, other])
    assert [row.turns for row in rows if row.parts] == [(1, 1)]
    assert not any(row.parts for row in beside([one, one]))


def test_what_a_world_says_is_text(tmp_path):
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    game = dataclasses.replace(GAME, id=evil, goal=evil, kind=evil)
    turns = (Turn(evil * 9, evil, (evil, "go"), True, "a", reason=evil),)
    told = Shown(evil, Episode(evil, 0, 1, turns, False), [(Candidate(evil, 1.0, (0.5,), True),)], ending=evil,
                 tree=[Weighed((evil,), 1, 0.5, 0.5, KEPT)])  # fmt: skip
    page = episode_page(game, [told, told], [evil], note=evil)
    assert "<script" not in page and "<img" not in page
    assert page.count("&lt;script&gt;") > 10


def test_a_page_asks_the_network_for_nothing():
    page = episode_page(GAME, [shown(episode(("a", "go")))], ["PRM 3"])
    assert not re.search(r"https?://|//cdn|@import|url\(", page.replace("http://www.w3.org", ""))
    assert {*re.findall(r'(?:src|href)="([^"#]*)', page)} <= {"data:,", ""}


def test_labels_visits_and_plays_are_said():
    told = shown(
        episode(("a", "go"), ("b", "look")),
        labels={0: Label(0.75, 4, 0.01), 1: Label(0.5, 1, 0.0)},
        branches={1: [Branch("take", 0.83, 6, 7.5), Branch("look", 0.5, 1, 2.0)]},
    )
    page = episode_page(GAME, [told], ["PRM 3"])
    for words in (
        "label 0.75, 4 visits, variance 0.010<", "label 0.50, 1 visit<", "0.83",
        ">6 plays after it, 8 more turns on average<", ">1 play after it, 2 more turns<",
    ):  # fmt: skip
        assert words in page, words


def test_what_a_page_says_of_q_holds_without_outcomes_too():
    """InversePRM has seen none, and labels no turns."""
    page = episode_page(GAME, [shown(episode(("a", "go")))], ["PRM 3"])
    said = page.partition("<b>Q</b>")[2].partition("</p>")[0]
    assert "learnt from outcomes gives a sure win 1" in said and "InversePRM learnt without them" in said
    assert "<b>label</b>" not in page


def test_the_tree_of_a_search_says_what_was_weighed_and_what_became_of_it():
    played = episode(("a", "go"), ("b", "take"))
    tree = [
        Weighed(("look",), 1, 0.25, 0.2, MERGED), Weighed(("go",), 3, 0.9, 0.9, KEPT),
        Weighed(("take",), 1, 0.6, 0.5, KEPT),
        Weighed(("go", "take"), 2, 0.8, 0.8, KEPT), Weighed(("take", "look"), 2, 0.3, 0.3, BACK),
        Weighed(("go", "take"), 0, 0.8, 0.8, WON), Weighed(("go", "look"), 1, 0.1, 0.1, PASSED),
        Weighed(("take", "go", "go"), 4, 0.7, 0.7, ENDED),
    ]  # fmt: skip
    page = episode_page(GAME, [shown(played, tree=tree)], ["PRM 3"])
    words = " ".join(re.sub("<[^>]+>", " ", page.partition("The beam search of A")[2]).split())
    assert words.split(" Turn ")[1:] == [
        "1 kept → 1. go 3 samples, worth 0.90 Q 0.90 2 others: 1 kept, 1 merged "
        "kept 2. take 1 sample, worth 0.50 Q 0.60 merged 3. look 1 sample, worth 0.20 Q 0.25",
        "2 won → 1. take 2 samples, worth 0.80 Q 0.80 2 others: 1 goes back, 1 passed over "
        "goes back 2. look 2 samples, worth 0.30, after 2. take Q 0.30 "
        "passed over 3. look 1 sample, worth 0.10, after → 1. go Q 0.10",
        "3 1 after the played path had ended: 1 ended ended 1. go 4 samples, worth 0.70 Q 0.70",
    ]
    for fate in (WON, KEPT, ENDED, MERGED, BACK, PASSED):
        assert f"{SAID[fate]} ({2 if fate == KEPT else 1})" in words
    assert SAID[CROWDED] not in words and SAID.keys() == {*FATES}
    assert "title=" not in page


def test_the_documentation_explains_the_marks_as_the_page_does():
    text = (Path(__file__).parents[2] / "docs/looking.md").read_text()
    assert [fate for fate, said in SAID.items() if f"| {fate} | {said} |" not in text] == []


def test_a_large_tree_is_folded_but_for_the_path_that_was_played():
    one = [Weighed(("go",), 1, 0.5, 0.5, KEPT), Weighed(("look",), 1, 0.25, 0.25, PASSED)]
    many = [Weighed((f"take {n}",), 1, 0.25, 0.25, PASSED) for n in range(40)]
    for tree, attribute in ((one, " open"), (one + many, "")):
        page = episode_page(GAME, [shown(episode(("a", "go")), tree=tree)], ["PRM 3"])
        before, details, after = page.partition(f'<details{attribute}><summary class="small">{len(tree) - 1} other')
        assert details and "→ 1. go" in before and "2. look" in after
        assert ", worth" not in page


def test_short_texts_are_not_folded_and_long_ones_break_at_a_word():
    assert first_words("short") == "short"
    assert first_words("word " * 100).endswith("word …") and len(first_words("x" * 999)) < 170


def test_long_reasons_are_folded():
    turn = Turn("you are here", "go", ("go",), True, "a", reason="because " * 80)
    page = episode_page(GAME, [shown(Episode(GAME.id, 0, 1, (turn,), True))], ["PRM 3"])
    assert re.search(r"<summary>(because )+…</summary>", page)


def test_the_line_has_its_first_turn_above_the_words_that_name_it_and_its_last():
    page = episode_page(GAME, [shown(episode(("a", "go"), ("b", "go"), ("c", "go")))], ["PRM 3"])
    assert 'd="M0.00 75.00L50.00 75.00L100.00 75.00"' in page
    one = episode_page(GAME, [shown(episode(("a", "go")))], ["PRM 3"])
    assert one.count("<span>turn 1</span>") == 1 and 'd="M0.00 75.00"' in one


def test_names_are_told_apart():
    assert list(told_apart(["a", "b", "a"])) == ["a (1)", "b", "a (3)"]


def said(monkeypatch, capsys, *arguments) -> str:
    monkeypatch.setattr(sys, "argv", ["show", *map(str, arguments)])
    show.main("agentprm show")
    return capsys.readouterr().out


def refused(monkeypatch, capsys, *arguments) -> str:
    with pytest.raises(SystemExit) as end:
        said(monkeypatch, capsys, *arguments)
    return str(end.value.code) if end.value.code != 2 else capsys.readouterr().err


def games_of(folder) -> list[Game]:
    return games_from_table(read_table(folder / "unseen.parquet", GAMES))


@pytest.mark.parametrize("search", ["greedy", "beam_2x2"])
def test_two_policies_on_one_page(checkpoints, monkeypatch, capsys, tmp_path, search):
    game, out = games_of(checkpoints)[0], tmp_path / "page.html"
    told = said(
        monkeypatch, capsys, "--game", game.id, "--games", checkpoints, "--policy", f"old={checkpoints / 'policy'}",
        "--policy", checkpoints / "policy", "--prm", checkpoints / "prm", "--prm", f"other={checkpoints / 'prm'}",
        "--search", search, "--max-turns", 3, "--out", out,
    )  # fmt: skip
    page = out.read_text()
    assert str(out) in told
    assert f"A: old, {search}" in page and f"policy, {search}" in page and ">other<" in page
    assert ("The beam search of A" in page) == (search == "beam_2x2")
    assert page == out.read_text() and game.id in page
    for name, folder in (("old, " + search, "policy"), ("PRM", "prm"), ("other", "prm")):
        assert re.search(rf'<div class="soft small">[^<]*{name}[^<]*: {checkpoints / folder}</div>', page), name


def test_a_page_is_of_the_precision_that_is_asked_for(checkpoints, monkeypatch, capsys, tmp_path):
    out = tmp_path / "page.html"
    pages = []
    for precision in ("float32", "bfloat16", "float32"):
        asked = ("--games", checkpoints, "--max-turns", 3, "--precision", precision, "--device", "cpu", "--out", out)
        said(monkeypatch, capsys, *asked, "--policy", checkpoints / "policy", "--prm", checkpoints / "prm")
        pages.append(out.read_text())
    assert pages[0] == pages[2] != pages[1], "the probabilities and scores have other digits"


def test_a_prm_of_the_policys_name_is_called_a_prm():
    assert show_page._named("shipped:households", "policy")[0] == "households"
    assert show_page._named("shipped:households", "prm")[0] == "PRM households"
    assert show_page._named("data/checkpoints/prm/3", "prm")[0] == "PRM 3"
    assert show_page._named("mine=data/checkpoints/prm/3", "prm")[0] == "mine"


def test_a_game_is_found_in_whatever_row_group_it_lies(checkpoints, tmp_path):
    games = [dataclasses.replace(games_of(checkpoints)[0], id=f"g/{number}") for number in range(7)]
    write_table(games_to_table(games), tmp_path / "games.parquet", group=3)
    for game in games:
        assert show_page._of_id(tmp_path / "games.parquet", game.id) == [game]
    assert show_page._of_id(tmp_path / "games.parquet", "g/7") == []


@pytest.mark.integration
def test_a_page_is_made_without_libraries_that_take_long_to_import(checkpoints, tmp_path):
    slow = ("transformers", "pandas", "torch._dynamo")
    code = (
        "import sys; from tasks.commands.cli import main\n"
        f"try: main()\nfinally: print([name for name in {slow} if name in sys.modules])"
    )
    game, policy = games_of(checkpoints)[0].id, checkpoints / "policy"
    arguments = "show", "--game", game, "--games", checkpoints, "--policy", policy, "--prm", checkpoints / "prm"
    command = [sys.executable, "-c", code, *map(str, arguments), "--max-turns", "3", "--out", tmp_path / "page.html"]
    told = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout
    assert told.splitlines()[-1] == "[]" and (tmp_path / "page.html").exists()


def test_a_rollout_of_a_campaign_with_its_labels(checkpoints, monkeypatch, capsys, tmp_path):
    game, data = games_of(checkpoints)[0], tmp_path / "data"
    turns = tuple(Turn("you see a cabinet 1", "look", ("look", "inventory"), True, f"s{t}") for t in range(2))
    table = episodes_to_table([Episode(game.id, 0, 1, turns, True)], iteration=2, method="m", policy="d")
    write_table(table, data / "rollouts" / "2" / "episodes.parquet")
    rows = {"game_id": [game.id] * 2, "episode": [0, 0], "turn": [0, 1], "q": [0.9, 1.0], "visits": [3, 1],
            "variance": [0.1, 0.0], "split": ["train"] * 2}  # fmt: skip
    write_table(pa.table(rows, schema=LABELS), data / "labels" / "2" / "labels.parquet")
    plays = {"game_id": [game.id], "episode": [0], "turn": [1], "action": ["inventory"], "reason": [""],
             "continuation": [0], "reward": [1.0], "length": [4]}  # fmt: skip
    write_table(pa.table(plays, schema=BRANCHES), data / "rollouts" / "2" / "branches.parquet")
    write_table(games_to_table(games_of(checkpoints)), data / "games" / "train.parquet")
    out = tmp_path / "page.html"
    (tmp_path / "params.yaml").touch()
    said(monkeypatch, capsys, "--game", game.id, "--campaign", tmp_path, "--prm", checkpoints / "prm", "--out", out)
    page = out.read_text()
    for words in ("rollout of iteration 2, by policy 1", "label 0.90, 3 visits", "played on", "inventory"):
        assert words in page, words
    other, campaign = games_of(checkpoints)[1].id, ("--campaign", tmp_path, "--prm", checkpoints / "prm")
    line = refused(monkeypatch, capsys, "--game", other, *campaign)
    assert f"{other}: no such game in the rollouts of {tmp_path} (iteration 2); the nearest: {game.id}" in line
    line = refused(monkeypatch, capsys, *campaign, "--iteration", 1)
    assert line == f"show: --iteration 1: no rollouts of it in {data}; there are 2"


def test_a_game_of_a_campaign_is_counted_among_those_that_its_rollouts_played(
    checkpoints, monkeypatch, capsys, tmp_path
):
    first, second, third = names = ("train/a", "train/b", "train/c")
    games = [dataclasses.replace(games_of(checkpoints)[0], id=name) for name in names]
    out = tmp_path / "page.html"
    for iteration, played in {1: [second, third], 2: [first, second]}.items():
        told = [Episode(game, 0, 1, (Turn("a cabinet 1", "look", ("look",), True, "s"),), True) for game in played]
        table = episodes_to_table(told, iteration=iteration, method="m", policy="d")
        write_table(table, tmp_path / "data" / "rollouts" / str(iteration) / "episodes.parquet")
    write_table(games_to_table(games), tmp_path / "data" / "games" / "train.parquet")
    (tmp_path / "params.yaml").touch()
    for asked, game, iteration in (
        ((), second, 2), (("--game", 2), third, 1), (("--game", 3), first, 2),
        (("--game", 1, "--iteration", 1), second, 1),
    ):  # fmt: skip
        said(monkeypatch, capsys, "--campaign", tmp_path, *asked, "--out", out)
        page = out.read_text()
        assert f"<title>{game}</title>" in page and f"rollout of iteration {iteration}," in page
    assert "4: no such game in the rollouts" in refused(monkeypatch, capsys, "--campaign", tmp_path, "--game", 4)


def test_bad_input_is_one_line(checkpoints, monkeypatch, capsys, tmp_path):
    game = games_of(checkpoints)[0].id
    policy = ("--policy", checkpoints / "policy")
    line = refused(monkeypatch, capsys, "--game", game[:-1], "--games", checkpoints, *policy)
    assert f"no such game in {checkpoints}; the nearest: " in line and game in line and "\n" not in line
    (tmp_path / "broken.parquet").write_text("no table")
    line = refused(monkeypatch, capsys, "--game", game, "--games", tmp_path / "broken.parquet", *policy)
    assert line.endswith("broken.parquet: cannot be read as a table of games")
    line = refused(monkeypatch, capsys, "--game", game, "--games", tmp_path / "nowhere", *policy)
    assert "nowhere: no such folder or file" in line
    line = refused(monkeypatch, capsys, "--game", game, "--games", tmp_path, *policy)
    assert "no tables of games in it" in line
    line = refused(monkeypatch, capsys, "--game", game, "--games", checkpoints, "--policy", tmp_path / "none")
    assert "no such checkpoint folder" in line
    line = refused(monkeypatch, capsys, "--game", game, "--games", checkpoints)
    assert "nobody plays" in line
    line = refused(monkeypatch, capsys, "--game", game, "--games", checkpoints, *policy, "--context", 20)
    assert "policy did not act: its context of 20 tokens has no room" in line
    line = refused(monkeypatch, capsys, "--game", game, "--games", checkpoints, *policy, "--device", "tpu")
    assert "argument --device: " in line and "tpu" in line
    line = refused(monkeypatch, capsys, "--game", game, "--games", checkpoints, *policy, "--search", "beam_2x2")
    assert "needs --prm" in line
    line = refused(monkeypatch, capsys, "--game", game, "--games", checkpoints, *policy, "--search", "lookahead_of_4x1")
    assert "world model" in line
    line = refused(monkeypatch, capsys, "--game", game, "--games", checkpoints, *policy, "--search", "foo")
    assert "'foo' is not one of greedy, sample, best_of_N, " in line and "lookahead" not in line
    monkeypatch.chdir(tmp_path)
    line = refused(monkeypatch, capsys, "--game", "none", *policy)
    assert "none: no such game in the 200 games that are generated of alfworld, unseen, seed 1" in line
    line = refused(monkeypatch, capsys, "--policy", "shipped:nosuch", "--campaign", "nosuch")
    assert line == "show: nosuch: no such folder"
    line = refused(monkeypatch, capsys, "--game", game, *policy, "--campaign", tmp_path)
    assert line == f"show: {tmp_path}: no campaign: there is no params.yaml in it"
    (tmp_path / "params.yaml").touch()
    line = refused(monkeypatch, capsys, "--game", game, *policy, "--campaign", tmp_path)
    assert "rollouts: no rollouts yet; run the campaign" in line


HOMES = dataclasses.replace(world_spec("alfworld"), name="homes")


def test_a_game_of_ones_own_world_is_shown_where_the_policy_was_trained(checkpoints, monkeypatch, capsys, tmp_path):
    policy, world = load_checkpoint(checkpoints / "policy"), "tests.data.test_show:HOMES"
    save_checkpoint(policy.model, policy.tokenizer, tmp_path / "policy", world=world)
    game = dataclasses.replace(games_of(checkpoints)[0], world="homes")
    write_table(games_to_table([game]), tmp_path / "unseen.parquet")
    asked = ("--game", game.id, "--games", tmp_path, "--max-turns", 2, "--out", tmp_path / "page.html")
    assert "page.html" in said(monkeypatch, capsys, *asked, "--policy", tmp_path / "policy")
    line = refused(monkeypatch, capsys, *asked, "--policy", checkpoints / "policy")
    assert "'homes' is no world's name here: give --world package.module:SPEC" in line


def test_a_game_is_the_first_or_one_by_its_number_or_its_id(checkpoints, monkeypatch, capsys, tmp_path):
    out, who = tmp_path / "page.html", ("--policy", checkpoints / "policy", "--max-turns", 1)
    monkeypatch.chdir(tmp_path)
    generated = {count: generate_games(count, 1, "unseen") for count in (10, 200)}
    late = next(game for game in generated[200] if game not in generated[10])
    there = games_of(checkpoints)
    for asked, game in (
        ((), generated[10][0]), (("--game", 3), generated[10][2]), (("--game", late.id), late),
        (("--game", 11), generated[200][10]), (("--games", checkpoints), there[0]),
        (("--games", checkpoints, "--game", 2), there[1]),
    ):  # fmt: skip
        said(monkeypatch, capsys, *asked, *who, "--out", out)
        assert f"<title>{game.id}</title>" in out.read_text()
    line = refused(monkeypatch, capsys, "--game", 201, *who)
    assert "201: no such game in the 200 games" in line and line.endswith("; a place from 1 to 200"), line


def test_a_checkpoint_of_another_world_is_refused(checkpoints, monkeypatch, capsys, tmp_path):
    policy = load_checkpoint(checkpoints / "policy")
    save_checkpoint(policy.model, policy.tokenizer, tmp_path / "policy", world="textcraft")
    game = games_of(checkpoints)[0].id
    line = refused(monkeypatch, capsys, "--game", game, "--games", checkpoints, "--policy", tmp_path / "policy")
    assert "trained from scratch in the world textcraft, it cannot play alfworld" in line
