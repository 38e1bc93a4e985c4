"""Gates: data in order passes; each defect stops the stage with the expectation and the rows named."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from agentprm_core.branches import BRANCHES
from agentprm_core.datasets import episodes_to_table, games_to_table
from agentprm_core.drift import LIMITS, labels_drift, largest_gap, rollouts_drift, total_variation
from agentprm_core.expectations import Check, Expectation, between, known, mean_between, one_of, unique, unique_together
from agentprm_core.suites import (
    advantages_suite,
    chosen_suite,
    games_suite,
    inverse_suite,
    labels_suite,
    pairs_suite,
    rollouts_suite,
)
from agentprm_core.suites_played import branches_suite, demos_suite, outcomes_suite
from agentprm_core.types import ADVANTAGES, LABELS, PAIRS, Episode, Game, Turn
from agentprm_core.worlds.alfworld.spec import ALFWORLD
from tasks.frame import gates
from tasks.frame.gates import GATES, GateError, run_gate
from tests.data.test_compare import GAMES as HELD_OUT
from tests.data.test_compare import outcomes


@pytest.fixture(autouse=True, params=[True, False], ids=["great_expectations", "without"])
def keeper(request, tmp_path, monkeypatch) -> bool:
    """Every test has a folder of its own, and is run with Great Expectations and without it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gates, "keeps_gates", lambda: request.param)
    return request.param


def game(n: int, split: str = "train", **changes) -> Game:
    fields = {
        "id": f"{split}/task/{n}", "world": "alfworld", "split": split, "kind": "pick_and_place_simple",
        "goal": "put a mug in cabinet.", "payload": f"(define {split} {n})",
        "attributes": {"floor_plan": 8, "source": "generated"},
    }  # fmt: skip
    return Game(**(fields | changes))


def tables(**changes):
    made = {split: [game(n, split) for n in range(3)] for split in ("train", "seen")}
    return {split: games_to_table(games) for split, games in (made | changes).items()}


def rollouts(episodes_per_game: int = 2, won: int = 3) -> pa.Table:
    episodes = [
        Episode(f"g{g}", e, 1, tuple(Turn("see", "do", ("do",), True, "k") for _ in range(3)), won=2 * g + e < won)
        for g in range(3)
        for e in range(episodes_per_game)
    ]
    return episodes_to_table(episodes, iteration=1, method="policy", policy="abc")


def with_column(table: pa.Table, name: str, row: int, value: object) -> pa.Table:
    values = table[name].to_pylist()
    values[row] = value
    return table.set_column(
        table.schema.get_field_index(name), table.schema.field(name), pa.array(values, table.schema.field(name).type)
    )


def check_rollouts(table: pa.Table, **changes):
    wanted = {"policy": "abc", "episodes_per_game": 2} | changes
    return run_gate("rollout@1", rollouts_suite(table, **wanted))


def labels(q: np.ndarray) -> pa.Table:
    n = len(q)
    columns = [["g"] * n, [0] * n, list(range(n)), q, [1] * n, [0.0] * n, ["train"] * n]
    return pa.table(dict(zip(LABELS.names, columns)), schema=LABELS)


def test_what_is_in_order_passes_and_leaves_results_and_docs(keeper, capsys):
    results = check_rollouts(rollouts())
    assert all(result.success for result in results)
    written = json.loads((GATES / "rollout@1.json").read_text())
    assert len(written) == len(results) == 10
    assert written[0]["why"] == "one row a turn"
    assert (GATES / "rollout@1" / "index.html").exists() == keeper
    assert ("Great Expectations is not installed" in capsys.readouterr().err) != keeper
    run_gate("games", games_suite(tables(), {"train": 3, "seen": 3}, ALFWORLD))
    run_gate("label@1", labels_suite(labels(np.linspace(0, 1, 5)), 5))


@pytest.mark.parametrize(
    ("column", "row", "value", "message"),
    [
        ("policy", 4, "zzz", r"rollouts of the current policy \[expect_column_values_to_be_in_set\]: 1 of 18 rows"),
        ("policy", 4, "zzz", "rows: policy=zzz, game_id=g0, episode=1, turn=1"),
        ("turn", 4, 0, "one row a turn .* 2 of 18 rows"),
        ("turn", 5, 7, "turns run 0, 1, 2 … without a gap"),
        ("reward", 0, 1.0, "no reward before the last turn"),
        ("done", 0, True, "an episode ends once"),
        ("done", 17, False, "an episode ends at its last turn"),
    ],
)  # fmt: skip
def test_rollouts_with_one_defect(column, row, value, message):
    with pytest.raises(GateError, match=message):
        check_rollouts(with_column(rollouts(), column, row, value))


