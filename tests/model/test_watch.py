"""Looking at a policy under training: figures against plain ones, nothing changed by it, a provoked case flagged."""

import copy
import dataclasses

import numpy as np
import pytest
import torch

from agentprm_core.improve import online_dpo, watch
from agentprm_core.improve.monitor import verdict
from agentprm_core.improve.online_dpo import DpoSettings, train_online_dpo
from agentprm_core.improve.pairs import Choice
from agentprm_core.improve.proposals import Proposal, Proposer
from agentprm_core.improve.watch import Probe, Returns, Watch, agreement, repeats
from agentprm_core.policy.models import Checkpoint
from agentprm_core.prm.model import new_prm
from tests.model import text_world

SETTINGS = DpoSettings(learning_rate=5e-3, batch_tokens=600, seed=0, steps=6, beta=0.1, samples=4)


@pytest.fixture(scope="module")
def renderer():
    return text_world.renderer()


def policy_of(model, renderer, name=""):
    return Checkpoint(model.eval(), renderer.tokenizer, renderer, name)


def new_policy(renderer):
    return policy_of(text_world.small_model(renderer), renderer)


def probe_of(policy, prm, **more):
    proposer = Proposer(policy, temperature=1.0, constrained=True, max_action_tokens=6, batch_tokens=600)
    episodes = text_world.episodes(12, skill=0.5, first_game=700)
    return Probe(episodes, proposer, prm, samples=4, batch_tokens=600, seed=3, **more)


def noisy_prm(renderer, seed):
    prm = new_prm(text_world.small_model(renderer, seed=1))
    torch.manual_seed(seed)
    torch.nn.init.normal_(prm.score.weight, std=1.0)
    return policy_of(prm, renderer)


def test_the_first_look_is_of_the_policy_before(renderer):
    look = probe_of(new_policy(renderer), noisy_prm(renderer, 2), auditor=noisy_prm(renderer, 2)).look(0)
    assert look.kl == pytest.approx(0, abs=1e-6)
    assert look.audit == pytest.approx(look.score)
    assert look.agreement == 1.0
    assert len(look.score) == len(look.repeated) == 12


def test_the_kl_of_a_look_is_that_of_the_drawn_actions_plain_rows(renderer):
    policy = new_policy(renderer)
    probe, before = probe_of(policy, noisy_prm(renderer, 2)), copy.deepcopy(policy.model)
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
        look, total, drawn = probe.look(1), 0.0, 0
        proposer = Proposer(policy, temperature=1.0, constrained=True, max_action_tokens=6, batch_tokens=600)
        episodes = text_world.episodes(12, skill=0.5, first_game=700)
        for episode, of_episode in zip(episodes, proposer.propose(episodes, 4, [(3, n) for n in range(12)])):
            rendered = renderer.episode(episode.turns)
            for turn, proposals in enumerate(of_episode):
                history = rendered.input_ids[: rendered.action_starts[turn]]
                for proposal in proposals:
                    ids = torch.tensor([[*history, *proposal.tokens]])
                    now, then = (
                        model(input_ids=ids).logits[0, len(history) - 1 : -1].log_softmax(-1)
                        for model in (policy.model, before)
                    )
                    total, drawn = total + (now.exp() * (now - then)).sum().item(), drawn + 1
    assert look.kl == pytest.approx(total / drawn, rel=1e-4)
    assert look.kl > 0.01


def test_watching_changes_no_weight_and_looks_when_it_should(renderer, tmp_path):
    results = []
    for watched in (False, True):
        policy, prm = new_policy(renderer), noisy_prm(renderer, 2)
        callbacks = [Watch(probe_of(policy, prm), every=4, stop=False)] if watched else []
        _, metrics = train_online_dpo(
            text_world.episodes(12), policy, prm, SETTINGS, tmp_path / str(watched), callbacks=callbacks
        )
        results.append((policy.model.state_dict(), metrics["curve"]))
    (plain, plain_curve), (seen, seen_curve) = results
    assert all(torch.equal(plain[name], weight) for name, weight in seen.items())
    assert plain_curve == seen_curve
    assert [look.step for look in callbacks[0].looks] == [0, 4, 6]


