"""Methods and critics: the registry, what an update learns from and is kept near, and one of each in a toy file."""

import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import torch
import yaml

from agentprm_core.branches import BRANCHES
from agentprm_core.datasets import write_table
from agentprm_core.errors import DataError
from agentprm_core.methods import critic_base, gradient, grpo, inverse, monte_carlo, online_dpo, rft, update_base
from agentprm_core.methods.critic_base import MixedInit
from agentprm_core.methods.critics import CRITICS, critic_module
from agentprm_core.methods.methods import METHODS, method_module
from agentprm_core.methods.update_base import replayed
from agentprm_core.policy.models import load_checkpoint, save_checkpoint
from agentprm_core.rollout import play, starts
from agentprm_core.types import ADVANTAGES, Episode, Turn
from tasks.frame.validation import build
from tests.core.given import HARDWARE, given, know, write_episodes
from tests.model import toy

ROOT = Path(__file__).parents[2]
WON = Episode("game", 0, 0, (Turn("a room", "look", ("look",), True, "s"),), True)
DPO = online_dpo.Config(
    name="online_dpo", learning_rate=0.1, steps=5, batch_tokens=64, beta=0.1, anchor="previous", preference="soft",
    imitation=0.0, replay=0.0, refresh_every=2, samples=4, temperature=1.0, margin=0.02, trainer="ours", monitor=None,
)  # fmt: skip
RFT = rft.Config(name="rft", keeps="won", learning_rate=0.1, steps=5, batch_tokens=64, replay=0.0)
GRPO = grpo.Config(
    name="grpo", learning_rate=0.1, steps=5, batch_tokens=64, optimizer=None, beta=0.1, clip=0.2, refresh=None
)
CRITIC = {
    "gamma": 0.9, "init_from": "policy", "learning_rate": 0.1, "epochs": 1.0, "batch_tokens": 64, "likelihood": 0.0,
    "prior": 0.0, "require": "nothing",
}  # fmt: skip


def sections(kind: str) -> dict[str, dict]:
    """By name the whole blocks of critics or methods in params.yaml and profiles."""
    files = [ROOT / "params.yaml", *(ROOT / "profiles").glob("*.yaml")]
    found = [yaml.safe_load(file.read_text()).get(kind, {}) for file in files]
    return {section["name"]: section for section in found if "name" in section}


@pytest.mark.parametrize(
    ("registry", "find", "kind", "functions"),
    [
        (CRITICS, critic_module, "critic", ("label", "train")),
        (METHODS, method_module, "method", ("collect", "update")),
    ],
)
def test_every_name_is_a_file_with_its_functions_and_a_profile_that_builds(registry, find, kind, functions):
    blocks = sections(kind)
    assert blocks.keys() == registry.keys()
    for name in registry:
        module = find(name)
        assert Path(module.__file__).name == f"{name}.py"
        assert all(callable(getattr(module, function)) for function in functions)
        assert build(module.Config, blocks[name]).name == name
    with pytest.raises(DataError, match=rf"^{kind}.name: 'none' is not one of {', '.join(registry)}$"):
        find("none")


@pytest.mark.parametrize("anchor", ["previous", "first"])
def test_the_anchor_of_a_later_iteration(tmp_path, monkeypatch, anchor):
    """π₀ lies where every iteration finds it, and is read where it is the anchor alone."""
    policy = toy.policy()
    data = know(given(tmp_path, iteration=3), trainee=policy, prm=None, episodes=[WON])
    if anchor == "first":
        save_checkpoint(policy.model, policy.tokenizer, data.folders.first_policy)
    monkeypatch.setattr(online_dpo, "train_online_dpo", lambda *arguments: (arguments[-1], {}))
    found = online_dpo.update(replace(DPO, anchor=anchor), data).model
    if anchor == "first":
        first = load_checkpoint(data.folders.first_policy).model
        assert all(torch.equal(a, b) for a, b in zip(found.parameters(), first.parameters(), strict=True))
    else:
        assert found is None


@pytest.mark.parametrize(("share", "rollouts", "visited"), [(0.0, 8, 0), (0.5, 8, 8), (0.2, 8, 2), (0.9, 8, 10)])
def test_so_many_demonstrations_are_visited_beside_the_rollouts(tmp_path, share, rollouts, visited):
    """As many as make ``replay`` of all, or all there are."""
    data = given(tmp_path)
    write_episodes(data.folders.demos, [replace(WON, game_id=f"game/{n}") for n in range(10)])
    found = [demo.game_id for demo in replayed(data, rollouts, share)]
    assert len(found) == len(set(found)) == visited


