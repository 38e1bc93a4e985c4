"""Several PRMs as one: the average of their weights, and searches under the mean and the lowest of their scores."""

import copy
import sys
from dataclasses import replace

import pytest
import torch
from peft import LoraConfig, get_peft_model

from agentprm_core.datasets import games_to_table, write_table
from agentprm_core.errors import DataError
from agentprm_core.policy.models import Checkpoint, save_checkpoint
from agentprm_core.policy.sampler import Decision
from agentprm_core.prm.ensemble import averaged, ensemble
from agentprm_core.prm.model import new_prm
from agentprm_core.search.decoding_config import decoding
from agentprm_core.search.playing import PlaySettings, Search, play_games
from agentprm_core.search.scorers import Materials, scorer_of
from benchmarks import members, placebo
from benchmarks.members import train_members
from tests.model import toy

POLICY = toy.policy()
COMMANDS = ("go to cabinet 1", "go to cabinet 2", "inventory", "look")
GAMES = [toy.game(n) for n in range(6)]


def prm(seed: int, likelihood: float = 0.7, policy: Checkpoint = POLICY) -> Checkpoint:
    """One with a head of its own, and a trunk a little beside the policy's."""
    model = new_prm(policy.model, likelihood)
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.05)
        model.score.weight.normal_(std=0.5)
    return Checkpoint(model.eval(), policy.tokenizer, policy.renderer, f"prm {seed}")


def scores(of: Checkpoint) -> list[list[float]]:
    """Of COMMANDS in three conversations: one told to look, its fork told another thing, and a fresh one."""
    scorer = scorer_of(
        "prm",
        Materials(
            POLICY, of, seats=8, context=512, max_action_tokens=8, starts=(), second=lambda: None, plays=1, gamma=1.0,
            world="toy", max_turns=6,
        ),
    )  # fmt: skip
    first, other = scorer.open(1), scorer.open(2)
    for seat in (first, other):
        assert scorer.see(seat, "You see a cabinet 1.\n\nYour task is to: take mug 1.", COMMANDS)
    fork = scorer.fork(first)
    for seat, action in ((first, "look"), (fork, "inventory")):
        scorer.tell(seat, action)
        assert scorer.see(seat, f"You {action}.", COMMANDS)
    candidates = [Decision(command, "", 0.0) for command in COMMANDS]
    found = scorer.score([(seat, candidates) for seat in (fork, other, first)])
    assert all(scorer.close(seat) > 0 for seat in (first, fork, other))
    return found


def test_an_ensemble_scores_by_the_mean_of_its_members_or_the_lowest():
    several = [prm(seed, likelihood=0.1) for seed in (1, 2, 3)]
    each_MSA = torch.tensor([scores(one) for one in several])
    assert (each_MSA.std(0) > 1e-3).all(), "members that agree would prove nothing"
    torch.testing.assert_close(torch.tensor(scores(ensemble(several))), each_MSA.mean(0))
    torch.testing.assert_close(torch.tensor(scores(ensemble(several, lowest=True))), each_MSA.amin(0))


def test_the_digest_of_an_ensemble_says_what_it_is_of():
    one, other = prm(1), prm(2)
    ways = [ensemble([one, other]), ensemble([one, other], lowest=True), ensemble([one, one])]
    assert len({one.digest, *(way.digest for way in ways)}) == 4


def test_what_is_no_ensemble_is_refused():
    with pytest.raises(DataError, match="an ensemble needs two PRMs or more"):
        ensemble([prm(1)])
    with pytest.raises(DataError, match="need the same likelihood"):
        ensemble([prm(1), prm(2, likelihood=0.3)])
    words = copy.deepcopy(POLICY.tokenizer)
    words.add_tokens(["a word of its own"])
    with pytest.raises(DataError, match="need the same vocabulary"):
        ensemble([prm(1), replace(prm(2), tokenizer=words)])


@pytest.mark.parametrize("part", ["head", "trained_likelihood", "implicit"])
def test_an_ensemble_has_no_parts(part, toy_engine):
    settings = PlaySettings("toy", 6, 512, 8, constrained=True, slots=6, cache_mb=512)
    search = Search(decoding(f"best_of_3_by_{part}"), settings, 2.0)
    with pytest.raises(DataError, match="name one PRM for anything else"):
        play_games(POLICY, ensemble([prm(1), prm(2)]), GAMES, search, 4)


