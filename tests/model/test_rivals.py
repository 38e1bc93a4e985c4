"""Rival methods on the crossroads: one update of each raises the success, online ones resume to the same weights."""

import copy
import dataclasses
from collections import defaultdict
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
import torch

from agentprm_core.datasets import episodes_from_table, episodes_to_table, read_table, write_table
from agentprm_core.errors import DataError
from agentprm_core.improve.decided import DecidedColumns, decided_row, state_features, with_old
from agentprm_core.improve.implicit import (
    ImplicitSettings,
    copied,
    played_rows,
    preferred_pairs,
    step_rewards,
    train_implicit,
)
from agentprm_core.improve.policy_gradient import (
    HEAD,
    Experience,
    GradientSettings,
    GradientTrainer,
    RowWriter,
    gradient_objective,
)
from agentprm_core.improve.reference import Reference
from agentprm_core.improve.sft import SftSettings, train_sft
from agentprm_core.improve.values import fitted_head, headed, state_values
from agentprm_core.methods import gigpo, gradient, grpo, istar, loop, ppo, tree_grpo
from agentprm_core.methods.gradient import Refresh
from agentprm_core.methods.trust import PrmRefused
from agentprm_core.overlap import validation_side
from agentprm_core.policy.models import Checkpoint, load_checkpoint, new_model, save_checkpoint
from agentprm_core.policy.prompt import make_renderer
from agentprm_core.policy.tokenizer import train_tokenizer
from agentprm_core.rollout import play, starts
from agentprm_core.training.attention import packed_attention
from agentprm_core.training.packing import pack
from agentprm_core.training.trainer import EpisodeTrainer
from agentprm_core.types import EPISODES
from tests.core import crossroads
from tests.core.given import HARDWARE, PLAY, given, know, write_episodes, write_games
from tests.model import text_world

GAMES = [crossroads.game(number) for number in range(8)]
EPISODES_OF_ALL = [crossroads.episode(path, n) for n, path in enumerate(crossroads.PATHS)]
SHARED = {"learning_rate": 5e-3, "steps": 24, "batch_tokens": 1024, "optimizer": None, "clip": 0.3, "refresh": None}
CONFIGS = {
    "grpo": (grpo, grpo.Config(name="grpo", beta=0.01, **SHARED)),
    "gigpo": (
        gigpo,
        gigpo.Config(name="gigpo", beta=0.01, omega=1.0, gamma=0.95, visit_key="state", alone="zero", **SHARED),
    ),
    "loop": (loop, loop.Config(name="loop", keeps="all", **SHARED)),
    "ppo": (ppo, ppo.Config(name="ppo", beta=0.01, gamma=1.0, gae_lambda=0.95, value_weight=0.5, **SHARED)),
    "istar": (
        istar,
        istar.Config(
            name="istar",
            beta=0.01,
            alpha=1.0,
            implicit=istar.Implicit(beta=0.1, learning_rate=2e-3, steps=20),
            **SHARED,
        ),
    ),
    "tree_grpo": (tree_grpo, tree_grpo.Config(name="tree_grpo", beta=0.01, forks=1, rounds=2, **SHARED)),
}
PLAYED = dataclasses.replace(PLAY, world="tests.core.crossroads:CROSSROADS", max_turns=3, context=64)


def renderer():
    texts = [crossroads.seen(path[:t]) for path in crossroads.PATHS for t in range(3)]
    return make_renderer(train_tokenizer([*texts, *crossroads.ACTIONS], 64, ()))


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """It has read all paths, and goes each about as often."""
    speaks = renderer()
    size = {"width": 32, "layers": 2, "heads": 2, "kv_heads": 1, "context": 64}
    model = text_world.quiet(new_model(speaks.tokenizer, **size, seed=0)).to(torch.float32)
    settings = SftSettings(learning_rate=1e-2, batch_tokens=1024, seed=0, steps=60)
    train_sft(EPISODES_OF_ALL, speaks, model, settings, tmp_path_factory.mktemp("sft"))
    return Checkpoint(model.eval(), speaks.tokenizer, speaks, "")