def test_filled_templates_are_held_to_what_the_world_made_of_them():
    def played(keys: str, listed: tuple[str, ...] = ("back", "search[…]")) -> pa.Table:
        """One search[…] after another, which leads to these states, and another command at the end."""
        turns = [Turn("see", "search[a cup]", listed, True, key) for key in keys]
        turns.append(Turn("see", "back", listed, True, keys[-1]))
        episodes = [Episode("g", e, 1, tuple(turns), won=e == 1) for e in range(2)]
        return episodes_to_table(episodes, iteration=1, method="policy", policy="abc")

    check_rollouts(played("abc"))  # two of three lead to another state
    with pytest.raises(GateError, match="the world takes enough of the commands that fill a template"):
        check_rollouts(played("aab"))
    check_rollouts(played("aab", listed=()))  # any text is an action there, and fills no template


@pytest.mark.parametrize("won", [0, 6])
def test_rollouts_all_won_or_all_lost(won):
    with pytest.raises(
        GateError, match=r"some episodes are won and some are lost .*rollout.temperature or rollout.games.*: [01]"
    ):
        check_rollouts(rollouts(won=won))


def test_rollouts_with_the_wrong_number_of_episodes():
    with pytest.raises(
        GateError, match=r"as many episodes of every game as params.yaml asks for .* 3 of 3 rows; rows: .*game_id=g0"
    ):
        check_rollouts(rollouts(episodes_per_game=1, won=1))


def test_a_failed_gate_says_that_nothing_was_written_and_where_to_look(keeper):
    look = "Data Docs: .scratch/gates/rollout@1/index.html" if keeper else "all of them: .scratch/gates/rollout@1.json"
    with pytest.raises(GateError, match=rf"no out was written \(1 of 10 expectations; {look}\)"):
        check_rollouts(with_column(rollouts(), "policy", 4, "zzz"))
    assert not json.loads((GATES / "rollout@1.json").read_text())[4]["success"]


def test_a_goal_is_two_words_or_more():
    of = {"train": 1}
    run_gate("games", games_suite({"train": games_to_table([game(0, goal="Craft clock.")])}, of, ALFWORLD))
    with pytest.raises(GateError, match=r"a goal of words .* 1 of 1 rows; rows: words=1"):
        run_gate("games", games_suite({"train": games_to_table([game(0, goal="clock")])}, of, ALFWORLD))


def test_games_twice_or_in_two_splits_or_too_few():
    with pytest.raises(GateError, match=r"no game twice, in one split or in two .* 2 of 6 rows"):
        run_gate(
            "games",
            games_suite(
                tables(seen=[game(9, payload="(define train 0)"), game(1, "seen"), game(2, "seen")]),
                {"train": 3, "seen": 3},
                ALFWORLD,
            ),
        )
    with pytest.raises(GateError, match=r"as many games as params.yaml asks for .*split=seen"):
        run_gate("games", games_suite(tables(), {"train": 3, "seen": 4}, ALFWORLD))


def placed(split: str, *plans: int, source: str = "generated") -> list[Game]:
    at = ({"floor_plan": plan, "source": source} for plan in plans)
    return [game(10 * n + plan, split, attributes=of) for n, (plan, of) in enumerate(zip(plans, at))]


def gate_of_games(**splits: list[Game]):
    wanted = {split: len(games) for split, games in splits.items()}
    return run_gate("games", games_suite({s: games_to_table(of) for s, of in splits.items()}, wanted, ALFWORLD))


def test_a_place_of_unseen_that_is_in_train_or_seen():
    new, mixed = placed("unseen", 1, 203), placed("train", 7, 8, source="mixed")
    results = gate_of_games(train=mixed, seen=placed("seen", 7), unseen=new)
    assert any("no floor_plan of unseen in train or seen" in result.why for result in results)
    says = r"games by place: no floor_plan of unseen .*: 1 of 4 rows; rows: .*part={}, place=203"
    with pytest.raises(GateError, match=says.format("seen")):
        gate_of_games(train=placed("train", 7, 8), seen=placed("seen", 7, 203), unseen=new)
    with pytest.raises(GateError, match=says.format("train")):
        gate_of_games(train=placed("train", 7, 203, source="mixed"), seen=placed("seen", 7, 8), unseen=new)


