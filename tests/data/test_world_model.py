"""The world model of the stage ``evaluate``: trained on the PRM's rollouts, checked on the games held out from it."""

from types import SimpleNamespace

import pytest

from agentprm_core.credit.split import validation_games
from agentprm_core.datasets import episodes_to_table, write_table
from agentprm_core.policy.models import save_checkpoint
from tasks.frame import layout
from tasks.world import world_model
from tests.model import text_world


@pytest.fixture
def stage(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    renderer = text_world.renderer()
    save_checkpoint(text_world.small_model(renderer), renderer.tokenizer, layout.policy(2))
    episodes = text_world.episodes(40, 2, skill=0.3)
    table = episodes_to_table(episodes, iteration=1, method="policy", policy="x")
    layout.rollouts(1).mkdir(parents=True)
    write_table(table, layout.episodes(1))
    sft = {"optimizer": "adamw", "learning_rate": 0.01, "batch_tokens": 1000, "accumulation": 1, "save_every": 0}
    params = SimpleNamespace(
        seed=1,
        compute=SimpleNamespace(device="cpu", precision="float32", gradient_checkpointing=False),
        label=SimpleNamespace(validation_share=0.2),
        sft=SimpleNamespace(**sft),
        evaluate=SimpleNamespace(lookahead=SimpleNamespace(depth=1, epochs=3.0)),
        policies={"2": SimpleNamespace(prm=1)},
    )
    return SimpleNamespace(params=params, iteration=2, seed=2001, scratch=tmp_path / ".scratch"), episodes


def test_it_learns_from_one_side_and_is_checked_on_the_other(stage):
    world, figures = world_model(stage[0])
    ids = sorted({episode.game_id for episode in stage[1]})
    held_out = {name for name, side in zip(ids, validation_games(ids, 0.2, 1)) if side}
    first = [e for e in stage[1] if e.game_id in held_out and e.index == 0]
    assert figures["held_out"]["observations"] == sum(e.length - 1 for e in first) > 0
    assert figures["held_out"]["wins"] == sum(e.won for e in first)
    assert figures["observation_accuracy"] > 0.5 and figures.keys() == {
        "observation_loss",
        "observation_accuracy",
        "held_out",
    }
    assert not world.model.training