def played_by(policy, data, each: int = 6, seed: int = 1):
    begun = starts(GAMES, each, seed)
    episodes = list(play(data.play.sampler(policy, data.temperature), begun, **data.play.worlds))
    return sorted(episodes, key=lambda episode: (episode.game_id, episode.index))


@pytest.fixture
def data(policy, tmp_path):
    return made(policy, tmp_path)


def made(policy, folder, **changes):
    """What a method is given after the games were played six times each."""
    data = given(folder, temperature=1.0, play=PLAYED, **changes)
    save_checkpoint(policy.model, policy.tokenizer, data.folders.policy)
    write_games(data, GAMES)
    write_episodes(data.folders.demos, EPISODES_OF_ALL)
    write_episodes(data.folders.rollouts[-1], played_by(policy, data), load_checkpoint(data.folders.policy).digest)
    return data


def chance_to_win(model, policy) -> float:
    """Exactly: the admissible actions' shares of the first token."""
    left, right = (policy.renderer.action(action)[0] for action in crossroads.ACTIONS)
    total = 0.0
    for path in crossroads.WINS:
        rendered = policy.renderer.episode(crossroads.episode(path).turns)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([rendered.input_ids])).logits[0]
        chance = 1.0
        for t, start in enumerate(rendered.action_starts):
            shares = logits[start - 1, [left, right]].softmax(-1)
            chance *= float(shares[int(path[t] == "R")])
        total += chance
    return total


def run(name: str, data, **changes):
    module, config = CONFIGS[name]
    config = dataclasses.replace(config, **changes)
    found = module.collect(config, data)
    write_table(found.table, data.folders.collected)
    return found, module.update(config, data)


ONLINE = {"refresh": Refresh(every=6, games=8)}


@pytest.mark.parametrize("changes", [{}, ONLINE], ids=["once", "online"])
@pytest.mark.parametrize("name", CONFIGS)
def test_one_update_raises_the_chance_to_win(name, changes, data, policy):
    before = chance_to_win(policy.model, policy)
    found, updated = run(name, data, **changes)
    assert chance_to_win(updated.model, policy) > before + 0.05
    assert not hasattr(updated.model, HEAD)
    figures = updated.figures
    assert figures["steps"] == 24 and figures["tokens_trained"] > 0
    leaves = 3 if name == "tree_grpo" else 1
    assert found.played.episodes == 48 * (leaves - 1)
    assert updated.played.episodes == (3 * 8 * 6 * leaves if changes else 0)
    assert [time["step"] for time in figures.get("refreshed", [])] == ([6, 12, 18] if changes else [])


class Killed(Exception):
    pass


@pytest.mark.parametrize("name", ["grpo", "loop", "ppo", "istar", "tree_grpo"])
def test_a_killed_online_update_ends_in_the_same_weights(name, policy, tmp_path, monkeypatch):
    """Killed between two times that it plays, and while it plays: what was played is not played again."""
    hardware = dataclasses.replace(HARDWARE, save_every=2)

    def weights(model):
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    _, whole = run(name, made(policy, tmp_path / "whole", hardware=hardware), **ONLINE)
    data = made(policy, tmp_path / "killed", hardware=hardware)
    module, config = CONFIGS[name]
    config = dataclasses.replace(config, **ONLINE)
    write_table(module.collect(config, data).table, data.folders.collected)
    steps, take = [], EpisodeTrainer._take_step

    def dies(self, model):
        if type(self).__name__ == "GradientTrainer":
            steps.append(self.step)
            if len(steps) == 15:
                raise Killed
        return take(self, model)

    monkeypatch.setattr(EpisodeTrainer, "_take_step", dies)
    with pytest.raises(Killed):
        module.update(config, data)
    again = know(made_again(data))
    updated = module.update(config, again)
    assert updated.figures["resumed_from"] == 12
    assert torch.equal(weights(updated.model), weights(whole.model))
    assert updated.figures["tokens_trained"] == whole.figures["tokens_trained"]
    assert updated.figures["refreshed"] == whole.figures["refreshed"]
    assert updated.figures["fresh_games"] == whole.figures["fresh_games"]


