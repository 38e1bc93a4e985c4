"""The command ``plan``: a table for what fits, one line for what does not, and what is suggested does fit."""

import json
import re
import sys
from types import SimpleNamespace

import pytest
import yaml

from agentprm_core.planning.shapes import SHAPES
from tasks.commands import plan, plan_traffic
from tasks.commands.plan_stages import PLAYING, TRAINING, Planned, plan_stages
from tasks.frame.params import PARAMS, validate
from tasks.frame.profile import asked_for, overridden
from tests.data.project import ROOT


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.chdir(ROOT)


def run(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["plan", *words])
    code = 0
    try:
        plan.main("agentprm plan")
    except SystemExit as stopped:
        code = stopped.code
    return code, capsys.readouterr()


def planned(monkeypatch, capsys, *words):
    code, said = run(monkeypatch, capsys, *words, "--json")
    return code, json.loads(said.out.splitlines()[-1]), said


def test_paper_as_settings_fit_one_gpu(monkeypatch, capsys):
    code, found, said = planned(monkeypatch, capsys, "--profile", "llama3b", "--gpus", "1", "--tflops", "750")
    assert (code, found["fits"]) == (0, True)
    assert [row["stage"] for row in found["stages"]] == ["sft", "rollout", "prm", "collect", "policy", "evaluate"]
    assert all(0 < row["total"] < found["memory_gib"] for row in found["stages"])
    total = sum(row["hours"] * row["times"] for row in found["stages"])
    assert found["hours"] == pytest.approx(total, abs=0.02)
    assert "meta-llama/Llama-3.2-3B-Instruct on cuda" in said.out


def test_the_page_of_llama3b_has_what_the_plan_says(monkeypatch, capsys):
    """Every row and the hours in all; the page's figures are rounded."""
    _, found, _ = planned(monkeypatch, capsys, "--profile", "llama3b", "--gpus", "1", "--tflops", "750")
    page = (ROOT / "docs/llama3b.md").read_text()
    told = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if "GiB |" in line]
    assert [line[0].strip("`") for line in told] == [row["stage"] for row in found["stages"]]
    names = ("times", "weights", "states", "activations", "cache", "total", "tokens", "pflop", "hours")
    for (_, *cells), row in zip(told, found["stages"]):
        for name, cell in zip(names, cells, strict=True):
            number = cell.partition(" ")[0].replace(",", "") or "0"
            unit = 1e6 if name == "tokens" else 1
            half = 0.055 if "." in number else 0.5  # of the last digit; the plan's own has two decimals
            assert float(number) == pytest.approx(row[name] / unit, abs=half), (row["stage"], name)
    assert f"In all the campaign takes {found['hours']:.0f} hours on a GPU with 750 TFLOP/s" in page


def test_a_gpu_that_is_not_here_is_told_with_what_to_give(monkeypatch, capsys):
    monkeypatch.setattr(plan_traffic.torch.cuda, "is_available", lambda: False)
    code, found, said = planned(monkeypatch, capsys, "--profile", "llama3b")
    assert (code, found["memory_assumed"], found["memory_gib"], found["hours"]) == (0, True, 80, None)
    *_, rate, memory, _ = said.out.splitlines()
    assert rate.endswith("give --tflops, such as 750 for an H100 in bfloat16 (docs/performance.md, One GPU)")
    assert memory == "no GPU here: memory was held against 80 GiB of one GPU, --memory gives another"
    code, found, said = planned(monkeypatch, capsys, "--profile", "llama3b", "--memory", "80", "--tflops", "750")
    assert (code, found["memory_assumed"]) == (0, False) and "no GPU here" not in said.out


def test_the_share_of_a_gpu_is_what_the_page_of_performance_measured(monkeypatch, capsys):
    """TFLOP/s of training 923 million parameters, of those of large products, both on the H100."""
    page = (ROOT / "docs/performance.md").read_text()
    (trained,) = re.findall(r"\| H100 \| 923 million .* \| (\d+) and (\d+) \|", page)
    (products,) = re.findall(r"Large products in bfloat16 reach (\d+) to (\d+) TFLOP/s", page)
    shares = [int(one) / int(other) for one in trained for other in products]
    assert min(shares) < TRAINING["cuda"] < max(shares)
    told = re.search(r"\| GPU \| ([\d.]+) \| ([\d.]+) \|", (ROOT / "docs/llama3b.md").read_text())
    assert told and [float(share) for share in told.groups()] == [TRAINING["cuda"], PLAYING["cuda"]]


def test_hours_fall_with_the_rate(monkeypatch, capsys):
    hours = [
        planned(monkeypatch, capsys, "--profile", "llama3b", "--tflops", rate)[1]["hours"] for rate in ("100", "400")
    ]
    assert hours[0] == pytest.approx(4 * hours[1], rel=0.02)