def test_a_place_of_guard_games_that_is_in_train():
    gate_of_games(train=placed("train", 7), unseen=placed("unseen", 1), guard=placed("guard", 1, 203))
    with pytest.raises(GateError, match=r"games by place: no floor_plan of unseen .*part=train, place=203"):
        gate_of_games(train=placed("train", 7, 203), unseen=placed("unseen", 1), guard=placed("guard", 203))


def test_published_games_of_unseen_are_in_places_of_their_own():
    """Their new places are not those that the generator keeps, some of which the published training games have."""
    published = {"train": placed("train", 1, 7), "seen": placed("seen", 1), "unseen": placed("unseen", 10, 219)}
    gate_of_games(**published)
    with pytest.raises(GateError, match="no floor_plan of unseen in train or seen"):
        gate_of_games(**published | {"unseen": placed("unseen", 10, 1)})


def test_worlds_without_new_places_are_not_asked_for_them():
    same = {split: games_to_table(placed(split, 7)) for split in ("train", "unseen")}
    for spec in (replace(ALFWORLD, new_places=frozenset()), replace(ALFWORLD, place=None)):
        run_gate("games", games_suite(same, {"train": 1, "unseen": 1}, spec))


@pytest.mark.parametrize(
    ("q", "turns", "message"),
    [
        ([0.1, 0.5, 1.5], 3, r"q is in \[0, 1\]"),
        ([0.5, 0.5, 0.5], 3, "q is not the same everywhere"),
        ([0.1, 0.5, 0.9], 4, "as many labels as there are turns"),
    ],
)
def test_labels_out_of_order(q, turns, message):
    with pytest.raises(GateError, match=message):
        run_gate("label@1", labels_suite(labels(np.array(q)), turns))


def test_a_game_on_both_sides_of_the_split():
    with pytest.raises(GateError, match="a game is on one side"):
        run_gate("label@1", labels_suite(with_column(labels(np.linspace(0, 1, 4)), "split", 0, "validation"), 4))


def test_pairs_that_are_none():
    row = {
        "game_id": "g",
        "episode": 0,
        "turn": 1,
        "chosen": "a",
        "rejected": "b",
        "chosen_score": 0.8,
        "rejected_score": 0.2,
    }
    good, same, tie = row, row | {"rejected": "a"}, row | {"turn": 2, "rejected_score": 0.8}
    run_gate("policy@1", pairs_suite(pa.Table.from_pylist([good], PAIRS), margin=0.0, most_ties=0.9, ties=0.1))
    with pytest.raises(GateError, match=r"two different actions .*game_id=g, episode=0, turn=1"):
        run_gate("policy@1", pairs_suite(pa.Table.from_pylist([same], PAIRS), margin=0.0, most_ties=0.9, ties=0.1))
    with pytest.raises(GateError, match=r"the chosen action scores higher by the margin .*turn=2"):
        run_gate("policy@1", pairs_suite(pa.Table.from_pylist([good, tie], PAIRS), margin=0.0, most_ties=0.9, ties=0.1))
    with pytest.raises(GateError, match=r"not all are ties .*method.margin.* method.samples or method.temperature"):
        run_gate("policy@1", pairs_suite(pa.Table.from_pylist([good], PAIRS), margin=0.0, most_ties=0.9, ties=0.99))


def advantages(*values: float) -> pa.Table:
    rows = [{"game_id": "g", "episode": 0, "turn": n, "advantage": value} for n, value in enumerate(values)]
    return pa.Table.from_pylist(rows, ADVANTAGES)


def test_advantages_in_order_and_out_of_it():
    assert all(result.success for result in run_gate("collect@1", advantages_suite(advantages(0.0, 1.0, -1.0))))
    twice = with_column(advantages(0.0, 1.0), "turn", 0, 1)
    for table, message in (
        (twice, "one advantage a turn .* 2 of 2 rows"),
        (advantages(1.0, float("inf")), "an advantage is a finite number .*turn=1"),
        (advantages(0.0, 0.0), "some episodes of one game end otherwise than others .*rollout.episodes_per_game"),
    ):
        with pytest.raises(GateError, match=message):
            run_gate("collect@1", advantages_suite(table))


def test_what_is_no_number_does_not_pass():
    with pytest.raises(GateError, match=r"an advantage is a number .*: 1 of 2 rows; rows: .*turn=1"):
        run_gate("collect@1", advantages_suite(advantages(1.0, float("nan"))))
    with pytest.raises(GateError, match="q is a number"):
        run_gate("label@1", labels_suite(labels(np.array([0.1, np.nan, 0.9])), 3))


