"""An implicit PRM: its values by a slow way, its labels, and that a search gains from what it has learnt."""

import copy
import sys
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import PreTrainedModel

from agentprm_core.errors import DataError
from agentprm_core.policy.models import Checkpoint
from agentprm_core.prm.implicit import (
    ImplicitColumns,
    implicit_logits,
    implicit_objective,
    implicit_rows,
    train_implicit_prm,
)
from agentprm_core.prm.model import new_prm
from agentprm_core.prm.rows import Labelled, Tried, action_tokens
from agentprm_core.prm.score import read_rows
from agentprm_core.training.attention import packed_attention
from agentprm_core.training.packing import pack
from agentprm_core.training.settings import TrainSettings
from agentprm_core.types import Episode, Turn
from benchmarks import implicit_prm, placebo
from tests.model import toy
from tests.model.test_placebo import episodes_with_labels, mugs, player

KAPPA, OFFSET = 0.5, 0.7
ALL = ("look", "take mug 1", "go to shelf 1")


@pytest.fixture(scope="module")
def policy() -> Checkpoint:
    return toy.policy(sharpness=1.0)


@pytest.fixture
def items() -> list[Labelled]:
    def episode(number: int, actions: tuple[str, ...], won: bool) -> Episode:
        turns = tuple(Turn("you see a mug 1.", action, ALL, True, "") for action in actions)
        return Episode(f"g{number}", number, 0, turns, won)

    other = [Tried(1, "look", 0.1, returns=(0.0, 0.2)), Tried(1, "go to shelf 1", 0.9, returns=(1.0, 0.8))]
    return [
        Labelled(episode(0, ("look", "take mug 1", "look"), True), np.array([0.2, 0.6, 1.0], np.float32), other),
        Labelled(episode(1, ("go to shelf 1",), False), np.array([0.0], np.float32)),
        Labelled(episode(2, ("look", "look"), False), np.array([np.nan, 0.3], np.float32), [Tried(0, "look", 0.5)]),
    ]


def moved(model):
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.add_(0.05 * torch.randn_like(weight))
    return model


def spoken(model, policy: Checkpoint, before: list[int], action: str) -> float:
    """Log-likelihood of an action after these tokens, by one pass over both."""
    tokens = [*before, *action_tokens(policy.renderer, action)]
    with torch.no_grad():
        hidden = model.base_model(torch.tensor([tokens])).last_hidden_state[0]
        log_prob = (hidden @ model.get_input_embeddings().weight.T).log_softmax(-1)
    return sum(float(log_prob[at - 1, tokens[at]]) for at in range(len(before), len(tokens)))


def slowly(trained, start, policy: Checkpoint, item: Labelled) -> list[float]:
    """Logits of the episode's labelled actions, then of the tried ones."""
    rendered = policy.renderer.episode(item.episode.turns)

    def reward(turn: int, action: str) -> float:
        before = list(rendered.input_ids[: rendered.action_starts[turn]])
        return KAPPA * (spoken(trained, policy, before, action) - spoken(start, policy, before, action))

    known = [not np.isnan(q) for q in item.q]
    own = [reward(t, turn.action) if known[t] else 0.0 for t, turn in enumerate(item.episode.turns)]
    found = [OFFSET + sum(own[: t + 1]) for t in range(len(own)) if known[t]]
    return found + [OFFSET + sum(own[: one.turn]) + reward(one.turn, one.action) for one in item.tried]


def test_values_are_sums_of_log_ratios(policy, items):
    start = new_prm(policy.model, KAPPA)
    rows = implicit_rows(items, policy.renderer, start, 64)
    told = partial(implicit_logits, offset=OFFSET)
    for logit_M in read_rows(start, rows, 64, told, head=False):
        np.testing.assert_allclose(logit_M, OFFSET, atol=1e-5)
    trained = moved(new_prm(policy.model, KAPPA))
    for batch_tokens in (64, 4096):  # one row a batch, and all in one
        for logit_M, item in zip(read_rows(trained, rows, batch_tokens, told, head=False), items, strict=True):
            np.testing.assert_allclose(logit_M, slowly(trained, start, policy, item), rtol=1e-3, atol=1e-4)


def test_turns_learn_from_every_label_and_outcome_from_the_last_alone(policy, items):
    start = new_prm(policy.model, KAPPA)
    by_turn = implicit_rows(items, policy.renderer, start, 4096)
    assert [row.columns.loss_weight.sum() for row in by_turn] == [5, 1, 2]
    by_outcome = implicit_rows(items, policy.renderer, start, 4096, "outcome")
    for row, item, read in zip(by_outcome, items, (3, 1, 1), strict=True):
        at = np.flatnonzero(row.columns.loss_weight)
        assert at.tolist() == [row.columns.is_scored.nonzero()[0][-1]] and row.columns.is_scored.sum() == read
        assert row.columns.q[at[0]] == item.episode.won and not row.branches
    trained = moved(new_prm(policy.model, KAPPA))
    for rows, labels in ((by_turn, None), (by_outcome, "outcome")):
        with packed_attention(trained), torch.no_grad():
            losses = implicit_objective(trained, pack(rows), OFFSET)
        expected = 0.0
        for item in items:
            logits = slowly(trained, start, policy, replace(item, tried=()) if labels else item)
            targets = [*item.q[~np.isnan(item.q)], *(one.q for one in item.tried)]
            if labels:
                logits, targets = logits[-1:], [float(item.episode.won)]
            for logit, q in zip(logits, targets, strict=True):
                p = 1 / (1 + np.exp(-logit))
                expected -= q * np.log(p) + (1 - q) * np.log(1 - p)
        assert losses.total.item() == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("labels", ["turns", "outcome"])