def test_what_does_not_fit_is_one_line_with_a_change_that_fits(monkeypatch, capsys):
    words = ["--profile", "llama3b", "compute.pass_tokens=65536", "model.gradient_checkpointing=false"]
    code, found, _ = planned(monkeypatch, capsys, *words, "--memory", "80", "--tflops", "600")
    assert not found["fits"] and code.startswith("plan: ") and "and one GPU has 80 GiB: set " in code
    assert "\n" not in code
    changes = ["model.gradient_checkpointing=true"]
    for key in ("pass_tokens", "cache_mb"):
        if f"compute.{key} to " in code:
            changes.append(f"compute.{key}={code.split(f'compute.{key} to ')[1].split()[0]}")
    _, again, _ = planned(monkeypatch, capsys, *words, *changes, "--memory", "80", "--tflops", "600")
    refused = code.split()[1]
    assert next(row for row in again["stages"] if row["stage"] == refused)["total"] <= 80


def test_a_model_that_no_change_makes_fit(monkeypatch, capsys):
    words = ["--profile", "llama3b", "model.source=meta-llama/Llama-3.1-8B-Instruct", "--memory", "16", "--tflops", "9"]
    code, _ = run(monkeypatch, capsys, *words)
    assert "choose a smaller model.source" in code
    code, _ = run(monkeypatch, capsys, "--profile", "smoke", "--memory", "0.1", "--tflops", "9")
    assert code.endswith(
        "makes it fit; lower model.context, lower model.width or model.layers, or use a larger machine"
    )


def test_a_cache_that_is_small_already_is_left_where_a_pass_is_too_large(monkeypatch, capsys):
    words = ["--profile", "llama3b", "compute.cache_mb=4096", "--memory", "36", "--tflops", "9"]
    code, _ = run(monkeypatch, capsys, *words)
    assert code.startswith("plan: policy needs ") and code.endswith(": set compute.pass_tokens to 8192")
    assert planned(monkeypatch, capsys, *words, "compute.pass_tokens=8192")[1]["fits"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--memory", "8"], "its weights alone are 18.0 GiB; choose a smaller model.source, or use a larger machine"),
        (
            ["--memory", "8", "compute.precision=float32"],
            "choose a smaller model.source, set compute.precision to bfloat16, or use a larger machine",
        ),
        (
            ["--memory", "24", "model.lora=null"],
            "choose a smaller model.source, set model.lora, set compute.parallel with fsdp2 on several GPUs, or use a "
            "larger machine",
        ),
        (["--memory", "20"], "no smaller cache makes it fit; lower model.context, choose a smaller model.source, or"),
    ],
)
def test_no_change_is_named_that_is_made_already_or_that_does_not_help(words, said, monkeypatch, capsys):
    code, _ = run(monkeypatch, capsys, "--profile", "llama3b", *words, "--tflops", "9")
    assert said in code


def test_the_default_campaign_fits_this_machine(monkeypatch, capsys):
    code, found, _ = planned(monkeypatch, capsys, "--tflops", "0.2")
    assert (code, found["device"]) == (0, "cpu")


def test_the_table_has_the_columns_of_the_page_and_small_sizes_in_mib(monkeypatch, capsys):
    _, found, said = planned(monkeypatch, capsys, "--tflops", "0.2")
    head, sft, *_ = said.out.splitlines()
    page = (ROOT / "docs/llama3b.md").read_text()
    (columns,) = re.findall(r"\| stage \| times \| (.*) \| total \|", page)
    assert head.split()[2:7] == [*columns.split(" | "), "total"]
    weights, states = (1024 * found["stages"][0][name] for name in ("weights", "states"))
    assert sft.split()[2:6] == [f"{weights:.1f}", "MiB", f"{states:.1f}", "MiB"] and 3 < weights < 4
    assert "0.00 GiB" not in said.out


@pytest.mark.parametrize(
    ("gib", "told"), [(0, ""), (0.00096, "1.0 MiB"), (0.5, "512 MiB"), (1.0, "1.00 GiB"), (12.154, "12.15 GiB")]
)
def test_sizes(gib, told):
    assert plan.size(gib) == told


def stage(name: str, *words: str) -> Planned:
    raw = yaml.safe_load((ROOT / PARAMS).read_text())
    for overrides in asked_for(["compute.threads=1", *words]):
        overridden(raw, overrides)
    traffic = plan_traffic.Traffic(SHAPES["Qwen/Qwen2.5-0.5B-Instruct"], turns=10, turn_tokens=8, reply_tokens=2)
    return next(row for row in plan_stages(validate(raw, "test"), traffic) if row.name == name)


def test_a_search_reads_each_nodes_history_and_the_replies_that_differ():
    """80 tokens an episode, a quarter of them replies; policy and PRM both read. Two of several samples differ where
    only admissible commands are drawn, all of them where anything is."""
    games = ("games.seen=3", "games.unseen=2")
    for way, free, times in [
        ("greedy", False, 1),
        ("best_of_16", False, 2 * (1 + 1 / 4)),
        ("best_of_16", True, 2 * (1 + 15 / 4)),
        ("beam_4x4", False, 4 * 2 * (1 + 1 / 4)),
        ("best_trajectory_of_8", False, 8 * 2),
    ]:
        more = ["model.constrained=false"] if free else []
        assert stage("evaluate", *games, f"evaluate.decoding=[{way}]", *more).tokens == 5 * 80 * times, (way, free)