def test_chosen_episodes_in_order_and_out_of_it():
    """Nothing is asked of their number a game, nor of those that were lost: there are none."""
    table = rollouts(won=6).slice(0, 15)  # a game with one episode
    assert all(result.success for result in run_gate("collect@1", chosen_suite(table, "abc")))
    for column, row, value, message in (
        ("policy", 4, "zzz", "rollouts of the current policy .* rows: policy=zzz, game_id=g0, episode=1, turn=1"),
        ("turn", 5, 7, "turns run 0, 1, 2 … without a gap"),
        ("reward", 0, 1.0, "no reward before the last turn"),
    ):
        with pytest.raises(GateError, match=message):
            run_gate("collect@1", chosen_suite(with_column(table, column, row, value), "abc"))


def test_a_search_may_win_every_game_and_has_to_win_one():
    searched = {"episodes_per_game": 2, "policy": "abc", "searched": True}
    run_gate("collect@1", rollouts_suite(rollouts(won=6), **searched))
    with pytest.raises(GateError, match=r"some episodes are won \(raise method.games, or a wider method.search\)"):
        run_gate("collect@1", rollouts_suite(rollouts(won=0), **searched))


def inverse(**changes) -> pa.Table:
    row = {"dataset": 0, "game_id": "g", "episode": 0, "turn": 0, "split": "train", "weight": 1.0, "expert": True,
           "action": "look", "next_action": "go", "next_reason": "", "terminal": False}  # fmt: skip
    last = {"turn": 1, "next_action": None, "terminal": True}
    rows = [row, row | last, row | {"dataset": 1, "expert": False}, row | last | {"dataset": 1, "expert": False}]
    return pa.Table.from_pylist([rows[0] | changes, *rows[1:]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"turn": 1}, "one row a turn"),
        ({"next_action": None}, "a next action at every turn but an episode's last"),
        ({"weight": 0.0}, "every turn counts"),
        ({"split": "validation"}, "a game is on one side"),
    ],
)
def test_turns_of_experts_and_learners(changes, message):
    run_gate("label@1", inverse_suite(inverse()))
    with pytest.raises(GateError, match=message):
        run_gate("label@1", inverse_suite(inverse(**changes)))


def demos() -> pa.Table:
    turns = tuple(Turn("see", "do", ("do",), True, "k") for _ in range(3))
    won = [Episode(f"g{g}", 0, 1, turns, won=True) for g in range(3)]
    return episodes_to_table(won, iteration=0, method="expert", policy="expert")


@pytest.mark.parametrize(
    ("column", "row", "value", "message"),
    [
        ("policy", 4, "abc", r"the expert played .* 1 of 9 rows"),
        ("turn", 4, 0, "one row a turn"),
        ("turn", 5, 7, "turns run 0, 1, 2 … without a gap"),
        ("reward", 0, 1.0, "no reward before the last turn"),
        ("won", 8, False, "the expert won"),
        ("done", 8, False, "an episode ends at its last turn"),
        ("episode", 3, 1, "a game is demonstrated once"),
    ],
)  # fmt: skip
def test_demonstrations_with_one_defect(column, row, value, message):
    with pytest.raises(GateError, match=message):
        run_gate("demos", demos_suite(with_column(demos(), column, row, value)))


def branches() -> pa.Table:
    rows = [("g0", 0, 1, action, "", n, 1.0, 2) for action in ("go", "look") for n in range(2)]
    return pa.table({field.name: [row[i] for row in rows] for i, field in enumerate(BRANCHES)}, schema=BRANCHES)


@pytest.mark.parametrize(
    ("column", "row", "value", "message"),
    [
        ("turn", 0, 9, r"a play starts at a state of the rollouts .* 1 of 4 rows"),
        ("continuation", 1, 0, "one row a play"),
        ("continuation", 1, 2, "plays of an action run 0, 1, 2"),
        ("reward", 2, 1.5, r"the reward is in \[0, 1\]"),
        ("reward", 2, None, "every play has a reward"),
        ("length", 3, -1, "a play goes on"),
    ],
)  # fmt: skip
def test_branches_with_one_defect(column, row, value, message):
    with pytest.raises(GateError, match=message):
        run_gate("rollout@1", branches_suite(with_column(branches(), column, row, value), rollouts()))


def check_outcomes(table: pa.Table):
    return run_gate("evaluate@1", outcomes_suite(table, {"unseen": 12}, policy="digest"))