@pytest.mark.parametrize(("steps", "every", "kept"), [(200, 2, 200), (5, 2, 6), (0, 2, 0), (7, 7, 7)])
def test_online_dpo_keeps_states_where_its_pairs_are_fresh(tmp_path, steps, every, kept):
    data = given(tmp_path, hardware=replace(HARDWARE, save_every=steps))
    settings = online_dpo.dpo_settings(replace(DPO, refresh_every=every), data)
    assert settings.save_every == kept
    once = online_dpo.dpo_settings(replace(DPO, preference="winner", trainer="trl"), data)
    assert once.refresh_every == DPO.steps


def test_trl_is_refused_what_it_does_not_do():
    replace(DPO, trainer="trl", preference="winner")
    for change in ({"preference": "soft"}, {"anchor": "first"}, {"imitation": 0.1}, {"replay": 0.1}):
        with pytest.raises(ValueError, match=r"^trainer: 'trl' is not allowed: ours, unless preference is winner"):
            replace(DPO, **{"trainer": "trl", "preference": "winner"} | change)


def test_rft_collects_what_was_won_and_imitates_it(tmp_path, monkeypatch):
    monkeypatch.setattr(update_base, "train_sft", lambda kept, *_: (list(kept), {}))
    played = [replace(WON, game_id=f"game/{n}", won=n != 1) for n in range(3)]
    data = know(given(tmp_path), episodes=played, policy=toy.policy(), trainee=toy.policy())
    found = rft.collect(RFT, data)
    assert found.figures == {"episodes": 3, "chosen": 2}
    write_episodes(data.folders.collected, [episode for episode in played if episode.won])
    assert [episode.game_id for episode in rft.update(RFT, data).model] == ["game/0", "game/2"]
    with pytest.raises(DataError, match="none of the 1 episodes was won: nothing to imitate"):
        rft.collect(RFT, know(given(tmp_path), episodes=[played[1]], policy=toy.policy()))


def test_rft_leaves_out_what_was_never_lost(tmp_path):
    played = [replace(WON, game_id=game, won=won) for game, won in (("a", True), ("a", False), ("b", True))]
    found = rft.collect(replace(RFT, keeps="undecided"), know(given(tmp_path), episodes=played, policy=toy.policy()))
    assert found.figures == {"episodes": 3, "chosen": 1}
    assert found.table["game_id"].to_pylist() == ["a"]


def test_advantages_are_of_the_turns_as_they_were_played(tmp_path):
    """GRPO's of two games with two episodes: (R − mean) / std over a game, 0 where all end alike."""
    data = given(tmp_path)
    turns = (*WON.turns, WON.turns[0]._replace(action="go"))
    each = [("a", 0, WON.turns, True), ("a", 1, turns, False), ("b", 0, turns, True), ("b", 1, WON.turns, True)]
    played = [Episode(game, index, 0, which, won) for game, index, which, won in each]
    write_episodes(data.folders.rollouts[-1], played)
    found = grpo.collect(GRPO, data)
    rows = found.table.to_pylist()
    assert [(row["game_id"], row["episode"], row["turn"]) for row in rows] == [
        ("a", 0, 0), ("a", 1, 0), ("a", 1, 1), ("b", 0, 0), ("b", 0, 1), ("b", 1, 0),
    ]  # fmt: skip
    first, second, third, *others = (row["advantage"] for row in rows)
    assert first > 0 and second == third == pytest.approx(-first) and others == [0, 0, 0]
    assert (found.figures["turns"], found.figures["told"]) == (6, 0.5)


def test_a_game_on_which_all_episodes_end_alike_tells_nothing(tmp_path):
    data = given(tmp_path)
    write_episodes(data.folders.rollouts[-1], [replace(WON, index=index) for index in (0, 1)])
    assert grpo.collect(GRPO, data).figures["told"] == 0


class Asked(Exception):
    """A training began; its argument are the settings."""


def _rft(data):
    write_episodes(data.folders.collected, [WON])
    rft.update(RFT, data)


def _grpo(data):
    row = {"game_id": "game", "episode": 0, "turn": 0, "advantage": 1.0}
    write_table(pa.Table.from_pylist([row], ADVANTAGES), data.folders.collected)
    grpo.update(GRPO, data)