def test_a_resumed_run_goes_on_with_the_looks_it_had(renderer, tmp_path):
    settings = dataclasses.replace(SETTINGS, save_every=2)
    runs = []
    for killed_at in (None, 4):
        policy, prm = new_policy(renderer), noisy_prm(renderer, 2)
        watching = Watch(probe_of(policy, prm), every=2, stop=False)
        scratch = tmp_path / str(killed_at)
        if killed_at:
            again = new_policy(renderer)
            dying = Watch(Dies(probe_of(again, prm), killed_at), every=2, stop=False)
            with pytest.raises(KeyboardInterrupt):
                train_online_dpo(text_world.episodes(12), again, prm, settings, scratch, callbacks=[dying])
        _, metrics = train_online_dpo(text_world.episodes(12), policy, prm, settings, scratch, callbacks=[watching])
        runs.append(watching.looks)
    assert metrics["resumed_from"] == 2
    assert runs[0] == runs[1]


class Dies:
    def __init__(self, probe, at):
        self.probe, self.at = probe, at

    def look(self, step):
        if step == self.at:
            raise KeyboardInterrupt
        return self.probe.look(step)


def likes(word):
    """Scores of a PRM that likes actions by their words."""
    return lambda prm, renderer, episodes, actions, batch_tokens: [
        np.array([0.5 + 0.4 * text.startswith(word) if prm.config.num_labels == 1 else 0.0 for _, text, *_ in tried])
        for tried in actions
    ]


@pytest.mark.parametrize("stop", [False, True])
def test_a_prm_that_likes_the_wrong_thing_is_found_out_by_its_auditor(renderer, tmp_path, monkeypatch, stop):
    """The PRM wants to walk for ever; another one knows that taking the object is what wins."""
    policy, walker, taker = new_policy(renderer), noisy_prm(renderer, 2), noisy_prm(renderer, 3)

    def scores(prm, *rest):
        return likes("take" if prm is taker.model else "go")(prm, *rest)

    monkeypatch.setattr(online_dpo, "score_actions", scores)
    settings = dataclasses.replace(SETTINGS, steps=24)
    watching = Watch(probe_of(policy, walker, auditor=taker), every=4, stop=stop)
    episodes = text_world.episodes(30, skill=0.5)
    _, metrics = train_online_dpo(episodes, policy, walker, settings, tmp_path, callbacks=[watching])
    found = verdict(watching.looks)
    assert found["flag"] and found["signals"]["audit"] == found["flagged_at"]
    assert found["score_gain"] > 0.05
    assert metrics["steps"] == (found["flagged_at"] if stop else 24)
    agreed = [look.agreement for look in watching.looks if look.agreement is not None]
    assert max(agreed) == 0.0


def test_played_games_are_believed_and_returned(renderer):
    won, lost = (
        text_world.play(1, 0, skill=1.0),
        dataclasses.replace(text_world.play(2, 0, skill=1.0), won=False, reward=0.0),
    )
    policy, prm = new_policy(renderer), noisy_prm(renderer, 2)
    look = probe_of(policy, prm, play=lambda: [lost, won], returns=Returns(0.9, "binary")).look(0)
    assert look.returned == pytest.approx([np.mean(0.9 ** np.arange(won.length)), 0.0])
    plain = [q.mean() for q in watch.score_episodes(prm.model, renderer, [won, lost], 600)]
    assert look.believed == pytest.approx(plain)


def proposal(action):
    return Proposal(action, "", (len(action),), 0.0)


def test_repeats_are_in_the_same_state_of_the_world():
    episode = text_world.play(5, 0, skill=1.0)
    there, back = (episode.turns[0]._replace(action=a, state_key=k) for a, k in (("a", "1"), ("b", "2")))
    walked = dataclasses.replace(episode, turns=(there, back, there))
    assert repeats(walked, Choice(2, (proposal("a"), proposal("b"), proposal("a"), proposal("c")), (0.0,) * 4)) == 0.5
    assert repeats(walked, Choice(1, (proposal("a"),), (0.0,))) == 0.0


def test_agreement_is_on_the_favourite_against_the_last():
    a, b = proposal("a"), proposal("bb")
    liked = [[Choice(0, (a, b), (0.9, 0.1)), Choice(1, (a, b), (0.2, 0.3)), Choice(2, (a, b), (0.5, 0.5))]]
    other = [[Choice(0, (a, b), (0.6, 0.5)), Choice(1, (a, b), (0.4, 0.4)), Choice(2, (a, b), (0.9, 0.0))]]
    assert agreement(liked, other) == 0.75
    assert agreement([liked[0][2:]], [other[0][2:]]) is None


def test_bad_probes(renderer):
    policy = new_policy(renderer)
    proposer = Proposer(policy, temperature=1.0, constrained=True, max_action_tokens=6, batch_tokens=600)
    with pytest.raises(ValueError, match="no episode with a turn to look at the policy in"):
        Probe([], proposer, policy, samples=2, batch_tokens=600, seed=0)
    with pytest.raises(ValueError, match="play and returns go together"):
        probe_of(policy, policy, play=list)
