"""Online DPO: actions drawn on a tree, pairs by score, the loss against plain rows, π_{i−1} as the anchor, learning."""

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model

from agentprm_core.improve import online_dpo
from agentprm_core.improve.online_dpo import DpoSettings, OnlineDpoTrainer, train_online_dpo
from agentprm_core.improve.pairs import UNENDED, Choice, PairCounts, select_pair
from agentprm_core.improve.preferences import choice_row, dpo_objective, soft_objective, soft_targets
from agentprm_core.improve.proposals import Proposal, Proposer
from agentprm_core.improve.reference import Reference
from agentprm_core.policy.models import Checkpoint
from agentprm_core.prm.model import new_prm
from agentprm_core.training.attention import log_probs, logits_of, packed_attention
from agentprm_core.training.packing import pack
from tests.model import text_world

SETTINGS = DpoSettings(learning_rate=1e-3, batch_tokens=600, seed=0, steps=4, beta=0.1, samples=4)
FREE = dataclasses.replace(SETTINGS, constrained=False)
"""Probabilities are over the whole vocabulary, as a plain model gives them."""


@pytest.fixture(scope="module")
def renderer():
    return text_world.renderer()


def policy_of(model, renderer):
    return Checkpoint(model.eval(), renderer.tokenizer, renderer, "")


@pytest.fixture
def policy(renderer):
    """A policy whose next tokens differ much in probability."""
    model = text_world.small_model(renderer, seed=3)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(4 if weight.ndim > 1 else 1)
    return policy_of(model, renderer)


def proposer(policy, **how):
    defaults = {"temperature": 1.0, "constrained": True, "max_action_tokens": 6, "batch_tokens": 300}
    return Proposer(policy, **{**defaults, **how})


def plain_log_probs(policy, history, tokens):
    """(tokens, V) log-probabilities of each next token after the rendered history."""
    ids = [*history, *tokens]
    return policy.model(input_ids=torch.tensor([ids])).logits[0, len(history) - 1 : -1].log_softmax(-1)


def history_of(policy, episode, turn):
    rendered = policy.renderer.episode(episode.turns)
    return rendered.input_ids[: rendered.action_starts[turn]]


def test_free_proposals_have_the_plain_log_probability(policy):
    episodes = text_world.episodes(5, skill=0.3)
    drawn = proposer(policy, constrained=False).propose(episodes, 3, [(0, i) for i in range(5)])
    for episode, of_episode in zip(episodes, drawn):
        for turn, proposals in enumerate(of_episode):
            assert len(proposals) == 3
            for proposal in proposals:
                each = plain_log_probs(policy, history_of(policy, episode, turn), proposal.tokens)
                expected = each[range(len(proposal.tokens)), list(proposal.tokens)].sum().item()
                assert proposal.log_prob == pytest.approx(expected, abs=1e-4)
                assert proposal.ended == (proposal.tokens[-1] == policy.renderer.stop_token)
                assert proposal.ended or len(proposal.tokens) == 6


def test_constrained_proposals_are_admissible_and_renormalised(policy):
    episodes = text_world.episodes(4, skill=0.3)
    drawn = proposer(policy).propose(episodes, 4, [(0, i) for i in range(4)])
    spelt = {c: (*policy.renderer.action_text(c), policy.renderer.stop_token) for c in episodes[0].turns[0].admissible}
    for episode, of_episode in zip(episodes, drawn):
        for turn, proposals in enumerate(of_episode):
            for proposal in proposals:
                assert proposal.tokens == spelt[proposal.action]
                each = plain_log_probs(policy, history_of(policy, episode, turn), proposal.tokens)
                expected = 0.0
                for d, token in enumerate(proposal.tokens):
                    allowed = sorted({c[d] for c in spelt.values() if c[:d] == proposal.tokens[:d]})
                    expected += each[d][allowed].log_softmax(-1)[allowed.index(token)].item()
                assert proposal.log_prob == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("preference", ["winner", "soft"])