@pytest.mark.parametrize(
    ("train", "trainer", "alone"),
    [
        (_rft, (update_base, "train_sft"), False),
        (_grpo, (gradient, "train_policy_gradient"), False),
        (
            lambda data: monte_carlo.train(
                monte_carlo.Config(name="m", visit_key="state", outcome="binary", shaping=None, **CRITIC), data
            ),
            (critic_base, "train_prm"),
            False,
        ),
        (
            lambda data: inverse.train(inverse.Config(name="inverse", negatives="all", ends="told", **CRITIC), data),
            (inverse, "train_inverse"),
            False,
        ),
        (lambda data: online_dpo.update(DPO, data), (online_dpo, "train_online_dpo"), True),
    ],
)
def test_training_is_shared_by_the_processes_asked_for(train, trainer, alone, tmp_path, monkeypatch):
    """Online DPO draws its actions as it trains, and stays one process."""

    def asked(*arguments):
        raise Asked(next(a for a in arguments if hasattr(a, "processes")))

    monkeypatch.setattr(*trainer, asked)
    monkeypatch.setattr(monte_carlo, "labelled_sides", lambda *_, **__: ([], []))
    monkeypatch.setattr(inverse, "inverse_episodes", lambda *_: ([], []))
    several = replace(HARDWARE, processes=2, sharding="fsdp2", pass_tokens=16)
    data = know(given(tmp_path, hardware=several), trainee=toy.policy(), prm=None, episodes=[WON])
    with pytest.raises(Asked) as settings:
        train(data)
    settings = settings.value.args[0]
    expected = (1, 4, "none") if alone else (2, 4, "fsdp2")
    assert (settings.processes, settings.accumulation, settings.sharding) == expected
    assert settings.batch_tokens == 16


@pytest.mark.parametrize("start", ["policy", MixedInit("policy", 0.25)])
@pytest.mark.parametrize("name", ["monte_carlo", "inverse"])
def test_a_critic_is_mixed_as_its_section_says(name, start, tmp_path, monkeypatch):
    critic = CRITIC | {"init_from": start, "name": name}
    if name == "inverse":
        module, config = inverse, inverse.Config(negatives="all", ends="told", **critic)
        monkeypatch.setattr(inverse, "inverse_episodes", lambda *_: ([], []))
    else:
        module, config = critic_base, monte_carlo.Config(visit_key="state", outcome="binary", shaping=None, **critic)
        monkeypatch.setattr(monte_carlo, "labelled_sides", lambda *_, **__: ([], []))

    def asked(*arguments):
        raise Asked(next(a for a in arguments if hasattr(a, "mixing")))

    monkeypatch.setattr(module, "train_inverse" if name == "inverse" else "train_prm", asked)
    with pytest.raises(Asked) as settings:
        critic_module(name).train(config, know(given(tmp_path), trainee=toy.policy(), prm=None))
    assert settings.value.args[0].mixing == (1.0 if start == "policy" else 0.25)


TOY_METHOD = '''"""Toy method: imitation of the shortest won episode of each game.

**What it learns from.** Of each game the won episode with the fewest actions.

**How it updates.** Supervised fine-tuning on them, several passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentprm_core.config import Count
from agentprm_core.datasets import episodes_from_table, episodes_to_table, read_table
from agentprm_core.errors import DataError
from agentprm_core.methods.base import Collected, Given, Updated
from agentprm_core.methods.update_base import UpdateConfig, imitate
from agentprm_core.suites import chosen_suite
from agentprm_core.types import EPISODES, Episode


@dataclass(frozen=True, kw_only=True)
class Config(UpdateConfig):
    """Parameters of ``method.name: toy_shortest``."""

    most: Count
    """Actions of an episode that is kept, at the most."""


def collect(config: Config, given: Given) -> Collected:
    """Rows of EPISODES, one a game. Raises DataError where none was won in so few actions."""
    kept = shortest(given.episodes, config.most)
    if not kept:
        raise DataError(f"no game was won in {config.most} actions: raise method.most")
    table = episodes_to_table(kept, iteration=given.iteration, method="shortest", policy=given.policy.digest)
    return Collected(table, {"kept": len(kept)}, chosen_suite(table, given.policy.digest))


def update(config: Config, given: Given) -> Updated:
    """Imitation of what was collected."""
    kept = list(episodes_from_table(read_table(given.folders.collected, EPISODES)))
    return imitate(config, given, kept, replay=0.0)


def shortest(episodes: Sequence[Episode], most: int) -> list[Episode]:
    """Of each game the shortest won episode, the first of equals; sorted by game."""
    found: dict[str, Episode] = {}
    for episode in episodes:
        best = found.get(episode.game_id)
        if episode.won and episode.length <= most and (best is None or episode.length < best.length):
            found[episode.game_id] = episode
    return [found[game_id] for game_id in sorted(found)]
'''

