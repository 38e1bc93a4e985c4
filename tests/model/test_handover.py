"""A game that the expert plays to its end is the expert's; one of which it plays nothing is the policy's."""

from agentprm_core.policy.starting import ScratchModel, starting_policy
from agentprm_core.search.playing import PlaySettings
from agentprm_core.worlds.demonstrations import demonstrate
from agentprm_core.worlds.webshop.games import generate_games
from agentprm_core.worlds.webshop.spec import WEBSHOP
from benchmarks.handover import handed_over, rows_of

GAMES = generate_games(8, 3, "train")
SETTINGS = PlaySettings("webshop", 6, 1024, 32, True, 8, 256)


def test_the_expert_begins_and_the_policy_goes_on():
    told = {"world_name": "webshop", "max_turns": 6, "knowledge": 0.0}
    shown = {game.id: demonstrate(WEBSHOP.make(), game, seed=1 + n, **told) for n, game in enumerate(GAMES)}
    model = ScratchModel("scratch", 16, 1, 2, 1024, 32, True, "adamw")
    policy = starting_policy(model, shown.values(), WEBSHOP, device="cpu", seed=1)
    played = handed_over(policy, GAMES, SETTINGS, [0, 2, 6], 1)
    for first, episodes in played.items():
        assert [episode.game_id for episode in episodes] == sorted(shown)
        for episode in episodes:
            given = [turn.action for turn in shown[episode.game_id].turns[:first]]
            assert [turn.action for turn in episode.turns[: len(given)]] == given
    none, _, whole = rows_of(played)
    assert whole["success"] == sum(episode.won for episode in shown.values()) / len(GAMES) > none["success"]
    assert none["v_none"] is None and whole["v_none"]["difference"] == whole["success"] - none["success"]