def test_the_loss_reads_the_probabilities_that_actions_were_drawn_by(policy, tmp_path, monkeypatch, preference):
    """So the anchor says of a proposal what the policy said that drew it."""
    drawn = set()

    def scored(episodes, proposals, prm, batch_tokens):
        drawn.update({(p.tokens, round(p.log_prob, 3)) for one in proposals for turn in one for p in turn})
        return [
            [Choice(t, tuple(turn), tuple(map(float, range(len(turn))))) for t, turn in enumerate(one)]
            for one in proposals
        ]

    monkeypatch.setattr(online_dpo, "scored", scored)
    prm = Checkpoint(new_prm(copy.deepcopy(policy.model)), policy.tokenizer, policy.renderer, "")
    settings = dataclasses.replace(SETTINGS, preference=preference, max_action_tokens=6)
    trainer = OnlineDpoTrainer(text_world.episodes(4, skill=0.3), policy, prm, settings, tmp_path)
    (batch,) = trainer.fresh([[0, 1, 2, 3]])
    is_action_N = batch.branch >= 0
    branch_P, ids_P = batch.branch[is_action_N], batch.input_ids[is_action_N]
    for branch in range(int(branch_P.max()) + 1):
        said = batch.reference[branch_P == branch].sum().item()
        tokens = tuple(ids_P[branch_P == branch].tolist())
        assert any(tokens == of and said == pytest.approx(log_prob, abs=2e-3) for of, log_prob in drawn)
    with packed_attention(policy.model):
        losses = trainer.objective(policy.model, batch)
    assert losses.total.isfinite()
    losses.total.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in policy.model.parameters())


def test_proposals_do_not_depend_on_what_else_is_drawn(policy):
    episodes = text_world.episodes(6, skill=0.3)
    seeds = [(7, i) for i in range(6)]
    together = proposer(policy, batch_tokens=10_000).propose(episodes, 3, seeds)
    alone = [proposer(policy).propose([episode], 3, [seed])[0] for episode, seed in zip(episodes, seeds)]

    def actions(drawn):
        return [[[p.action for p in turn] for turn in of_episode] for of_episode in drawn]

    assert actions(together) == actions(alone)
    assert len({p.action for of_episode in together for turn in of_episode for p in turn}) > 3


def test_proposals_follow_the_policys_distribution(policy):
    episode = text_world.play(0, 0)
    drawn = proposer(policy).propose([episode], 4000, [(1, 2)])[0][0]
    counts = {p.action: (sum(q.action == p.action for q in drawn), p.log_prob) for p in drawn}
    for seen, log_prob in counts.values():
        p = np.exp(log_prob)
        assert abs(seen / 4000 - p) < 4 * np.sqrt(p * (1 - p) / 4000) + 1e-3


def test_replayed_turns_get_no_proposals(policy):
    episode = dataclasses.replace(text_world.play(0, 0, skill=0.0), start=2)
    drawn = proposer(policy).propose([episode], 2, [(0,)])[0]
    assert [len(turn) for turn in drawn] == [0, 0] + [2] * (episode.length - 2)


def proposal(name, ended=True):
    return Proposal(name, "", (len(name), 1), -1.0, ended)


def test_pairs_are_best_against_worst_and_ties_are_counted():
    counts = PairCounts()
    a, bb, ccc = proposal("a"), proposal("bb"), proposal("ccc")
    pair = select_pair(Choice(0, (a, bb, ccc), (0.5, 0.9, 0.1)), 0.0, counts)
    assert (pair.chosen.action, pair.rejected.action) == ("bb", "ccc")
    assert select_pair(Choice(1, (a, a), (0.5, 0.5)), 0.0, counts) is None
    assert select_pair(Choice(2, (a, bb), (0.5, 0.5)), 0.0, counts) is None
    assert select_pair(Choice(3, (a, bb), (0.5, 0.52)), 0.05, counts) is None
    assert (counts.states, counts.pairs, counts.same, counts.tied) == (4, 1, 1, 2)