@pytest.mark.parametrize(
    ("column", "row", "value", "message"),
    [
        ("policy", 4, "abc", "the policy that is measured played"),
        ("reward", 0, -0.5, r"the reward is in \[0, 1\]"),
        ("game_id", 0, HELD_OUT[1].id, "a game is played once in each way"),
        ("generated", 0, -1, "a count"),
    ],
)  # fmt: skip
def test_outcomes_with_one_defect(column, row, value, message):
    with pytest.raises(GateError, match=message):
        check_outcomes(with_column(outcomes(1, "greedy"), column, row, value))


def test_demonstrations_branches_and_outcomes_in_order_pass():
    run_gate("demos", demos_suite(demos()))
    first = run_gate("rollout@1", rollouts_suite(rollouts(), policy="abc", episodes_per_game=2))
    both = [*first, *run_gate("rollout@1", branches_suite(branches(), rollouts()), before=first)]
    assert len(json.loads((GATES / "rollout@1.json").read_text())) == len(both) > len(first)
    assert branches_suite(branches().slice(0, 0), rollouts()) == []
    found = pa.concat_tables([outcomes(1, "greedy"), outcomes(1, "sample")])
    check_outcomes(found)
    with pytest.raises(GateError, match="every way of playing has played all games of the split"):
        check_outcomes(found.slice(1))


def played(lengths: list[int], won: int, action: str = "go to sink") -> pa.Table:
    turn = Turn("see", action, (action,), True, "k")
    several = [Episode(f"g{n}", 0, 1, (turn,) * length, won=n < won) for n, length in enumerate(lengths)]
    return episodes_to_table(several, iteration=1, method="policy", policy="abc")


@pytest.mark.parametrize(
    ("now", "column"),
    [
        (played([9] * 100, 50), "lengths"),
        (played([5] * 100, 90), "outcomes"),
        (played([5] * 100, 50, "take mug"), "actions"),
    ],
)  # fmt: skip
def test_drift_is_spoken_of_and_fails_nothing(now, column):
    before = played([5] * 100, 50)
    results = run_gate("rollout@2", rollouts_drift(before, now))
    assert [result.column for result in results if not result.success] == [column]
    assert {result.severity for result in results} == {"warning"}


def test_drift_of_labels():
    before, now = labels(np.linspace(0, 0.4, 100)), labels(np.linspace(0.6, 1, 100))
    (result,) = run_gate("label@2", labels_drift(before, now))
    assert (result.success, result.observed) == (False, "1")
    assert labels_drift(before.drop_columns(["q"]), now) == []


def test_drift_by_chance_is_none():
    draws = np.random.default_rng(1)
    for _ in range(20):
        few = [played(draws.integers(3, 30, 12).tolist(), int(draws.integers(3, 9))) for _ in range(2)]
        (check,) = rollouts_drift(*few)
        limits = {e.arguments["column"]: e.arguments["max_value"] for e in check.expectations}
        assert limits["lengths"] > LIMITS["lengths"] and limits["outcomes"] > LIMITS["outcomes"]
        assert all(check.frame[name][0].as_py() <= limit for name, limit in limits.items())


def test_distances_by_hand():
    assert largest_gap(np.array([1, 2, 3, 4]), np.array([3, 4, 5, 6])) == 0.5
    assert total_variation({"go": 3, "take": 1}, {"go": 1, "put": 1}) == 0.5


def test_results_are_the_same_without_great_expectations(monkeypatch):
    """Also where values are missing, and where several rows or kinds of expectation fail at once."""
    columns = {"name": ["a", "b", "b", None, "c", "c", "c"], "n": [0, 1, 1, 2, None, 5, 7]}
    frame = pa.table(columns | {"x": [0.0, None, -1.0, 2.0, 0.5, 1.0, 1.0]})
    mean = mean_between("x", None, 0.1, "a low mean")
    expected = (
        known("name", "named"),
        unique("name", "once"),
        unique_together(("name", "n"), "together"),
        one_of("name", ("a", "b"), "known"),
        between("x", 0.0, 1.0, "in range", strict=True),
        between("n", None, 4, "few"),
        mean_between("x", 0.0, None, "positive", strict=True),
        Expectation(mean.type, mean.arguments, mean.why, "warning"),
    )
    found = []
    for keeps in (True, False):
        monkeypatch.setattr(gates, "keeps_gates", lambda keeps=keeps: keeps)
        with pytest.raises(GateError):
            run_gate("rollout@1", [Check("frame", frame, ("n",), expected)])
        found.append(json.loads((GATES / "rollout@1.json").read_text()))
    told, plainly = (sorted(of, key=lambda one: one["why"]) for of in found)
    assert told == plainly and len(told) == len(expected)
    assert sum(not one["success"] for one in told) >= 6
