"""Process reward models and their rivals on the corridor, whose exact Q is known: what each loss learns."""

import numpy as np
import pytest
import torch

from agentprm_core.policy.models import new_model
from agentprm_core.policy.prompt import make_renderer
from agentprm_core.policy.tokenizer import train_tokenizer
from agentprm_core.prm.model import new_prm
from agentprm_core.prm.rows import Labelled, Tried, outcome_alone, prm_row
from agentprm_core.prm.score import score_episodes
from agentprm_core.prm.train import PrmSettings, train_prm
from tests.core import corridor
from tests.model import text_world

EXACT = corridor.exact_q(gamma=1.0)
EPISODES = [corridor.play(seed, seed, f"corridor/{seed}") for seed in range(250)]
FRESH = [corridor.play(seed) for seed in range(10_000, 10_060)]


@pytest.fixture(scope="module")
def renderer():
    texts = [text for e in EPISODES[:20] for turn in e.turns for text in (turn.observation, turn.action)]
    return make_renderer(train_tokenizer(texts * 20, 512))


def trained(renderer, scratch, episodes=EPISODES, tried=(), **changes):
    """A PRM after a few passes over the episodes; their labels are the outcomes (Monte Carlo at γ = 1)."""
    size = {"width": 32, "layers": 2, "heads": 2, "kv_heads": 1, "context": 512}
    model = text_world.quiet(new_model(renderer.tokenizer, **size, seed=1))
    settings = PrmSettings(
        **{
            "learning_rate": 5e-3,
            "batch_tokens": 2048,
            "seed": 0,
            "epochs": 8,
            "gamma": 1.0,
            "optimizer": "muon",
            **changes,
        }
    )
    labelled = [Labelled(e, np.full(e.length, float(e.won)), tried) for e in episodes]
    return train_prm(labelled, renderer, new_prm(model), settings, scratch)[0]


def by_state(prm, renderer) -> dict[tuple[int, str], float]:
    """Mean score of fresh episodes' turns by (cell, action)."""
    found: dict[tuple[int, str], list[float]] = {}
    for episode, q_T in zip(FRESH, score_episodes(prm, renderer, FRESH, 4096)):
        for turn, q in zip(episode.turns, q_T):
            found.setdefault((int(turn.state_key[-1]), turn.action), []).append(q)
    return {key: float(np.mean(values)) for key, values in found.items()}


def error(scores) -> float:
    return float(np.sqrt(np.mean([(scores[key] - EXACT[key]) ** 2 for key in EXACT])))


@pytest.mark.parametrize(
    "loss",
    [
        {"loss": "bce"},
        {"loss": "promise_progress"},
        {"loss": "promise_progress", "targets": "epoch"},
        {"loss": "promise_progress", "beta": 0.0},
    ],
    ids=["monte carlo", "promise and progress", "targets of an epoch", "PVM"],
)
def test_step_losses_learn_the_exact_q(renderer, tmp_path, loss):
    scores = by_state(trained(renderer, tmp_path, **loss), renderer)
    assert error(scores) < 0.16  # saying the mean everywhere: 0.31
    assert all(scores[cell, "left"] < scores[cell, "right"] for cell in corridor.RIGHT)


def test_an_orm_knows_how_episodes_end_and_not_what_a_turn_was_worth(renderer, tmp_path):
    scores = by_state(trained(renderer, tmp_path, loss="outcome"), renderer)
    assert scores[1, "left"] < 0.2 and scores[4, "right"] > 0.8  # the only last actions there are
    assert error(scores) > 0.2


def test_an_orm_reads_one_label_an_episode(renderer):
    episode = next(e for e in EPISODES if e.won and e.length > 3)
    item = Labelled(episode, np.linspace(0.1, 0.2, episode.length), [Tried(0, "left", 0.9)])
    row = prm_row(outcome_alone(item), renderer)
    assert row.columns.loss_weight.sum() == 1 and row.branches == ()
    assert row.columns.loss_weight[renderer.episode(episode.turns).action_ends[-1]] == 1
    assert row.columns.q.sum() == 1


@pytest.mark.parametrize("loss", ["promise_progress", "outcome"])
def test_actions_tried_beside_an_episode_are_no_turns_of_it(renderer, tmp_path, loss):
    few = {"episodes": EPISODES[:20], "epochs": 2, "loss": loss}
    plain = trained(renderer, tmp_path / "plain", **few)
    beside = trained(renderer, tmp_path / "beside", tried=[Tried(0, "left", 0.9), Tried(0, "right", 0.1)], **few)
    for a, b in zip(plain.parameters(), beside.parameters()):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