def made_again(data):
    """The same folders, read anew."""
    return dataclasses.replace(data)


def test_what_was_played_before_the_kill_is_kept(data, monkeypatch):
    run("loop", data, **ONLINE)
    files = sorted(path.name for path in data.scratch.glob("fresh-*.parquet"))
    assert len(files) == 3
    for number, file in enumerate(files, 1):
        rows = read_table(data.scratch / file, EPISODES)
        assert set(rows["policy"].to_pylist()) == {f"after refresh {number}"}
        assert len({(row["game_id"], row["episode"]) for row in rows.to_pylist()}) == 48


@pytest.mark.parametrize("keeps", ["all", "undecided"])
def test_games_whose_episodes_all_ended_alike_can_be_left_out(keeps, data, monkeypatch):
    rows_at = []
    init = GradientTrainer.__init__

    def counted(self, model, rows, *others):
        rows_at.append(len(rows))
        init(self, model, rows, *others)

    monkeypatch.setattr(GradientTrainer, "__init__", counted)
    _, updated = run("loop", data, keeps=keeps, **ONLINE)
    files = [data.folders.rollouts[-1], *sorted(data.scratch.glob("fresh-*.parquet"))]
    read = [*rows_at, *(time["read"] for time in updated.figures["refreshed"])]
    for file, count in zip(files, read, strict=True):
        won = defaultdict(list)
        for episode in episodes_from_table(read_table(file, EPISODES)):
            won[episode.game_id].append(episode.won)
        undecided = sum(len(ended) for ended in won.values() if len(set(ended)) > 1)
        assert count == (48 if keeps == "all" else undecided)
    assert [time["episodes"] for time in updated.figures["refreshed"]] == [48] * 3, "what was played is told whole"
    assert keeps == "all" or min(read) < 48


def test_the_overlap_of_fresh_games_is_told(data):
    """Half of the training games were in the rollouts, and two have a demonstration."""
    shown, others = {GAMES[0].id, "crossroads/60"}, [crossroads.game(number) for number in range(60, 60 + len(GAMES))]
    write_games(data, [*GAMES, *others])
    write_episodes(data.folders.demos, [dataclasses.replace(EPISODES_OF_ALL[0], game_id=game) for game in shown])
    _, updated = run("loop", data, **ONLINE)
    files = data.scratch.glob("fresh-*.parquet")
    fresh = {game for file in files for game in read_table(file, EPISODES)["game_id"].to_pylist()}
    rollouts = {game.id for game in GAMES}
    taught = rollouts - validation_side(data, rollouts)
    assert updated.figures["fresh_games"] == {
        "demonstrated": len(fresh & shown) / len(fresh),
        "in_rollouts": len(fresh & rollouts) / len(fresh),
        "taught_prm": len(fresh & taught) / len(fresh),
    }
    assert 0 < len(fresh & taught) < len(fresh & rollouts) < len(fresh)
    assert "fresh_games" not in run("loop", data)[1].figures


@pytest.mark.parametrize(("asked", "used"), [(None, "adamw"), ("muon", "muon"), ("adamw", "adamw")])
def test_the_optimizer_is_the_models_unless_the_method_names_one(data, asked, used):
    config = dataclasses.replace(CONFIGS["loop"][1], optimizer=asked)
    assert gradient.gradient_settings(config, data, gradient.Rule(credit=lambda *_: None)).optimizer == used


def test_other_parameters_are_another_run():
    settings = GradientSettings(1e-3, 64, 0, steps=4, refresh_every=3, save_every=6)
    with pytest.raises(ValueError, match="save_every 4 must be a multiple of refresh_every 3"):
        dataclasses.replace(settings, save_every=4)
    with pytest.raises(ValueError, match=r"level: 'word' is not one of turn, token"):
        dataclasses.replace(settings, level="word")
    with pytest.raises(ValueError, match=r"keeps: 'won' is not one of all, undecided"):
        dataclasses.replace(settings, keeps="won")
    for asks in ({"beta": 0.1}, {"value_weight": 0.5}):
        with pytest.raises(ValueError, match="leaves out what a KL"):
            dataclasses.replace(settings, keeps="undecided", **asks)


