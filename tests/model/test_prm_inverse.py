"""InversePRM on whole episodes: its loss and gradient against plain rows, a Q that prefers the expert, bad input."""

import dataclasses
import random

import numpy as np
import pytest
import torch

from agentprm_core.credit.expert_and_learner import inverse_loss
from agentprm_core.policy.models import embedding_of
from agentprm_core.prm.inverse_train import InverseEpisode, InverseSettings, inverse, inverse_row, train_inverse
from agentprm_core.prm.losses import prm_objective
from agentprm_core.prm.model import likelihood_weight, new_prm
from agentprm_core.prm.score import score_actions
from agentprm_core.training.attention import packed_attention
from agentprm_core.training.packing import pack
from tests.model import text_world

GAMMA = 0.9


@pytest.fixture(scope="module")
def renderer():
    return text_world.renderer()


def plain_score(prm, renderer, turns, action):
    """The logit of one (state, action) as a row of its own: w·h + κ log π_φ(a|s)."""
    rendered = renderer.episode([*turns[:-1], turns[-1]._replace(action=action)])
    ids = torch.tensor([rendered.input_ids])
    out = prm(input_ids=ids, output_hidden_states=True)
    said_LV = (out.hidden_states[-1][0] @ embedding_of(prm).weight.T).log_softmax(-1)
    own = range(rendered.action_starts[-1], rendered.action_ends[-1] + 1)
    return out.logits[0, -1, 0] + likelihood_weight(prm) * sum(said_LV[at - 1, ids[0, at]] for at in own)


@pytest.mark.parametrize("likelihood", [0.0, 0.3])
def test_loss_and_gradient_are_those_of_plain_rows(renderer, likelihood):
    """With the likelihood in Q too."""
    prm = new_prm(text_world.small_model(renderer, seed=1), likelihood).eval()
    torch.manual_seed(2)
    torch.nn.init.normal_(prm.score.weight, std=1.0)
    expert = text_world.play(5, 0, skill=0.3)
    after = [("take mug", ""), *((turn.action, "") for turn in expert.turns[2:])]  # the first differs, the rest agree
    after[-1] = ("go to cabinet 2", "")
    learner = dataclasses.replace(text_world.play(6, 1, skill=0.2), start=1)
    items = [InverseEpisode(learner, False, 0.5), InverseEpisode(expert, True, 2.0, after)]
    rows = [inverse_row(item, renderer) for item in items]
    assert len(rows[0].branches) == 0
    assert len(rows[1].branches) == sum(a != (t.action, "") for a, t in zip(after, expert.turns[1:])) > 0
    batch = pack(rows)
    objective = prm_objective(lambda logit, batch: inverse(logit, batch, gamma=GAMMA))
    with packed_attention(prm):
        total = objective(prm, batch).total
    total.backward()
    in_tree = torch.cat([p.grad.flatten() for p in prm.parameters()])
    prm.zero_grad()
    q, following, terminal, expert_N, weight = [], [], [], [], []
    for item in items:
        turns = item.episode.turns
        for t in range(item.episode.start, len(turns)):
            q.append(plain_score(prm, renderer, turns[: t + 1], turns[t].action))
            terminal.append(t + 1 == len(turns))
            if terminal[-1]:
                following.append(torch.tensor(torch.nan))
            else:
                action = item.after[t][0] if item.expert else turns[t + 1].action
                following.append(plain_score(prm, renderer, turns[: t + 2], action))
            expert_N.append(float(item.expert))
            weight.append(item.weight)
    columns = [torch.stack(q), torch.stack(following), *map(torch.tensor, (terminal, expert_N, weight))]
    alone = inverse_loss(*columns, gamma=GAMMA) * sum(weight)
    alone.backward()
    assert float(batch.columns.loss_weight.sum()) == sum(weight)
    torch.testing.assert_close(total, alone, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(in_tree, torch.cat([p.grad.flatten() for p in prm.parameters()]), atol=1e-4, rtol=1e-4)


def test_it_prefers_the_experts_actions_on_other_games(renderer, tmp_path):
    """The expert goes where the object is, the learner does anything, also at the expert's states."""
    rng = random.Random(0)

    def items(first, count):
        for episode in text_world.episodes(count, skill=1.0, first_game=first):
            after = [(rng.choice(turn.admissible), "") for turn in episode.turns[1:]]
            yield InverseEpisode(episode, True, 1.0, after)
        yield from (InverseEpisode(e, False, 0.4) for e in text_world.episodes(count, skill=0.0, first_game=first))

    settings = InverseSettings(learning_rate=5e-3, batch_tokens=1024, seed=0, epochs=3, gamma=GAMMA)
    prm = new_prm(text_world.small_model(renderer))
    prm, figures = train_inverse(list(items(0, 100)), renderer, prm, settings, tmp_path, list(items(900, 20)))
    assert figures["validation"]["auc"] > 0.8
    fresh = text_world.episodes(40, skill=1.0, first_game=500)
    tried = [[(0, episode.turns[0].action), (0, "take mug")] for episode in fresh]
    scores = score_actions(prm, renderer, fresh, tried, 2048)
    assert np.mean([right > wrong for right, wrong in scores]) > 0.9


def test_an_expert_without_its_resampled_actions(renderer):
    episode = text_world.play(3, 1, skill=0.0)
    with pytest.raises(ValueError, match="episode 1 of game-0003: 1 resampled actions for 6 turns"):
        inverse_row(InverseEpisode(episode, True, 1.0, [("take mug", "")]), renderer)
