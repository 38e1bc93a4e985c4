"""What benchmarks count, against the models they time; what they refuse, and how they correct what they tell."""

import sys
from argparse import Namespace

import pytest

from agentprm_core.evaluate import holm, paired_test
from benchmarks import gpu, imitation, path_order, side_by_side, transfer, updates
from benchmarks.training import flops_a_token, model_of


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_every_weight_of_the_layers_is_six_flops_a_token(kv_heads):
    args = Namespace(width=16, layers=2, heads=4, kv_heads=kv_heads, device="cpu")
    weights = sum(p.numel() for name, p in model_of(args).named_parameters() if ".layers." in name and p.dim() == 2)
    assert flops_a_token(args, tokens=0) == 6 * weights


@pytest.mark.parametrize(
    ("benchmark", "words", "said"),
    [
        (updates, "--keep x --steps 0", "argument --steps: '0' is not a whole number that is at least 1"),
        (updates, "--keep x --games -2", "argument --games: '-2' is not a whole number that is at least 1"),
        (updates, "--keep x --arms prm,rft,prm", "argument --arms: 'prm,rft,prm' has 'prm' twice: name each once"),
        (updates, "--keep x --arms luck", "argument --arms: 'luck' is not one of prm, head"),
        (path_order, "--plays 1", "argument --plays: '1' is not a whole number that is at least 2"),
        (path_order, "--iterations 1,1", "argument --iterations: '1,1' has '1' twice: name each once"),
        (path_order, "--split seen,", "argument --split: 'seen,' has an empty name: "),
        (transfer, "--split seen,seen", "argument --split: 'seen,seen' has 'seen' twice: name each once"),
        (imitation, "--games x --policy a=x --policy a=y", "--policy: 'a' is there twice: give each policy a name"),
        (gpu, "--out x --parts rollouts,rollouts", "argument --parts: "),
    ],
)
def test_what_cannot_be_measured_is_one_line(benchmark, words, said, monkeypatch, capsys):
    name = benchmark.__name__.rpartition(".")[2]
    monkeypatch.setattr(sys, "argv", [name, *words.split()])
    with pytest.raises(SystemExit) as stopped:
        benchmark.main()
    told = capsys.readouterr().err
    assert stopped.value.code == 2 and told.startswith(f"{name}: {said}") and told.count("\n") == 1


def test_a_campaign_that_is_named_twice_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["side_by_side", "a=x", "b=y", "a=x"])
    with pytest.raises(SystemExit):
        side_by_side.main()
    assert "'a=x' is there twice: each campaign is given once" in capsys.readouterr().err


def test_differences_of_updates_are_corrected_for_those_of_their_kind():
    """Nine games are lost that the PRM's arm wins, then six, then none: over all of them, and on each split."""

    def won(lost: int) -> dict[str, bool]:
        return {f"{split}/{n}": n >= lost for split in updates.SPLITS for n in range(20)}

    played = {updates.PRM: won(0), "random": won(9), "constant": won(6), "rft": won(0)}
    splits = dict.fromkeys(updates.SPLITS)
    rows = [{"arm": arm, "search_v_prm": None, "by_split": {s: {} for s in splits}} for arm in played]
    searched = {arm: {name: n > 3 for n, name in enumerate(of)} for arm, of in played.items() if arm != "rft"}
    updates.compare(rows, played, searched | {"random": played["random"]})
    others = rows[1:]
    for tests in (
        [row["v_prm"] for row in others],
        [row["by_split"][split]["v_prm"] for row in others for split in splits],
        [row["search_v_prm"] for row in others if row["search_v_prm"]],
    ):
        assert len(tests) > 1
        assert [test["p_holm"] for test in tests] == holm([test["p_value"] for test in tests])
    alone = paired_test(played[updates.PRM], played["random"])
    assert others[0]["v_prm"]["p_value"] == alone.p_value < others[0]["v_prm"]["p_holm"]