def test_an_ensemble_judges_no_whole_episodes(toy_engine):
    settings = PlaySettings("toy", 6, 512, 8, constrained=True, slots=6, cache_mb=512)
    search = Search(decoding("best_trajectory_of_2"), settings, 2.0)
    with pytest.raises(DataError, match="several PRMs choose together in best_of_N and beam_NxM"):
        play_games(POLICY, ensemble([prm(1), prm(2)]), GAMES, search, 4)


@pytest.mark.parametrize("adapters", [False, True])
def test_an_average_has_the_mean_of_the_weights_and_leaves_the_others_alone(adapters):
    several = [prm(seed).model for seed in (1, 2, 3)]
    if adapters:
        several = [get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"])) for model in several]
    before = [copy.deepcopy(model.state_dict()) for model in several]
    mean = averaged(several)
    assert mean.config.likelihood == 0.7
    for name, weight in mean.state_dict().items():
        by_hand = (before[0][name] + before[1][name] + before[2][name]) / 3
        torch.testing.assert_close(weight, by_hand, atol=1e-6, rtol=1e-5)
    assert [name for name in before[0] if ".lora_" in name] == [name for name in mean.state_dict() if ".lora_" in name]
    for model, weights in zip(several, before, strict=True):
        assert all((model.state_dict()[name] == weight).all() for name, weight in weights.items())


def test_the_average_of_one_model_with_itself_is_that_model():
    one = prm(1)
    twice = replace(one, model=averaged([one.model, one.model]))
    assert scores(twice) == scores(one)


def test_what_cannot_be_averaged_is_refused():
    with pytest.raises(DataError, match="one shape and one likelihood"):
        averaged([prm(1).model, prm(2, likelihood=0.3).model])


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Arguments of ``benchmarks.placebo`` with two PRMs."""
    save_checkpoint(POLICY.model, POLICY.tokenizer, tmp_path / "policy")
    for number in (1, 2):
        save_checkpoint(prm(number).model, POLICY.tokenizer, tmp_path / f"prm-{number}", kind="prm")
    write_table(games_to_table(GAMES), tmp_path / "games.parquet")
    given = {"policy": "policy", "prm": "prm-1", "games": "games.parquet"}
    plain = [word for name, path in given.items() for word in (f"--{name}", str(tmp_path / path))]
    plain += ["--world", "tests.model.toy:TOY", "--split", "train", "--max-turns", "4", "--threads", "1"]

    def ask(*more: str) -> None:
        monkeypatch.setattr(sys, "argv", ["placebo", *plain, *more])
        placebo.main()

    return ask, f"{tmp_path / 'prm-1'},{tmp_path / 'prm-2'}"


def test_the_benchmark_plays_under_several_prms(asked, capsys):
    ask, two = asked
    ask("--prm", two, "--searches", "best_of_3", "--prior", "0")
    lines = [line.split()[:3] for line in capsys.readouterr().out.splitlines() if line.startswith("best_of_3  ")]
    assert [scorer for _, _, scorer in lines] == ["prm", "worst_case", "untrained_likelihood", "constant", "random"]


def test_the_worst_case_of_one_prm_is_refused(asked, capsys):
    with pytest.raises(SystemExit):
        asked[0]("--scorers", "prm,worst_case")
    said = "placebo: --scorers worst_case is of several PRMs, and --prm is one: --prm A,B,C"
    assert capsys.readouterr().err.startswith(said)


def test_a_folder_without_members_is_not_written_into(tmp_path):
    (tmp_path / "notes").touch()
    with pytest.raises(DataError, match=r"--out: .* is there, and has no members: name a folder that is not"):
        train_members(tmp_path, 1, 2, tmp_path, tmp_path)


def test_one_member_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["members", "--out", str(tmp_path / "out"), "--members", "1"])
    with pytest.raises(SystemExit):
        members.main()
    assert "'1' is not a whole number that is at least 2" in capsys.readouterr().err