def test_two_reasons_for_one_action_are_no_pair():
    counts = PairCounts()
    why, also, other = (Proposal(action, reason, (n,), -1.0) for n, (action, reason) in enumerate(
        [("look", "It is dark."), ("look", "It is late."), ("wait", "It is dark.")]
    ))  # fmt: skip
    assert select_pair(Choice(0, (why, also), (0.9, 0.1)), 0.0, counts) is None
    assert counts.same == 1
    pair = select_pair(Choice(1, (why, also, other), (0.9, 0.1, 0.4)), 0.0, counts)
    assert (pair.chosen, pair.rejected) == (why, other)


def test_an_action_without_an_end_scores_below_all_others(policy, renderer):
    episode = text_world.play(0, 0)
    drawn = [[[proposal("take mug"), proposal("take", ended=False)]] + [[]] * (episode.length - 1)]
    (choices,) = online_dpo.scored([episode], drawn, policy_of(noisy_prm(renderer), renderer), 500)
    assert choices[0].scores[0] > 0
    assert choices[0].scores[1] == UNENDED
    assert select_pair(choices[0], 0.0, PairCounts()).chosen.action == "take mug"


def some_choices(policy, episodes):
    """The distinct actions of eight draws at each turn with made-up scores, by episode."""
    rng, found = np.random.default_rng(0), []
    drawn = proposer(policy).propose(episodes, 8, [(i,) for i in range(len(episodes))])
    for of_episode in drawn:
        choices = [Choice(turn, tuple(d), tuple(rng.random(8).tolist())).distinct for turn, d in enumerate(of_episode)]
        found.append([choice for choice in choices if len(choice.proposals) > 1])
    return found


def plain_log_prob(model, history, tokens):
    each = model(input_ids=torch.tensor([[*history, *tokens]])).logits[0, len(history) - 1 : -1].log_softmax(-1)
    return each[range(len(tokens)), tokens].sum()


def with_reference(policy, reference, rows):
    batch = pack(rows)
    return Reference(reference).refer(batch, batch.branch >= 0)


def moved(policy):
    """π_{i−1}, after which the policy has moved on."""
    reference = copy.deepcopy(policy.model)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.add_(0.02 * torch.randn_like(weight))
    return reference


def plain_winner(log_policy, log_reference, scores, beta):
    ratio = torch.stack(log_policy) - torch.stack(log_reference)
    return -torch.nn.functional.logsigmoid(beta * (ratio[0] - ratio[1]))


def plain_soft(log_policy, log_reference, scores, beta):
    """Over the actions drawn and all others as one, which scores as the drawn ones do on average."""
    now, before, q = torch.stack(log_policy), torch.stack(log_reference), torch.tensor(scores)
    mean = (before.exp() * q).sum() / before.exp().sum()
    worth = torch.stack([*(before + (q - mean) / beta), (1 - before.exp().sum()).log()])
    said = torch.stack([*now, (1 - now.exp().sum()).log()])
    return -(worth.softmax(0) * said).sum()


