"""The world model that is looked ahead with: trained on rollouts, checked on the games held out from it."""

from agentprm_core.credit.split import validation_games
from agentprm_core.improve.sft import SftSettings
from agentprm_core.policy.models import Checkpoint
from agentprm_core.search.imagining import imagined_world
from tests.model import text_world


def test_it_learns_from_one_side_and_is_checked_on_the_other(tmp_path):
    renderer = text_world.renderer()
    policy = Checkpoint(text_world.small_model(renderer), renderer.tokenizer, renderer, "policy")
    episodes = text_world.episodes(40, 2, skill=0.3)
    settings = SftSettings(learning_rate=0.01, batch_tokens=1000, seed=2001, epochs=3.0)
    world, figures = imagined_world(policy, episodes, settings, tmp_path, validation_share=0.2, campaign_seed=1)
    ids = sorted({episode.game_id for episode in episodes})
    held_out = {name for name, side in zip(ids, validation_games(ids, 0.2, 1)) if side}
    first = [e for e in episodes if e.game_id in held_out and e.index == 0]
    assert figures["held_out"]["observations"] == sum(e.length - 1 for e in first) > 0
    assert figures["held_out"]["wins"] == sum(e.won for e in first)
    assert figures["observation_accuracy"] > 0.5
    assert figures.keys() == {"observation_loss", "observation_accuracy", "held_out"}
    assert not world.model.training
    assert world.digest != "policy"