def test_plays_from_branched_states_are_three_quarters_of_an_episode():
    """Four actions at a state are played on from as often as asked for, a random command once."""
    few = ("rollout.games=10", "rollout.branch.train_states=2", "rollout.branch.validation_states=1")
    more = ("rollout.branch.random_states=5", "rollout.branch.continuations=3")
    assert stage("rollout", *few, *more, "games.unseen=0").tokens == 80 * (10 + 0.75 * (4 * 3 * 3 + 5))
    guarded = stage("rollout", *few, *more, "games.unseen=7").tokens
    assert guarded == 80 * (10 + 7 + 0.75 * (4 * 4 * 3 + 5)), "guard games are played once and branched from too"


def test_an_update_by_another_optimizer_than_the_models_takes_its_memory():
    """AdamW keeps two numbers a weight; Muon keeps one of those in matrices."""
    kept = [stage("policy", "loop", f"method.optimizer={name}").memory.states for name in ("adamw", "muon", "null")]
    assert (kept[0] - kept[1], kept[1]) == (4 * SHAPES["Qwen/Qwen2.5-0.5B-Instruct"].matrices, kept[2])


class Slow:
    """A matrix whose products take 0.1 processor seconds each of two threads."""

    spent = 0.0

    def __matmul__(self, other):
        Slow.spent += 2 * 0.1
        return {(0, 0): 1.0}


def test_a_rate_is_measured_soon_where_products_are_slow(monkeypatch):
    sides, compute = [], SimpleNamespace(device="cpu", threads=2, precision="bfloat16")
    monkeypatch.setattr(plan_traffic.torch, "randn", lambda side, *_, **__: sides.append(side) or Slow())
    monkeypatch.setattr(plan_traffic.time, "process_time", lambda: Slow.spent)
    rate = plan_traffic.measured_tflops(compute)
    assert sides == [256]
    assert rate == pytest.approx(2 * 256**3 / 0.1 / 1e12)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--profile", "llama3b", "model.source=./nowhere"], "plan: model.source: ./nowhere is no folder here; name"),
        (
            ["--profile", "chat_smoke", "model.source=./nowhere"],
            "plan: model.source: ./nowhere is no folder here; name the folder of a model, or make one that knows baby",
        ),
        (
            ["--profile", "llama3b", "model.context=200000"],
            "plan: model.context: 200000 is more than the model's 131072",
        ),
        (
            ["--profile", "llama3b", "compute.parallel={processes: 4, sharding: none}"],
            "plan: compute.parallel.processes is 4, and --gpus is 1: a process needs a GPU",
        ),
    ],
)
def test_bad_input_is_one_line(monkeypatch, capsys, words, said):
    code, _ = run(monkeypatch, capsys, *words, "--tflops", "1")
    assert code.startswith(said) and "\n" not in code


@pytest.mark.parametrize(
    "words",
    [
        ["--profile", "llama3b", "rollout.games=60"],
        ["--profile", "llama3b", "--gpus", "1", "rollout.games=60"],
        ["--profile", "llama3b rollout.games=60"],
        ["rollout.games=60", "--profile", "llama3b"],
        ["llama3b", "rollout.games=60"],
    ],
)
def test_profiles_and_keys_stand_anywhere_and_may_be_quoted_together(monkeypatch, capsys, words):
    code, found, _ = planned(monkeypatch, capsys, *words, "--tflops", "600")
    assert (code, found["source"]) == (0, "meta-llama/Llama-3.2-3B-Instruct")
    assert next(row for row in found["stages"] if row["stage"] == "rollout")["tokens"] < 40e6  # 80 million of 625 games


def test_a_value_in_brackets_is_one_word():
    given = ["a b", "c={d: 1, e: [2, 3]} f", "g=[x, y]"]
    assert plan.split(given) == ["a", "b", "c={d: 1, e: [2, 3]}", "f", "g=[x, y]"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--profile", "llama3b", "model.contxt=3"],
            "plan: llama3b model.contxt=3: model.contxt: .*did you mean context",
        ),
        (["--profile", "chat lama3b"], r"plan: profiles/lama3b\.yaml: no such profile; did you mean llama3b\?"),
    ],
)
def test_wrong_parameters_are_named_in_one_line(monkeypatch, capsys, words, said):
    code, told = run(monkeypatch, capsys, *words)
    assert code == 2 and re.match(said, told.err) and told.err.count("\n") == 1


def test_outside_a_checkout_it_says_so_before_it_loads_anything(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "agentprm_core.planning.shapes", None)  # else its import loads torch
    monkeypatch.setattr(sys, "argv", ["plan", "chat"])
    with pytest.raises(SystemExit, match=r"^plan: no params\.yaml here; run this in a checkout of AgentPRM, or in the"):
        plan.main()


def test_known_models_are_listed(monkeypatch, capsys):
    _, said = run(monkeypatch, capsys, "--models")
    assert "Qwen/Qwen2.5-1.5B-Instruct: 1.54 billion parameters" in said.out