def action_log_probs(model, policy, episode):
    """Of each token of each turn's action, by a plain pass."""
    rendered = policy.renderer.episode(episode.turns)
    ids = torch.tensor([rendered.input_ids])
    each = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
    return [
        each[range(start - 1, end), rendered.input_ids[start : end + 1]]
        for start, end in zip(rendered.action_starts, rendered.action_ends)
    ]


def other(policy, seed: int = 0) -> Checkpoint:
    """The same model, moved."""
    model = copy.deepcopy(policy.model)
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return dataclasses.replace(policy, model=model)


def test_old_log_probabilities_are_those_of_plain_rows(policy):
    rows = with_old(policy.model, [decided_row(e, policy, DecidedColumns)[0] for e in EPISODES_OF_ALL], 64)
    for row, episode in zip(rows, EPISODES_OF_ALL):
        with torch.no_grad():
            expected = torch.cat(action_log_probs(policy.model, policy, episode)).numpy()
        np.testing.assert_allclose(row.columns.old[row.columns.decided > 0], expected, atol=1e-5)
        assert not row.columns.old[row.columns.decided == 0].any()


def test_the_surrogate_of_tokens_and_the_critics_loss_are_those_of_plain_rows(policy):
    """With a head on the trunk; π has moved away from π_old."""
    moved, rng = other(policy), np.random.default_rng(0)
    episodes = [crossroads.episode("LLR"), crossroads.episode("RLL", 1, start=1)]
    advantages, targets = ([rng.normal(size=3) for _ in episodes] for _ in range(2))
    experience = Experience(episodes, advantages, targets)
    batch = pack(RowWriter(moved, "token").rows(experience))
    batch = Reference(policy.model).refer(batch, batch.columns.decided > 0)
    head = torch.nn.Linear(32, 1)
    with headed(moved.model, head), packed_attention(moved.model):
        losses = gradient_objective(moved.model, batch, beta=0.0, clip=0.2, level="token", value_weight=0.7)
    expected = 0.0
    with torch.no_grad():
        for episode, advantage_T, target_T in zip(episodes, advantages, targets):
            now, before = (action_log_probs(model, policy, episode) for model in (moved.model, policy.model))
            rendered = policy.renderer.episode(episode.turns)
            hidden = moved.model(input_ids=torch.tensor([rendered.input_ids]), output_hidden_states=True)
            for t in range(episode.start, 3):
                ratio = (now[t] - before[t]).exp().numpy()
                expected -= np.minimum(ratio * advantage_T[t], ratio.clip(0.8, 1.2) * advantage_T[t]).sum()
                value = head(hidden.hidden_states[-1][0, rendered.action_starts[t] - 1]).item()
                expected += 0.7 * 0.5 * (value - target_T[t]) ** 2
    assert losses.total.item() == pytest.approx(expected, abs=1e-4)
    assert losses.metrics["clipped"][0] > 0
    assert batch.columns.loss_weight.sum() == (batch.columns.decided > 0).sum()


def test_at_the_start_the_gradient_is_that_of_the_advantage_weighted_log_likelihood(policy):
    """ρ = 1: ∇L = −Σ A ∇ log π, by autograd on plain rows."""
    moved = other(policy, 3)
    advantages = [np.random.default_rng(n).normal(size=3) for n in range(len(EPISODES_OF_ALL))]
    for level in ("turn", "token"):
        batch = pack(RowWriter(moved, level).rows(Experience(EPISODES_OF_ALL, advantages)))
        batch = Reference(moved.model).refer(batch, batch.columns.decided > 0)
        moved.model.zero_grad()
        with packed_attention(moved.model):
            gradient_objective(moved.model, batch, beta=0.0, clip=0.2, level=level).total.backward()
        found = [p.grad.clone() for p in moved.model.parameters()]
        moved.model.zero_grad()
        total = sum(
            float(a) * part.sum()
            for episode, advantage_T in zip(EPISODES_OF_ALL, advantages)
            for a, part in zip(advantage_T, action_log_probs(moved.model, policy, episode))
        )
        (-total).backward()
        for p, own in zip(moved.model.parameters(), found, strict=True):
            torch.testing.assert_close(own, p.grad, atol=1e-4, rtol=1e-3)


