"""An implicit PRM: its values by a slow way, its labels, and that a search gains from what it has learnt."""

import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from agentprm_core.errors import DataError
from agentprm_core.policy.models import Checkpoint
from agentprm_core.prm.implicit import (
    ImplicitColumns,
    implicit_logits,
    implicit_objective,
    implicit_rows,
    new_implicit,
    train_implicit_prm,
)
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
    start = new_implicit(policy.model, KAPPA)
    rows = implicit_rows(items, policy.renderer, start, 64)
    told = partial(implicit_logits, offset=OFFSET)
    for logit_M in read_rows(start, rows, 64, told):
        np.testing.assert_allclose(logit_M, OFFSET, atol=1e-5)
    trained = moved(new_implicit(policy.model, KAPPA))
    for batch_tokens in (64, 4096):  # one row a batch, and all in one
        for logit_M, item in zip(read_rows(trained, rows, batch_tokens, told), items, strict=True):
            np.testing.assert_allclose(logit_M, slowly(trained, start, policy, item), rtol=1e-3, atol=1e-4)


def test_turns_learn_from_every_label_and_outcome_from_the_last_alone(policy, items):
    start = new_implicit(policy.model, KAPPA)
    by_turn = implicit_rows(items, policy.renderer, start, 4096)
    assert [row.columns.loss_weight.sum() for row in by_turn] == [5, 1, 2]
    by_outcome = implicit_rows(items, policy.renderer, start, 4096, "outcome")
    for row, item, read in zip(by_outcome, items, (3, 1, 1), strict=True):
        at = np.flatnonzero(row.columns.loss_weight)
        assert at.tolist() == [row.columns.is_scored.nonzero()[0][-1]] and row.columns.is_scored.sum() == read
        assert row.columns.q[at[0]] == item.episode.won and not row.branches
    trained = moved(new_implicit(policy.model, KAPPA))
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
    model = new_implicit(policy.model, KAPPA)
    how = TrainSettings(epochs=20, learning_rate=5e-3, batch_tokens=2048, save_every=0, seed=1)
    held_out = [replace(item, tried=()) for item in data[-9:]]
    figures = train_implicit_prm(data[:-9], policy.renderer, model, how, tmp_path, labels=labels, held_out=held_out)
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
    model = new_implicit(policy.model, KAPPA)
    with pytest.raises(DataError, match="the mean label is 0: nothing to tell apart"):
        train_implicit_prm(lost, policy.renderer, model, how, tmp_path, labels="outcome")
    with pytest.raises(ValueError, match="labels: 'steps' is not one of turns, outcome"):
        train_implicit_prm(lost, policy.renderer, model, how, tmp_path, labels="steps")


def test_columns_extend_a_prms(policy, items):
    row = implicit_rows(items, policy.renderer, new_implicit(policy.model, KAPPA), 4096)[0]
    assert isinstance(row.columns, ImplicitColumns) and row.columns.own.sum() == 3


def test_labels_that_are_none_are_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["implicit_prm", "--out", str(tmp_path / "out"), "--labels", "steps"])
    with pytest.raises(SystemExit):
        implicit_prm.main()
    said = capsys.readouterr().err
    assert said.startswith("implicit_prm: ") and "'steps'" in said and said.count("\n") == 1
