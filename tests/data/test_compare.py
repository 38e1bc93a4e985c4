"""The stage ``compare``: searches held against the policy's own play, and its pictures from files as the stages leave
them."""

from types import SimpleNamespace

import pyarrow as pa
import pytest

from agentprm_core.comparing import best, compared, deciding
from agentprm_core.evaluate import outcomes_table
from agentprm_core.policy.sampler import Cost
from agentprm_core.types import Episode, Game, Turn
from agentprm_core.worlds.alfworld.kinds import TASK_TYPES
from tasks.frame import layout
from tasks.frame.stage import write_json
from tasks.report import campaign

GAMES = [
    Game(f"unseen/{kind}/{n}", "alfworld", "unseen", kind, "put a mug in cabinet.", "(problem)")
    for kind in TASK_TYPES
    for n in range(2)
]
WON = {"greedy": 6, "sample": 4, "best_of_4": 8}
"""Of twelve games, at iteration 0; one more an iteration."""


def outcomes(iteration: int, decoding: str, split: str = "unseen") -> pa.Table:
    turns = (Turn("you see a mug 1", "look", ("look",), True, "key"),)
    spent = {"cost": Cost(generated=3), "world_steps": 1}
    wins = WON[decoding] + iteration
    episodes = [Episode(game.id, 0, 5, turns, n < wins, extra=spent) for n, game in enumerate(GAMES)]
    return outcomes_table(
        episodes, GAMES, iteration=iteration, method="agentprm", split=split, decoding=decoding, constrained=True,
        seed=1, policy="digest", scores={game.id: 0.4 + 0.1 * iteration for game in GAMES},
    )  # fmt: skip


def rows(*decodings: str) -> list[dict]:
    return compared(pa.concat_tables([outcomes(i, decoding) for i in (0, 1) for decoding in decodings]))


def test_searches_are_held_against_the_policys_own_play():
    found = {(row["iteration"], row["decoding"]): row for row in rows(*WON)}
    search = found[1, "best_of_4"]
    assert (search["policy_decoding"], search["over_policy"]["gained"], search["over_policy"]["lost"]) == (
        "greedy",
        2,
        0,
    )
    assert (search["paired"]["gained"], found[0, "best_of_4"]["paired"]) == (1, None)
    assert found[1, "greedy"]["over_policy"] is None is found[1, "sample"]["over_policy"]
    sampled = {row["decoding"]: row for row in rows("sample", "best_of_4")}["best_of_4"]
    assert (sampled["policy_decoding"], sampled["over_policy"]["gained"]) == ("sample", 4)
    assert {row["over_policy"] is None for row in rows("best_of_4")} == {True}


def test_the_champion_is_decided_on_unseen_games_where_there_are_such():
    both = compared(pa.concat_tables([outcomes(i, "greedy", split) for i in (0, 1) for split in ("seen", "unseen")]))
    assert [(row["iteration"], row["split"]) for row in deciding(both, "greedy")] == [(0, "unseen"), (1, "unseen")]
    seen = [row for row in both if row["split"] == "seen"]
    assert deciding(seen, "greedy") == seen and deciding(both, "sample") == []


def test_the_earliest_of_equals_is_the_champion():
    def row(iteration, success):
        return {"iteration": iteration, "success": success}

    assert best([row(0, 0.4), row(1, 0.6), row(2, 0.6), row(3, 0.5)]) == 1
    assert best([row(2, 0.6), row(1, 0.6)]) == 1


def written(update: list[dict], monitor: dict | None) -> None:
    """What compare reads beside outcomes."""
    turns = [
        {"turn": t, "episodes": 9 - t, "won": 0.6, "lost": None, "change": (t and 0.1) or None, "auc": 0.5}
        for t in (0, 1)
    ]
    bins = [{"score": 0.25, "q": 0.3, "count": 4}, {"score": 0.75, "q": 0.6, "count": 9}]
    validated = {"validation": {"calibration": bins}, "by_turn": turns, "measured_as": "return"}
    write_json(validated, layout.metrics("prm-1"))
    write_json({"monitor": monitor} if monitor else {}, layout.metrics("policy-1"))
    write_json(update, layout.PLOTS / "policy-1.json")


@pytest.mark.parametrize("decodings", [("greedy", "best_of_4"), ("greedy",)])
@pytest.mark.parametrize("update", [[{"step": 1, "kl": 0.1, "score": 0.5}], [{"step": 1, "kl": 0.1}]])
def test_every_picture_is_drawn_the_same_twice(tmp_path, monkeypatch, decodings, update):
    monkeypatch.chdir(tmp_path)
    written(update, None)
    drawn = []
    for _ in range(2):
        found = rows(*decodings)
        paths = campaign.draw(found, deciding(found, "greedy"), SimpleNamespace(iterations={"1": None}))
        drawn.append({path.name: path.read_bytes() for path in layout.PLOTS.glob("*.png")})
    assert drawn[0] == drawn[1]
    assert drawn[0].keys() == {f"{name}.png" for name in campaign.PICTURES} == {path.name for path in paths}


def test_the_hacking_curve_is_the_monitors_where_it_looked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trained, looked = ([{"step": 1, "kl": kl, "score": 0.5}] for kl in (0.1, 0.2))
    written([{"step": 0, "kl": 0.0}, *trained], None)
    assert campaign._followed("1") == trained
    written(trained, {"looks": looked})
    assert campaign._followed("1") == looked
