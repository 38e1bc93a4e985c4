"""The process reward model: losses against slow sums, scores against plain rows, learning, validation, bad input."""

import dataclasses

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from agentprm_core.credit.gae import gae_targets
from agentprm_core.errors import DataError
from agentprm_core.policy.models import load_checkpoint, save_checkpoint
from agentprm_core.prm.losses import pair_weights, prm_objective, relative, soft_bce
from agentprm_core.prm.model import likelihood_weight, new_prm
from agentprm_core.prm.promise_progress import PromiseProgressTrainer
from agentprm_core.prm.rows import Labelled, Tried, prm_row
from agentprm_core.prm.score import score_actions, score_episodes
from agentprm_core.prm.train import PrmSettings, train_prm
from agentprm_core.prm.validation import auc, validate
from agentprm_core.training.attention import packed_attention
from agentprm_core.training.packing import pack
from tests.model import text_world

SETTINGS = PrmSettings(learning_rate=5e-3, batch_tokens=1024, seed=0, epochs=2)


@pytest.fixture(scope="module")
def renderer():
    return text_world.renderer()


@pytest.fixture(params=[0.0, 0.7], ids=["plain", "likelihood"])
def prm(renderer, request):
    """A PRM whose scores vary."""
    model = new_prm(text_world.small_model(renderer, seed=1), request.param)
    torch.manual_seed(2)
    torch.nn.init.normal_(model.score.weight, std=1.0)
    return model.eval()


@pytest.fixture
def tuned(renderer, tmp_path):
    """A policy with an adapter that changes what it says."""
    folder = tmp_path / "base"
    save_checkpoint(text_world.small_model(renderer, seed=1), renderer.tokenizer, folder)
    base = AutoModelForCausalLM.from_pretrained(folder)
    torch.manual_seed(2)
    return get_peft_model(
        base, LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    ).eval()


def labels(episode):
    """How soon the episode was won: what a perfect model of these returns would say."""
    return np.array([0.9 ** (len(episode.turns) - 1 - t) * episode.won for t in range(len(episode.turns))])


def labelled(games, each=1, skill=0.5, first_game=0):
    return [Labelled(e, labels(e)) for e in text_world.episodes(games, each, skill, first_game)]


def plain_score(prm, renderer, turns, action):
    """The logit of one (state, action) as a row of its own."""
    rendered = renderer.episode([*turns[:-1], turns[-1]._replace(action=action)])
    first, ids = rendered.action_starts[-1], torch.tensor([rendered.input_ids])
    out = prm(input_ids=ids, output_hidden_states=True)
    spoken = (out.hidden_states[-1] @ prm.get_input_embeddings().weight.T).log_softmax(-1)[0, first - 1 : -1]
    return out.logits[0, -1, 0] + prm.config.likelihood * spoken.gather(1, ids[0, first:, None]).sum()


def test_starts_at_one_half_and_leaves_the_policy_alone(renderer):
    policy = text_world.small_model(renderer)
    before = {k: v.clone() for k, v in policy.state_dict().items()}
    model = new_prm(policy)
    scores = score_episodes(model, renderer, text_world.episodes(2), 512)
    assert all((s == 0.5).all() for s in scores)
    assert all(torch.equal(before[k], v) for k, v in policy.state_dict().items())