@pytest.mark.parametrize(
    ("objective", "plain", "as_choice"),
    [
        (dpo_objective, plain_winner, lambda choice: select_pair(choice, 0.0, PairCounts()).as_choice),
        (soft_objective, plain_soft, lambda choice: choice.distinct),
    ],
)
def test_loss_and_gradient_are_those_of_plain_rows(policy, objective, plain, as_choice):
    reference, episodes = moved(policy), text_world.episodes(4, skill=0.3)
    choices = [[as_choice(c) for c in of_episode] for of_episode in some_choices(policy, episodes)]
    rows = [choice_row(policy.renderer.episode(e.turns), c) for e, c in zip(episodes, choices)]
    batch = with_reference(policy, reference, rows)
    with packed_attention(policy.model):
        total = objective(policy.model, batch, 0.3).total / batch.columns.loss_weight.sum()
    total.backward()
    on_tree = torch.cat([p.grad.flatten() for p in policy.model.parameters()])
    policy.model.zero_grad()
    losses = []
    for episode, of_episode in zip(episodes, choices):
        for choice in of_episode:
            history = history_of(policy, episode, choice.turn)
            now = [plain_log_prob(policy.model, history, list(p.tokens)) for p in choice.proposals]
            with torch.no_grad():
                before = [plain_log_prob(reference, history, list(p.tokens)) for p in choice.proposals]
            losses.append(plain(now, before, choice.scores, 0.3))
    alone = torch.stack(losses).mean()
    alone.backward()
    assert batch.columns.loss_weight.sum() == len(losses) > 5
    torch.testing.assert_close(total, alone, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(
        on_tree, torch.cat([p.grad.flatten() for p in policy.model.parameters()]), atol=1e-5, rtol=1e-4
    )


def test_soft_preferences_rest_where_the_regularised_optimum_is(policy):
    """With π = π*, π* ∝ π_{i−1} exp(Q/β), the gradient vanishes; equal scores leave π_{i−1} alone."""
    episodes = text_world.episodes(3, skill=0.3)
    choices = [[dataclasses.replace(c, scores=(0.4,) * len(c.scores)).distinct for c in of_episode]
               for of_episode in some_choices(policy, episodes)]  # fmt: skip
    rows = [choice_row(policy.renderer.episode(e.turns), c) for e, c in zip(episodes, choices)]
    batch = with_reference(policy, policy.model, rows)
    with packed_attention(policy.model):
        soft_objective(policy.model, batch, 0.05).total.backward()
    assert max(p.grad.abs().max() for p in policy.model.parameters()) < 1e-4


def test_soft_preferences_hold_a_state_where_one_action_was_drawn(policy):
    """No score moves it, and a policy that has moved is called back: there the loss is least at π_{i−1}."""
    episodes = text_world.episodes(3, skill=0.3)
    single = [[Choice(c.turn, c.proposals[:1], (q,)) for c, q in zip(of_episode, (0.1, 0.5, 0.9, 0.2))]
              for of_episode in some_choices(policy, episodes)]  # fmt: skip
    rows = [choice_row(policy.renderer.episode(e.turns), c) for e, c in zip(episodes, single)]

    def loss(reference):
        batch = with_reference(policy, reference, rows)
        with packed_attention(policy.model):
            losses = soft_objective(policy.model, batch, 0.05)
        return losses.total, losses.metrics["accuracy"][1]

    still, compared = loss(policy.model)
    assert compared == 0
    still.backward()
    assert max(p.grad.abs().max() for p in policy.model.parameters()) < 1e-4
    policy.model.zero_grad()
    loss(moved(policy))[0].backward()
    assert max(p.grad.abs().max() for p in policy.model.parameters()) > 3e-4


def test_soft_targets_are_the_optimum_and_keep_what_was_not_drawn():
    """π* by hand: two actions of 0.5 and 0.3 with scores 0.25 apart, and 0.2 that nobody drew; β = 0.5."""
    score = torch.tensor([0.6, 0.35])
    target, rest = soft_targets(torch.tensor([0.5, 0.3]).log(), score, torch.tensor([0, 0]), 1, 0.5)
    mean = (0.5 * 0.6 + 0.3 * 0.35) / 0.8
    worth = torch.tensor([0.5 * math.exp((0.6 - mean) / 0.5), 0.3 * math.exp((0.35 - mean) / 0.5), 0.2])
    torch.testing.assert_close(torch.cat([target, rest]), worth / worth.sum())


@pytest.mark.parametrize("objective", [dpo_objective, soft_objective])
def test_imitation_adds_the_surprise_at_the_actions_of_won_episodes(policy, objective):
    """Against plain rows: only won episodes, only their actions, only from the turn where they start."""
    episodes = text_world.episodes(3)
    choices = some_choices(policy, episodes)
    episodes = [dataclasses.replace(e, won=n < 2, start=int(n == 1)) for n, e in enumerate(episodes)]
    pairs = [[dataclasses.replace(c, proposals=c.proposals[:2], scores=c.scores[:2]) for c in of] for of in choices]

    def loss(imitation):
        rows = [choice_row(policy.renderer.episode(e.turns), c, e.start if e.won else None)
                for e, c in zip(episodes, pairs)]  # fmt: skip
        batch = with_reference(policy, policy.model, rows)
        with packed_attention(policy.model):
            return objective(policy.model, batch, 0.3, imitation), batch.columns.loss_weight.sum()

    (alone, count), (both, _) = loss(0.0), loss(0.7)
    surprises = []
    for episode in episodes[:2]:
        rendered = policy.renderer.episode(episode.turns)
        first = rendered.action_starts[episode.start]
        log_probs = plain_log_probs(policy, rendered.input_ids[:1], rendered.input_ids[1:])
        for position in range(first, len(rendered.input_ids)):
            if rendered.is_action[position]:
                surprises.append(-log_probs[position - 1, rendered.input_ids[position]])
    expected = 0.7 * torch.stack(surprises).mean() * count
    torch.testing.assert_close(both.total - alone.total, expected, atol=1e-4, rtol=1e-4)
    assert both.metrics["imitation"][1] == len(surprises)


def test_without_imitation_no_outcome_is_read(renderer, tmp_path, monkeypatch):
    """The same weights whoever won; with imitation the outcomes matter."""
    monkeypatch.setattr(online_dpo, "score_actions", taste)

    def trained(imitation, won):
        policy = policy_of(text_world.small_model(renderer), renderer)
        episodes = [dataclasses.replace(e, won=won) for e in text_world.episodes(12, skill=0.5)]
        settings = dataclasses.replace(SETTINGS, steps=2, imitation=imitation)
        train_online_dpo(episodes, policy, policy, settings, tmp_path / f"{imitation}-{won}")
        return torch.cat([weight.flatten() for weight in policy.model.parameters()])

    assert torch.equal(trained(0.0, True), trained(0.0, False))
    assert not torch.equal(trained(0.5, True), trained(0.5, False))


def test_reference_is_what_the_model_was_and_lets_go_of_it(policy):
    reference, before = Reference(policy.model), copy.deepcopy(policy.model.state_dict())
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.add_(1.0)
    after = copy.deepcopy(policy.model.state_dict())
    with reference.in_place():
        assert all(torch.equal(before[k], v) for k, v in policy.model.state_dict().items())
    assert all(torch.equal(after[k], v) for k, v in policy.model.state_dict().items())


def test_the_anchor_may_be_a_policy_from_long_ago(policy, renderer, tmp_path):
    """π₀ while the policy before the update is another: the log-probabilities and the KL are to π₀."""
    first, episodes = moved(policy), text_world.episodes(6, skill=0.3)
    prm = policy_of(noisy_prm(renderer), renderer)
    trainer = OnlineDpoTrainer(episodes, policy, prm, FREE, tmp_path, first)
    (batch,) = trainer.fresh([range(6)])
    where = batch.branch >= 0
    said = []
    for model in (policy.model, first):
        with torch.no_grad(), packed_attention(model):
            said.append(logits_of(model, batch, where).log_softmax(-1))
    now, then = said
    of_first = then.gather(1, batch.input_ids[where][:, None])[:, 0]
    torch.testing.assert_close(batch.reference, of_first)
    assert (now - then).abs().max() > 0.1
    with packed_attention(policy.model):
        total, actions = trainer.objective(policy.model, batch).metrics["kl"]
    assert total.item() == pytest.approx((now.exp() * (now - then)).sum().item(), rel=1e-4)
    assert total.item() / actions > 0.01
    assert all(torch.equal(a, b) for a, b in zip(trainer.decided_by()[-1].values(), first.parameters()))


def test_an_anchor_of_another_size_is_refused(policy, renderer):
    with pytest.raises(ValueError, match=r"the anchor is another kind of model: it has no model\.embed_tokens"):
        Reference(policy.model, text_world.small_model(renderer, width=16))


def test_with_lora_the_anchor_is_the_previous_adapter_not_the_base(policy, renderer, tmp_path):
    model = get_peft_model(policy.model, LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(weight, std=0.5)
    tuned = policy_of(model, renderer)
    episodes = text_world.episodes(6, skill=0.3)
    prm = policy_of(noisy_prm(renderer), renderer)
    trainer = OnlineDpoTrainer(episodes, tuned, prm, FREE, tmp_path)
    (batch,) = trainer.fresh([range(6)])
    ids = batch.branch >= 0
    with torch.no_grad(), packed_attention(model):
        now, _ = log_probs(model, batch, ids)
        with model.disable_adapter():
            base, _ = log_probs(model, batch, ids)
    torch.testing.assert_close(batch.reference, now)
    assert (batch.reference - base).abs().max() > 0.1
    with packed_attention(model):
        loss = trainer.objective(model, batch)
    assert loss.total.item() / batch.columns.loss_weight.sum().item() == pytest.approx(np.log(2), abs=1e-5)
    assert loss.metrics["kl"][0].item() == pytest.approx(0, abs=1e-5)


def noisy_prm(renderer):
    prm = new_prm(text_world.small_model(renderer, seed=1))
    torch.manual_seed(2)
    torch.nn.init.normal_(prm.score.weight, std=1.0)
    return prm.eval()


def taste(prm, renderer, episodes, actions, batch_tokens):
    """Stands in for the PRM: likes to take things, and mugs best."""
    return [
        np.array([text.startswith("take") + 0.5 * text.endswith("mug") for _, text, *_ in tried]) for tried in actions
    ]


def share_taking(policy, episodes):
    drawn = proposer(policy).propose(episodes, 4, [(9, i) for i in range(len(episodes))])
    return np.mean([p.action.startswith("take") for of_episode in drawn for turn in of_episode for p in turn])


@pytest.mark.parametrize(("refresh", "preference"), [(1, "winner"), (4, "winner"), (4, "soft")])
def test_the_policy_comes_to_do_what_scores_higher(renderer, tmp_path, monkeypatch, refresh, preference):
    policy = policy_of(text_world.small_model(renderer), renderer)
    fresh = text_world.episodes(10, skill=0.5, first_game=700)
    before = share_taking(policy, fresh)
    monkeypatch.setattr(online_dpo, "score_actions", taste)
    settings = dataclasses.replace(SETTINGS, steps=16, refresh_every=refresh, learning_rate=5e-3, preference=preference)
    _, metrics = train_online_dpo(text_world.episodes(30, skill=0.5), policy, policy, settings, tmp_path)
    assert share_taking(policy, fresh) > before + 0.3
    scores = [entry["score"] for entry in metrics["curve"] if "score" in entry]  # known where pairs were drawn
    assert len(scores) == 16 // refresh
    assert scores[-1] > scores[0]
    assert metrics["curve"][-1]["kl"] > 0
    assert 0 < metrics["curve"][0]["paired"] <= 1


@pytest.mark.parametrize("preference", ["winner", "soft"])
def test_equal_scores_change_nothing(renderer, policy, tmp_path, preference):
    before = copy.deepcopy(policy.model.state_dict())
    prm = policy_of(new_prm(text_world.small_model(renderer)), renderer)  # ½ everywhere
    _, metrics = train_online_dpo(
        text_world.episodes(20), policy, prm, dataclasses.replace(SETTINGS, preference=preference), tmp_path
    )
    assert metrics["curve"][-1]["tied"] + metrics["curve"][-1]["same"] == 1
    if preference == "winner":
        assert all(torch.equal(before[k], v) for k, v in policy.model.state_dict().items())
    else:  # no gradient but rounding errors, of which Adam takes the sign for a step's worth
        assert metrics["curve"][0]["grad_norm"] < 1e-6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": 1}, "samples must be at least 2"),
        ({"imitation": -1.0}, "imitation at least 0"),
        ({"preference": "loud"}, "preference: 'loud' is not one of winner, soft"),
        ({"save_every": 5, "refresh_every": 2}, "save_every 5 must be a multiple of refresh_every 2"),
    ],
)
def test_bad_settings(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SETTINGS, **change)
