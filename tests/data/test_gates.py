"""Gates: data in order passes; each defect stops the stage with the expectation and the rows named."""

import json

import numpy as np
import pyarrow as pa
import pytest

from agentprm_core.datasets import episodes_to_table, games_to_table
from agentprm_core.suites import (
    advantages_suite,
    chosen_suite,
    games_suite,
    inverse_suite,
    labels_suite,
    pairs_suite,
    rollouts_suite,
)
from agentprm_core.types import ADVANTAGES, LABELS, PAIRS, Episode, Game, Turn
from agentprm_core.worlds.alfworld.spec import ALFWORLD
from tasks.frame.gates import GATES, GateError, run_gate


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


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


def test_what_is_in_order_passes_and_leaves_results_and_docs():
    results = check_rollouts(rollouts())
    assert all(result.success for result in results)
    written = json.loads((GATES / "rollout@1.json").read_text())
    assert len(written) == len(results) == 10
    assert written[0]["why"] == "one row a turn"
    assert (GATES / "rollout@1" / "index.html").exists()
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


def test_a_failed_gate_says_that_nothing_was_written_and_where_to_look():
    with pytest.raises(
        GateError, match=r"no out was written \(1 of 10 expectations; Data Docs: .scratch/gates/rollout@1/index.html\)"
    ):
        check_rollouts(with_column(rollouts(), "policy", 4, "zzz"))
    assert not json.loads((GATES / "rollout@1.json").read_text())[4]["success"]


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