def test_a_checkpoint_scores_with_its_likelihood(prm, renderer, tmp_path):
    episodes = text_world.episodes(3)
    before = score_episodes(prm, renderer, episodes, 512)
    save_checkpoint(prm, renderer.tokenizer, tmp_path / "prm", "prm")
    loaded = load_checkpoint(tmp_path / "prm", kind="prm")
    assert likelihood_weight(loaded.model) == likelihood_weight(prm)
    for a, b in zip(before, score_episodes(loaded.model, renderer, episodes, 512), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_state_of_another_likelihood_is_not_resumed_from(renderer, tmp_path):
    """A fresh PRM has the same weights whatever its likelihood."""
    settings = dataclasses.replace(SETTINGS, save_every=1)

    def resumed_from(likelihood):
        model = new_prm(text_world.small_model(renderer), likelihood)
        return train_prm(labelled(4), renderer, model, settings, tmp_path)[1]["resumed_from"]

    assert [resumed_from(0.0), resumed_from(0.3)] == [0, 0]
    assert resumed_from(0.3) > 0


def test_the_likelihood_of_a_prm_with_an_adapter_is_the_policys_own(tuned, renderer, tmp_path):
    """Before training, and in a checkpoint: an adapter's folder has no configuration that could keep κ."""
    episodes = text_world.episodes(3)
    prm = new_prm(tuned, 0.3)
    for episode, scores in zip(episodes, score_episodes(prm, renderer, episodes, 512), strict=True):
        rendered = renderer.episode(episode.turns)
        said = tuned(torch.tensor([rendered.input_ids])).logits[0].log_softmax(-1)
        for begin, end, score in zip(rendered.action_starts, rendered.action_ends, scores):
            spoken = sum(said[at - 1, rendered.input_ids[at]] for at in range(begin, end + 1))
            assert score == pytest.approx((0.3 * spoken).sigmoid().item(), abs=1e-5)
    torch.nn.init.normal_(prm.base_model.model.score.modules_to_save["default"].weight, std=1.0)
    before = score_episodes(prm, renderer, episodes, 512)
    digests = [save_checkpoint(prm, renderer.tokenizer, tmp_path / "prm", "prm")]
    loaded = load_checkpoint(tmp_path / "prm", kind="prm").model
    assert likelihood_weight(loaded) == 0.3
    for a, b in zip(before, score_episodes(loaded, renderer, episodes, 512), strict=True):
        np.testing.assert_array_equal(a, b)
    loaded.config.likelihood = 0.5
    digests.append(save_checkpoint(loaded, renderer.tokenizer, tmp_path / "other", "prm"))
    assert digests[0] != digests[1]


def test_a_likelihood_needs_a_model_whose_embedding_is_its_output(renderer):
    model = text_world.small_model(renderer)
    tuned = get_peft_model(model, LoraConfig(r=2, target_modules=["embed_tokens"], task_type="CAUSAL_LM"))
    with pytest.raises(DataError, match=r"no adapter on the embedding: set critic.likelihood to 0"):
        new_prm(tuned, 0.3)
    untied = text_world.small_model(renderer)
    untied.config.tie_word_embeddings = False
    with pytest.raises(DataError, match=r"\(tie_word_embeddings\)"):
        new_prm(untied, 0.3)


def test_bce_over_whole_episodes_is_the_mean_over_plain_rows_with_the_same_gradient(prm, renderer):
    items = [dataclasses.replace(item, tried=[Tried(0, "take mug", 0.25)]) for item in labelled(3)]
    batch = pack([prm_row(item, renderer) for item in items])
    with packed_attention(prm):
        total = prm_objective(soft_bce)(prm, batch).total / batch.columns.loss_weight.sum()
    total.backward()
    in_tree = torch.cat([p.grad.flatten() for p in prm.parameters()])
    prm.zero_grad()
    losses = []
    for item in items:
        turns = item.episode.turns
        rows = [(turns[: t + 1], turn.action, q) for t, (turn, q) in enumerate(zip(turns, item.q))]
        for history, action, q in [*rows, (turns[:1], "take mug", 0.25)]:
            logit = plain_score(prm, renderer, history, action)
            losses.append(torch.nn.functional.binary_cross_entropy_with_logits(logit, torch.tensor(float(q))))
    alone = torch.stack(losses).mean()
    alone.backward()
    torch.testing.assert_close(total, alone, atol=1e-5, rtol=0)
    torch.testing.assert_close(in_tree, torch.cat([p.grad.flatten() for p in prm.parameters()]), atol=1e-5, rtol=1e-6)


def test_scores_of_episodes_and_of_other_actions_are_those_of_plain_rows(prm, renderer):
    episodes = text_world.episodes(4, skill=0.3)
    scores = score_episodes(prm, renderer, episodes, batch_tokens=150)
    tried = score_actions(prm, renderer, episodes, [[(0, "take mug"), (0, "go to cabinet 2")]] * 4, 150)
    for episode, own, others in zip(episodes, scores, tried):
        turns = episode.turns
        expected = [plain_score(prm, renderer, turns[: t + 1], turn.action) for t, turn in enumerate(turns)]
        np.testing.assert_allclose(own, torch.stack(expected).sigmoid().detach(), atol=1e-5)
        first = [plain_score(prm, renderer, turns[:1], action) for action in ("take mug", "go to cabinet 2")]
        np.testing.assert_allclose(others, torch.stack(first).sigmoid().detach(), atol=1e-5)


def test_relative_loss_is_the_mean_over_pairs(prm, renderer):
    episode = text_world.play(0, 0)
    tried = [Tried(0, "take mug", 0.1), Tried(0, "take book", 0.12), Tried(0, "go to cabinet 3", 0.9)]
    item = Labelled(episode, np.full(len(episode.turns), np.nan), tried)
    batch = pack([pair_weights(prm_row(item, renderer), margin=0.05)] * 2)
    with packed_attention(prm):
        losses = prm_objective(lambda logit, batch: relative(logit, batch, 0.05))(prm, batch)
    low, also_low, high = (plain_score(prm, renderer, episode.turns[:1], t.action) for t in tried)
    expected = torch.nn.functional.softplus(low - high) + torch.nn.functional.softplus(also_low - high)
    assert batch.columns.loss_weight.sum() == 4
    torch.testing.assert_close(losses.total, 2 * expected, atol=1e-5, rtol=1e-5)


def promise_progress_loss(prm, renderer, items, targets, scratch):
    rows = [prm_row(item, renderer) for item in items]
    settings = dataclasses.replace(
        SETTINGS, loss="promise_progress", batch_tokens=10**6, beta=0.5, gamma=0.9, gae_lambda=0.8, targets=targets
    )
    trainer = PromiseProgressTrainer(prm, rows, [i.episode.won for i in items], settings, scratch)
    (batch,) = trainer.batches(0)
    with packed_attention(prm):
        return trainer.objective(prm.eval(), batch).total


@pytest.mark.parametrize("targets", ["step", "epoch"])
def test_promise_and_progress_against_a_double_loop(prm, renderer, tmp_path, targets):
    items = labelled(3)
    total = promise_progress_loss(prm, renderer, items, targets, tmp_path)
    expected = 0.0
    for item, m in zip(items, score_episodes(prm, renderer, [i.episode for i in items], 999)):
        targets = gae_targets(
            torch.tensor(m)[None],
            torch.tensor([len(m)]),
            torch.tensor([float(item.episode.won)]),
            gamma=0.9,
            gae_lambda=0.8,
        )
        for t in range(len(m)):
            progress = m[t] - (m[t - 1] if t else 0.0) - targets.advantage_BT[0, t].item()
            expected += 0.5 * (m[t] - targets.q_BT[0, t].item()) ** 2 + 0.5 * progress**2
    assert total.item() == pytest.approx(expected, rel=1e-4)


def test_targets_of_a_step_have_no_gradient(prm, renderer, tmp_path):
    gradients = []
    for targets in ("step", "epoch"):  # made of the same weights, those of an epoch as plain numbers
        prm.zero_grad()
        promise_progress_loss(prm, renderer, labelled(3), targets, tmp_path / targets).backward()
        gradients.append([p.grad.clone() for p in prm.parameters() if p.grad is not None])
    assert len(gradients[0]) > 1
    for step, epoch in zip(*gradients, strict=True):
        torch.testing.assert_close(step, epoch, atol=1e-5, rtol=1e-4)


def test_learns_which_actions_are_right_on_other_games(renderer, tmp_path):
    def right(item):
        return dataclasses.replace(item, q=np.array([float(text_world.is_right(t)) for t in item.episode.turns]))

    settings = dataclasses.replace(SETTINGS, epochs=12)
    held_out = [right(item) for item in labelled(60, skill=0.3, first_game=900)]
    train = [right(item) for item in labelled(200, skill=0.3)]
    _, metrics = train_prm(train, renderer, new_prm(text_world.small_model(renderer)), settings, tmp_path, held_out)
    assert metrics["curve"][-1]["prm_loss"] < metrics["curve"][0]["prm_loss"]
    assert metrics["validation"]["correlation"] > 0.1
    assert metrics["validation"]["loss"] < metrics["validation"]["loss_of_mean"]


@pytest.mark.parametrize(("targets", "estimates"), [("step", 0), ("epoch", 8)])
def test_promise_and_progress_learns_from_outcomes_alone(renderer, tmp_path, targets, estimates):
    settings = dataclasses.replace(SETTINGS, loss="promise_progress", epochs=8, targets=targets)
    model = new_prm(text_world.small_model(renderer))
    _, metrics = train_prm(labelled(150, skill=0.3), renderer, model, settings, tmp_path)
    assert metrics["curve"][-1]["prm_loss"] < 0.9 * metrics["curve"][0]["prm_loss"]
    assert len(list(tmp_path.glob("scores-*.npy"))) == estimates


def test_learns_from_pairs_which_action_is_better_on_other_games(renderer, tmp_path):
    def pair(item):
        return dataclasses.replace(item, tried=[Tried(0, item.episode.turns[0].action, 0.9), Tried(0, "take mug", 0.1)])

    settings = dataclasses.replace(SETTINGS, loss="relative", epochs=4)
    items = [pair(item) for item in labelled(120, skill=1.0)]
    model, _ = train_prm(items, renderer, new_prm(text_world.small_model(renderer)), settings, tmp_path)
    fresh = text_world.episodes(40, skill=1.0, first_game=500)
    good = score_episodes(model, renderer, fresh, 2048)
    bad = score_actions(model, renderer, fresh, [[(0, "take mug")]] * 40, 2048)
    assert np.mean([g[0] > b[0] for g, b in zip(good, bad)]) > 0.9


def test_the_relative_loss_reads_no_label_of_the_turns_themselves(renderer, tmp_path):
    settings = dataclasses.replace(SETTINGS, loss="relative", epochs=1)
    tried = [Tried(0, "take mug", 0.1), Tried(0, "go to cabinet 3", 0.9)]
    weights = []
    for number, q in enumerate((np.nan, 0.0, 1.0)):
        items = [dataclasses.replace(item, q=np.full(len(item.q), q), tried=tried) for item in labelled(8)]
        model, _ = train_prm(
            items, renderer, new_prm(text_world.small_model(renderer)), settings, tmp_path / str(number)
        )
        weights.append(torch.cat([weight.detach().flatten() for weight in model.parameters()]))
    assert torch.equal(weights[0], weights[1]) and torch.equal(weights[0], weights[2])


def test_validation_on_other_games(renderer, tmp_path):
    _, metrics = train_prm(
        labelled(60),
        renderer,
        new_prm(text_world.small_model(renderer)),
        SETTINGS,
        tmp_path,
        held_out=labelled(20, first_game=900),
    )
    assert metrics["validation"]["actions"] == sum(len(i.q) for i in labelled(20, first_game=900))
    assert 0 <= metrics["validation"]["ece"] <= 1


def test_a_game_on_both_sides_is_refused(renderer, tmp_path):
    with pytest.raises(ValueError, match=r"1 games are in both training and validation: game-0002"):
        train_prm(
            labelled(3),
            renderer,
            new_prm(text_world.small_model(renderer)),
            SETTINGS,
            tmp_path,
            held_out=labelled(2, first_game=2),
        )


def test_validation_figures_by_hand():
    score = np.array([0.2, 0.4, 0.9, 0.95])
    q = np.array([0.0, 1.0, 1.0, 1.0])
    won = np.array([False, True, False, True])
    figures = validate(score, q, won)
    assert figures["loss"] == pytest.approx(-np.log([0.8, 0.4, 0.9, 0.95]).mean())
    assert figures["auc"] == pytest.approx(0.75)
    assert figures["ece"] == pytest.approx((0.2 + 0.6 + 2 * 0.075) / 4)
    assert [b["count"] for b in figures["calibration"]] == [1, 1, 2]


def test_auc_counts_ties_half():
    assert auc(np.array([0.5, 0.5]), np.array([True, False])) == 0.5
    assert auc(np.array([0.5, 0.7]), np.array([True, True])) is None


@pytest.mark.parametrize("q", [[0.5], [0.5] * 5 + [1.2], [-0.1] + [0.5] * 5])
def test_bad_labels_name_the_episode(renderer, q):
    episode = dataclasses.replace(text_world.play(3, 1, skill=0.0))
    assert len(episode.turns) == 6
    with pytest.raises(ValueError, match=r"episode 1 of game-0003: \d labels for 6 turns"):
        prm_row(Labelled(episode, np.array(q)), renderer)


def test_nothing_to_rank(renderer, tmp_path):
    settings = dataclasses.replace(SETTINGS, loss="relative")
    with pytest.raises(ValueError, match=r"no state has two tried actions whose values differ by more than 0\.03"):
        train_prm(labelled(3), renderer, new_prm(text_world.small_model(renderer)), settings, tmp_path)
