"""The stage ``compare``: searches held against the policy's own play, and its pictures from files as the stages leave
them."""

from types import SimpleNamespace

import pyarrow as pa
import pytest

from agentprm_core.comparing import best, choosing, compared, deciding, prm_adds, prm_figures
from agentprm_core.evaluate import outcomes_table
from agentprm_core.policy.sampler import Cost
from agentprm_core.types import Episode, Game, Turn
from agentprm_core.worlds.alfworld.kinds import TASK_TYPES
from tasks.frame import layout
from tasks.frame.clock import TIMINGS, write_timing
from tasks.frame.order import LOOP, ONCE
from tasks.frame.stage import write_json
from tasks.report import campaign
from tasks.report.added import adds_report, adds_text, champion_text, sentences

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


def test_policies_are_reported_on_unseen_games_where_there_are_such():
    both = compared(pa.concat_tables([outcomes(i, "greedy", split) for i in (0, 1) for split in ("seen", "unseen")]))
    assert [(row["iteration"], row["split"]) for row in deciding(both, "greedy")] == [(0, "unseen"), (1, "unseen")]
    seen = [row for row in both if row["split"] == "seen"]
    assert deciding(seen, "greedy") == seen and deciding(both, "sample") == []


def test_the_champion_is_chosen_on_seen_games_and_reported_on_unseen_ones():
    both = pa.concat_tables([outcomes(i, "greedy", split) for i in (0, 1) for split in ("seen", "unseen", "more")])
    chosen, told = choosing(both, "greedy")
    assert [(row["iteration"], row["split"], row["games"]) for row in chosen] == [(0, "seen", 12), (1, "seen", 12)]
    assert [(row["iteration"], row["split"], row["games"]) for row in told] == [(0, "unseen", 12), (1, "unseen", 12)]
    assert champion_text(1, chosen, told) == (
        "champion: iteration 1, chosen by greedy on 12 games (seen); on 12 others (unseen) 58.3% [32.0%, 80.7%]"
    )


@pytest.mark.parametrize("split", ["seen", "unseen"])
def test_of_one_split_half_of_the_games_choose_and_the_others_report(split):
    alone = pa.concat_tables([outcomes(i, "greedy", split) for i in (0, 1)])
    chosen, told = choosing(alone, "greedy")
    assert [row["games"] for row in chosen + told] == [6] * 4
    whole = [row for row in compared(alone) if row["iteration"] == 1]
    for ours, theirs, (all_,) in [(chosen[1], told[1], whole)]:
        assert (ours["success"] + theirs["success"]) / 2 == pytest.approx(all_["success"])
    one = alone.filter([game == GAMES[0].id for game in alone["game_id"].to_pylist()])
    chosen, told = choosing(one, "greedy")
    assert (len(chosen), told) == (2, [])
    assert champion_text(0, chosen, told).endswith("on 1 games (" + split + "); no other game is left to report it on")


CONTROL = "best_of_4_by_untrained_likelihood"


def with_control(won_by_control: int, *splits: str) -> pa.Table:
    """Of each split twelve games: Best-of-4 wins the first 8 and, under the policy's own likelihood, so many."""
    WON[CONTROL] = won_by_control
    try:
        return pa.concat_tables(
            [outcomes(0, way, split) for way in ("greedy", "best_of_4", CONTROL) for split in splits]
        )
    finally:
        del WON[CONTROL]


def test_what_the_prm_adds_is_the_same_search_with_another_scorer():
    rows = prm_adds(with_control(3, "seen", "unseen"))
    assert [(row["split"], row["games"], row["gained"], row["lost"]) for row in rows] == [
        ("seen", 12, 5, 0), ("unseen", 12, 5, 0), ("all", 24, 10, 0),
    ]  # fmt: skip
    assert {(row["iteration"], row["decoding"], row["control"]) for row in rows} == {(0, "best_of_4", CONTROL[13:])}
    p, pooled = 2 / 2**5, 2 / 2**10
    assert [row["p_value"] for row in rows] == pytest.approx([p, p, pooled])
    assert [row["p_holm"] for row in rows] == pytest.approx([2 * p, 2 * p, 3 * pooled])
    figures = prm_figures(with_control(3, "seen", "unseen"))["prm"]
    assert (figures["adds"], figures["adds_games"], figures["adds_p"]) == (
        pytest.approx(10 / 24),
        24,
        pytest.approx(pooled),
    )
    assert figures["unseen"]["adds"] == pytest.approx(5 / 12)
    assert figures["adds_low"] < figures["adds"] < figures["adds_high"]
    assert prm_figures(outcomes(0, "best_of_4")) == {} and prm_adds(outcomes(0, "best_of_4")) == []


PARAMS = SimpleNamespace(policies={"0": SimpleNamespace(prm=1)})