def test_the_first_critic_is_the_best_linear_one(policy):
    """Seven states, more features than those: it finds the mean return of each."""
    episodes = [crossroads.episode(path, n) for n, path in enumerate(product_of_paths())]
    returns = [np.full(3, float(episode.won)) for episode in episodes]
    head = fitted_head(policy, episodes, returns, 256)
    found = state_values(policy, head, episodes, 256)
    means: dict[str, list[float]] = {}
    for episode in episodes:
        for turn in episode.turns:
            means.setdefault(turn.state_key, []).append(float(episode.won))
    for episode, value_T in zip(episodes, found):
        expected = [np.mean(means[turn.state_key]) for turn in episode.turns]
        np.testing.assert_allclose(value_T, expected, atol=0.05)


def product_of_paths():
    return [path for path, _ in product(crossroads.PATHS, range(2))]


def test_features_are_the_hidden_states_where_actions_begin(policy):
    episode = crossroads.episode("RLL", start=1)
    ((found),) = state_features(policy.model, [decided_row(episode, policy, DecidedColumns)[0]], 64)
    rendered = policy.renderer.episode(episode.turns)
    with torch.no_grad():
        hidden = policy.model(input_ids=torch.tensor([rendered.input_ids]), output_hidden_states=True).hidden_states[-1]
    expected = hidden[0, [start - 1 for start in rendered.action_starts[1:]]]
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)


def test_pairs_are_of_one_game_and_every_episode_that_ended_otherwise_is_in_one():
    paths = ["LLL", "LLR", "LRL", "RRR", "LLL"]  # lost, won, lost, won, lost
    episodes = [crossroads.episode(path, n) for n, path in enumerate(paths)]
    episodes += [crossroads.episode("LLL", n, "h") for n in range(2)]
    assert preferred_pairs(episodes) == [(1, 0), (3, 2), (1, 4)]
    assert preferred_pairs(episodes[-2:]) == []


def test_istar_needs_episodes_that_ended_otherwise(data):
    """At first; later on fresh rollouts that all ended alike leave the rewards as they are."""
    module, config = CONFIGS["istar"]
    learner = istar.Learner(config, data, "update")
    learner.begin()
    before = [p.clone() for _, p in learner._trained()]
    alike = [crossroads.episode("LLR", n, "crossroads/00") for n in range(2)]
    table = episodes_to_table(alike, iteration=1, method="policy", policy="p")
    credit = learner.credit(table, 1, data.scratch / f"fresh-{1:05}")
    assert all(torch.equal(a, b) for a, (_, b) in zip(before, learner._trained(), strict=True))
    assert np.isfinite(credit.advantage_N).all()
    assert credit.figures == {"pairs": 0, istar.TOKENS: 0}
    write_episodes(data.folders.rollouts[-1], alike)
    with pytest.raises(DataError, match="no game has episodes of which some ended better than others"):
        module.collect(config, dataclasses.replace(data))


SHORT = {"steps": 6, "refresh": Refresh(every=2, games=8)}
"""Two times that it plays anew, and three trainings of its implicit PRM, the first on the rollouts."""


def short_istar():
    config = dataclasses.replace(CONFIGS["istar"][1], **SHORT)
    return dataclasses.replace(config, implicit=dataclasses.replace(config.implicit, steps=4))