TOY_CRITIC = '''"""Toy critic: a turn of a won episode is worth more the nearer it is to the end."""

from __future__ import annotations

from dataclasses import dataclass

from agentprm_core.methods.base import Given, Labels, TrainedPrm
from agentprm_core.methods.critic_base import CriticConfig, labelled_sides, monte_carlo_labels, train_on_labels


@dataclass(frozen=True, kw_only=True)
class Config(CriticConfig):
    """Parameters of ``critic.name: toy_nearness``."""


def label(config: Config, given: Given) -> Labels:
    """Rows of LABELS: the discounted return of what was seen and done so far."""
    return monte_carlo_labels(given, gamma=config.gamma, visit_key="history", outcome="binary")


def train(config: Config, given: Given) -> TrainedPrm:
    """Soft cross-entropy on the turns."""
    return train_on_labels(config, given, *labelled_sides(given, gamma=config.gamma, outcome="binary"), loss="bce")
'''


@pytest.fixture
def added(tmp_path, monkeypatch):
    """A package of somebody's with a toy method and a toy critic, each a file and a line of its registry."""
    package = tmp_path / "somebodys"
    package.mkdir()
    for name, text in (("__init__", ""), ("toy_shortest", TOY_METHOD), ("toy_nearness", TOY_CRITIC)):
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(METHODS, "toy_shortest", "somebodys.toy_shortest")
    monkeypatch.setitem(CRITICS, "toy_nearness", "somebodys.toy_nearness")
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "somebodys"]:
        del sys.modules[name]


@pytest.fixture
def played(tmp_path):
    """What a critic and a method are given after forty toy games were played, four episodes each."""
    policy = toy.policy()
    data = given(tmp_path)
    begun = starts([toy.game(n) for n in range(40)], 4, 1)
    episodes = list(play(data.play.sampler(policy, data.temperature), begun, **data.play.worlds))
    episodes.sort(key=lambda episode: (episode.game_id, episode.index))
    save_checkpoint(policy.model, policy.tokenizer, data.folders.policy)
    write_episodes(data.folders.rollouts[-1], episodes, load_checkpoint(data.folders.policy).digest)
    write_table(BRANCHES.empty_table(), data.folders.branches)
    return data


def test_a_method_added_by_a_file_collects_and_updates(added, played):
    module = method_module("toy_shortest")
    said = {"name": "toy_shortest", "learning_rate": 0.01, "steps": 3, "batch_tokens": 512, "most": 12}
    config = build(module.Config, said)
    found = module.collect(config, played)
    assert 0 < found.figures["kept"] <= 40 and len(set(found.table["game_id"].to_pylist())) == found.figures["kept"]
    assert [check.name for check in found.checks] == ["chosen turns"]
    write_table(found.table, played.folders.collected)
    before = [weight.clone() for weight in load_checkpoint(played.folders.policy).model.parameters()]
    updated = module.update(config, played)
    assert updated.figures["steps"] == 3 and updated.figures["imitated"] == found.figures["kept"]
    assert any(not torch.equal(a, b) for a, b in zip(before, updated.model.parameters(), strict=True))
    with pytest.raises(DataError, match=r"no game was won in 1 actions: raise method\.most"):
        module.collect(replace(config, most=1), know(given(played.scratch), episodes=[], policy=None))


def test_a_critic_added_by_a_file_labels_and_trains(added, played):
    module = critic_module("toy_nearness")
    config = build(module.Config, {"name": "toy_nearness", **CRITIC, "learning_rate": 0.01, "batch_tokens": 512})
    found = module.label(config, played)
    turns = sum(episode.length for episode in played.episodes)
    assert found.table.num_rows == turns and found.checks
    write_table(found.table, played.folders.labels)
    trained = module.train(config, played)
    assert trained.figures["rows"] > 0 and trained.held_out
    held_out = {item.episode.game_id for item in trained.held_out}
    sides = found.table
    validation = {g for g, s in zip(sides["game_id"].to_pylist(), sides["split"].to_pylist()) if s == "validation"}
    assert held_out == validation