def test_a_prm_that_adds_nothing_is_named():
    text = adds_text(prm_adds(with_control(7, "unseen")), PARAMS)
    assert "0       1    best_of_4  untrained_likelihood  unseen  12     +8.3 (1 won, 0 lost)" in text
    said = "PRM 1 adds nothing that shows to best_of_4 of policy 0 over untrained likelihood: +8.3 points [-7.3, +24.0]"
    assert f"{said} on 12 games, p Holm = 1." in text
    few = adds_text(prm_adds(with_control(3, "unseen")), PARAMS)  # an interval above 0, of 5 games
    assert "adds nothing that shows" in few and "+41.7 points [+13.8, +69.6] on 12 games, p Holm = 0.12." in few
    added = prm_adds(with_control(1, "unseen"))
    said = "PRM 1 adds +58.3 points [+30.4, +86.2] on 12 games, p Holm = 0.031, to best_of_4 of policy 0"
    assert said in adds_text(added, PARAMS)
    report = "\n".join(adds_report(0, added, PARAMS))
    assert report.startswith("## What the PRM adds\n\nPRM 1 adds +58.3 points")
    assert "| 0 | 1 | best_of_4 | untrained_likelihood | unseen | 12 | +58.3 (7 won, 0 lost) |" in report
    costs = adds_text(prm_adds(with_control(12, "seen", "unseen")), PARAMS)
    assert "PRM 1 costs: -33.3 points" in costs
    assert adds_text([], PARAMS).startswith("What the PRM adds was not measured: evaluate.decoding has no search")
    assert adds_report(1, added, PARAMS)[2] == adds_text([], PARAMS)


def test_the_sentence_goes_by_the_p_that_the_table_corrects():
    """6 games gained and none lost of 24: p 0.031, in three rows 0.094."""
    added = prm_adds(with_control(5, "seen", "unseen"))
    (all_,) = [row for row in added if row["split"] == "all"]
    assert all_["p_value"] < 0.05 < all_["p_holm"]
    (said,) = sentences(added, PARAMS)
    assert said.startswith("PRM 1 adds nothing that shows to best_of_4") and said.endswith("p Holm = 0.094.")


def test_what_a_row_took_is_of_all_stages_that_led_to_it(tmp_path, monkeypatch):
    """Iteration 3 goes on from policy 1, and its policy is searched with PRM 2, which is of another branch."""
    monkeypatch.chdir(tmp_path)
    params = SimpleNamespace(
        iterations={str(i): SimpleNamespace(prev=prev) for i, prev in ((1, 0), (2, 1), (3, 1))},
        policies={str(i): SimpleNamespace(prm=prm) for i, prm in ((0, 1), (1, 1), (2, 2), (3, 2))},
    )
    stages = [*ONCE, *(f"{name}@{i}" for i in (1, 2, 3) for name in LOOP), *(f"evaluate@{i}" for i in range(4))]
    power = {name: 2**n for n, name in enumerate(stages)}  # so a sum tells what is in it, and how often
    for name, number in power.items():
        figures = {"episodes_played": number, "tokens_trained": 3 * number}
        write_json(figures, layout.metrics(name.replace("@", "-")))
        write_timing(name, "campaign", {"seconds": 0.5 * number})

    def counted(iteration: int, way: str) -> set[str]:
        spent = campaign.spent({"iteration": iteration, "decoding": way}, params, "campaign")
        number = spent["episodes_played"]
        assert (spent["tokens_trained"], spent["seconds"]) == (3 * number, number / 2)
        return {name for name, of_stage in power.items() if number & of_stage}

    loop = {i: {f"{name}@{i}" for name in LOOP} for i in (1, 2, 3)}
    critic = {i: {f"{name}@{i}" for name in ("rollout", "label", "prm")} for i in (1, 2)}
    own = {0: {*ONCE}, 1: {*ONCE} | loop[1], 2: {*ONCE} | loop[1] | loop[2], 3: {*ONCE} | loop[1] | loop[3]}
    searched = {0: own[0] | critic[1], 1: own[1], 2: own[2], 3: own[3] | critic[2]}
    for i in range(4):
        for way in ("greedy", "sample@0.7", "best_of_4_by_untrained_likelihood", "beam_4x4_by_random"):
            assert counted(i, way) == own[i], (i, way)
        for way in ("best_of_4", "beam_4x4_path", "lookahead_of_2x1", "best_of_4_by_head@0.7"):
            assert counted(i, way) == searched[i], (i, way)
    params.policies["1"].prm = 3
    assert counted(1, "best_of_4") == own[1] | {"rollout@3", "label@3", "prm@3"}
    params.iterations["3"].prev = 2  # and then PRM 3 is not without policy 2
    assert counted(1, "best_of_4") == own[2] | {"rollout@3", "label@3", "prm@3"}
    (TIMINGS / "campaign" / "sft.json").unlink()
    assert campaign.spent({"iteration": 1, "decoding": "greedy"}, params, "campaign")["seconds"] is None


def test_differences_of_one_table_are_corrected_for_their_number():
    found = rows("greedy", "sample", "best_of_4")
    paired = [row["paired"] for row in found if row["paired"]]
    assert len(paired) == 3 and {test["p_value"] for test in paired} == {1.0} == {test["p_holm"] for test in paired}
    over = {row["iteration"]: row["over_policy"] for row in found if row["over_policy"]}
    assert [over[i]["p_value"] for i in (0, 1)] == [0.5, 0.5]
    assert [over[i]["p_holm"] for i in (0, 1)] == [1.0, 1.0]


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