@pytest.fixture
def trained(monkeypatch):
    """The tokens of each training of an implicit PRM, and of each of a policy, as they end."""
    found = {"implicit": [], "policy": []}

    def counted(module, name, of, figures):
        train = getattr(module, name)

        def and_count(*said):
            result = train(*said)
            found[of].append(figures(result)["tokens_trained"])
            return result

        monkeypatch.setattr(module, name, and_count)

    counted(istar, "train_implicit", "implicit", lambda metrics: metrics)
    counted(gradient, "train_policy_gradient", "policy", lambda result: result[1])
    return found


@pytest.mark.parametrize("scratch", ["own", "shared"])
def test_the_budget_of_istar_counts_each_training_of_both_models_once(data, trained, scratch, tmp_path):
    """A campaign's stages have scratch of their own, so that the update trains on the rollouts again."""
    config = short_istar()
    found = istar.collect(config, data)
    assert len(trained["implicit"]) == 1
    assert found.figures["tokens_trained"] == found.figures[istar.TOKENS] == trained["implicit"][0] > 0
    write_table(found.table, data.folders.collected)
    trained["implicit"].clear()
    given_update = dataclasses.replace(data, **({"scratch": tmp_path / "of-update"} if scratch == "own" else {}))
    figures = istar.update(config, given_update).figures
    assert len(trained["implicit"]) == (3 if scratch == "own" else 2)
    assert figures[istar.TOKENS] == sum(trained["implicit"])
    assert figures["tokens_trained"] == sum(trained["implicit"]) + sum(trained["policy"])
    assert [time[istar.TOKENS] for time in figures["refreshed"]] == trained["implicit"][-2:]
    assert all(0 <= time["implicit_accuracy"] <= 1 for time in figures["refreshed"])


def test_without_fresh_rollouts_an_update_trains_no_implicit_prm(data, trained):
    figures = run("istar", data, steps=2)[1].figures
    assert len(trained["implicit"]) == 1, "collect's"
    assert figures[istar.TOKENS] == 0 and figures["tokens_trained"] == trained["policy"][0]


def test_what_istar_trained_before_a_kill_counts_once(policy, tmp_path, monkeypatch):
    """Killed in each of its trainings, at times both before and after a state was kept, and after the last."""
    config, hardware = short_istar(), dataclasses.replace(HARDWARE, save_every=2)
    data, take = made(policy, tmp_path, hardware=hardware), EpisodeTrainer._take_step
    steps, deadly = [], set()

    def dies(self, model):
        steps.append(self.step)
        if len(steps) in deadly:
            raise Killed
        return take(self, model)

    monkeypatch.setattr(EpisodeTrainer, "_take_step", dies)

    def killed(at, work, scratch):
        """What ``work`` finds after it was killed at these steps, all its attempts counted."""
        steps.clear()
        deadly.clear()
        deadly.update(at)
        for _ in at:
            with pytest.raises(Killed):
                work(config, dataclasses.replace(data, scratch=tmp_path / scratch))
        figures = work(config, dataclasses.replace(data, scratch=tmp_path / scratch)).figures
        return {name: value for name, value in figures.items() if name not in ("seconds", "resumed_from")}

    found = istar.collect(config, data)
    write_table(found.table, data.folders.collected)
    for at in ([2], [4], [2, 4]):
        assert killed(at, istar.collect, f"collect-{at}") == found.figures
    assert killed([], istar.collect, "collect-[4]") == found.figures, "killed after it was trained"
    whole = killed([], istar.update, "update")
    assert len(steps) == 3 * 4 + 6
    for at in ([3], [5], [8], [11], [4, 7, 12], [18]):
        assert killed(at, istar.update, f"update-{at}") == whole
    assert killed([], istar.update, "update") == whole, "killed after its last step"


@pytest.mark.parametrize("constrained", [True, False])
def test_the_implicit_prm_reads_as_the_rollouts_were_drawn(data, constrained, monkeypatch):
    found, make = [], istar.played_rows
    monkeypatch.setattr(istar, "played_rows", lambda *said: found.append(make(*said)) or found[-1])
    istar.collect(
        CONFIGS["istar"][1], dataclasses.replace(data, play=dataclasses.replace(PLAYED, constrained=constrained))
    )
    assert all(row.columns.among.any() == constrained for row in found[0].rows)