def test_a_search_gains_from_what_it_has_learnt(toy_engine, policy, tmp_path, labels):
    data = episodes_with_labels(policy)
    if labels == "outcome":  # half of the episodes take the mug: those are the won ones
        data = [replace(item, tried=()) for item in data]
    model = new_prm(policy.model, KAPPA)
    how = TrainSettings(epochs=20, learning_rate=5e-3, batch_tokens=2048, save_every=0, seed=1)
    aside = {item.episode.game_id for item in data[-9:]}
    held_out = [replace(item, tried=()) for item in data if item.episode.game_id in aside]
    learnt = [item for item in data if item.episode.game_id not in aside]
    figures = train_implicit_prm(learnt, policy.renderer, model, how, tmp_path, labels=labels, held_out=held_out)
    assert figures["curve"][-1]["prm_loss"] < figures["curve"][0]["prm_loss"]
    assert figures["validation"]["actions"] == sum(item.episode.length for item in held_out)
    assert not dict(model.named_parameters())["score.weight"].any()
    prms = {"prm": Checkpoint(model.eval(), policy.tokenizer, policy.renderer, "implicit")}
    cells = placebo.plan(["beam_1x16"], ["prm", "implicit", "untrained_likelihood"], [0.0], player())
    rows = placebo.table(list(placebo.measure(cells, policy, prms, {"train": mugs(5000, 60)}, 5, tmp_path / "kept")))
    success = {row["scorer"]: row["success"] for row in rows}
    assert success["implicit"] > success["untrained_likelihood"] + 0.1, success


def test_labels_that_are_all_alike_teach_nothing(policy, items, tmp_path):
    how = TrainSettings(epochs=1, learning_rate=1e-3, batch_tokens=512, save_every=0, seed=1)
    lost = [replace(item, episode=replace(item.episode, won=False)) for item in items]
    model = new_prm(policy.model, KAPPA)
    with pytest.raises(DataError, match="the mean label is 0: nothing to tell apart"):
        train_implicit_prm(lost, policy.renderer, model, how, tmp_path, labels="outcome")
    with pytest.raises(ValueError, match="labels: 'steps' is not one of turns, outcome"):
        train_implicit_prm(lost, policy.renderer, model, how, tmp_path, labels="steps")
    with pytest.raises(ValueError, match="an implicit PRM needs a κ above 0"):
        train_implicit_prm(lost, policy.renderer, new_prm(policy.model), how, tmp_path)
    with pytest.raises(DataError, match="1 games are in both training and validation: g1"):
        train_implicit_prm(items, policy.renderer, model, how, tmp_path, held_out=items[1:2])
    unlabelled = [replace(items[1], q=np.array([np.nan], np.float32))]
    for nothing in ([], unlabelled):
        with pytest.raises(DataError, match="no labelled action to train on"):
            train_implicit_prm(nothing, policy.renderer, model, how, tmp_path)


def test_held_out_actions_are_judged_by_what_became_likelier(policy, items, tmp_path):
    """Labels of one game say: go to the shelf, do not look. Another game's branches have returns that say the same."""
    how = TrainSettings(epochs=200, learning_rate=5e-3, batch_tokens=2048, save_every=0, seed=1)
    held_out = [replace(items[0], episode=replace(items[0].episode, game_id="other"))]
    model = new_prm(policy.model, KAPPA)
    figures = train_implicit_prm(items, policy.renderer, model, how, tmp_path, held_out=held_out)
    assert figures["ranking"]["pairs"] == 1 and figures["ranking"]["accuracy"] == 1.0
    turned = [replace(one, returns=tuple(1 - r for r in one.returns)) for one in held_out[0].tried]
    upside_down = [replace(held_out[0], tried=turned)]
    again = train_implicit_prm(
        items, policy.renderer, new_prm(policy.model, KAPPA), how, tmp_path, held_out=upside_down
    )
    assert again["ranking"]["accuracy"] == 0.0


def test_an_adapter_learns_and_the_head_does_not(policy, items, tmp_path):
    adapter = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    model = new_prm(cast(PreTrainedModel, get_peft_model(copy.deepcopy(policy.model), adapter)), KAPPA)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    how = TrainSettings(epochs=3, learning_rate=1e-2, batch_tokens=2048, save_every=0, seed=1)
    train_implicit_prm(items, policy.renderer, model, how, tmp_path)
    moved_ = {name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])}
    assert moved_ and all(".lora_" in name for name in moved_)


def test_columns_extend_a_prms(policy, items):
    row = implicit_rows(items, policy.renderer, new_prm(policy.model, KAPPA), 4096)[0]
    assert isinstance(row.columns, ImplicitColumns) and row.columns.own.sum() == 3


def test_labels_that_are_none_are_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["implicit_prm", "--out", str(tmp_path / "out"), "--labels", "steps"])
    with pytest.raises(SystemExit):
        implicit_prm.main()
    said = capsys.readouterr().err
    assert said.startswith("implicit_prm: ") and "'steps'" in said and said.count("\n") == 1


@pytest.mark.integration
def test_two_processes_train_as_one_does(policy, items, tmp_path):
    trained = {}
    how = TrainSettings(steps=4, learning_rate=1e-3, batch_tokens=64, save_every=0, seed=1, accumulation=2)
    for name, processes in (("one", 1), ("two", 2)):
        model = new_prm(policy.model, KAPPA)
        train_implicit_prm(items, policy.renderer, model, replace(how, processes=processes), tmp_path / name)
        trained[name] = dict(model.named_parameters())
    assert not trained["two"]["score.weight"].any()
    for name, weight in trained["one"].items():
        torch.testing.assert_close(trained["two"][name], weight, rtol=1e-3, atol=1e-4)