def test_implicit_rewards_are_log_ratios_and_training_prefers_what_won(policy, tmp_path):
    episodes = [dataclasses.replace(e, start=int(e.index == 3)) for e in EPISODES_OF_ALL]
    rows = played_rows(episodes, policy, None, 128)
    moved = other(policy)
    found = step_rewards(moved.model, rows, episodes, 0.5, 128)
    with torch.no_grad():
        for episode, reward_T in zip(episodes, found):
            now, before = (action_log_probs(model, policy, episode) for model in (moved.model, policy.model))
            expected = [0.5 * float((a - b).sum()) * (t >= episode.start) for t, (a, b) in enumerate(zip(now, before))]
            np.testing.assert_allclose(reward_T, expected, atol=1e-4)
    model = copied(policy.model)
    settings, pairs = ImplicitSettings(2e-3, 256, 0, steps=200, beta=0.1), preferred_pairs(episodes)
    said = train_implicit(model, rows, pairs, settings, tmp_path)
    earned = [float(reward_T.sum()) for reward_T in step_rewards(model, rows, episodes, 0.5, 128)]
    assert said["curve"][0]["loss"] == pytest.approx(np.log(2), abs=0.05)
    assert said["curve"][-1]["loss"] < 0.2 and said["curve"][-1]["accuracy"] == 1
    assert all(earned[better] > earned[worse] for better, worse in pairs)
    assert all(torch.equal(a, b) for a, b in zip(policy.model.parameters(), copied(policy.model).parameters()))


def test_trees_fork_within_episodes_and_share_what_came_before(data):
    module, config = CONFIGS["tree_grpo"]
    table = module.collect(config, data).table
    episodes = list(episodes_from_table(table.select(EPISODES.names)))
    by_name = {(episode.game_id, episode.index): episode for episode in episodes}
    tree_of = {(row["game_id"], row["episode"]): row["tree"] for row in table.to_pylist()}
    forks = [episode for episode in episodes if tree_of[episode.game_id, episode.index] != episode.index]
    assert len(forks) == 2 * 48 and len(episodes) == 3 * 48
    for fork in forks:
        assert 0 < fork.start < 3
        first = by_name[fork.game_id, tree_of[fork.game_id, fork.index]]
        kin = [e for e in episodes if tree_of[e.game_id, e.index] == first.index and e.game_id == fork.game_id]
        shared = crossroads.path_of(fork)[: fork.start]
        assert any(crossroads.path_of(e)[: fork.start] == shared for e in kin if e is not fork)
    rows = table.to_pylist()
    assert all(row["advantage"] == 0 for row in rows if row["method"] == "replayed")
    assert sum(row["advantage"] != 0 for row in rows) > 0


def test_gigpo_follows_a_prm_where_a_state_came_once_and_only_one_that_ranks(data, policy, monkeypatch):
    module, config = CONFIGS["gigpo"]
    mixed = dataclasses.replace(config, alone="prm")
    scores = np.random.default_rng(0)
    monkeypatch.setattr(module, "score_episodes", lambda model, renderer, es, tokens: [scores.random(3) for _ in es])
    prm = know(dataclasses.replace(data, require="nothing"), prm=policy)
    plain, found = module.collect(config, data), module.collect(mixed, prm)
    assert found.figures["alone"] == plain.figures["alone"]
    differ = found.table["advantage"].to_numpy() != plain.table["advantage"].to_numpy()
    assert bool(differ.any()) == (found.figures["alone"] > 0)
    chance = {"better_than_chance": False, "accuracy": None}
    with pytest.raises(PrmRefused, match="ranks actions no better than chance"):
        module.collect(mixed, know(dataclasses.replace(data, require="ranking", ranking=chance), prm=policy))


def test_the_table_of_ppo_holds_targets(data):
    module, config = CONFIGS["ppo"]
    found = module.collect(config, data)
    assert found.table.schema.equals(ppo.CREDITED)
    assert isinstance(found.table, pa.Table) and 0 < found.figures["explained"] <= 1
