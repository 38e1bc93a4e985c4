"""Looking ahead through a world model: learnt from episodes, or the engine itself, in a world that can be predicted."""

import numpy as np
import pytest

from agentprm_core import worlds
from agentprm_core.improve.sft import SftSettings
from agentprm_core.policy.models import Checkpoint
from agentprm_core.policy.sampler import Decision, Sampler
from agentprm_core.prm.model import new_prm
from agentprm_core.rollout import play, starts
from agentprm_core.search.best_of_n import Chooser
from agentprm_core.search.decoding_config import decoding
from agentprm_core.search.lookahead import Lookahead
from agentprm_core.search.playing import PlaySettings, Search, play_games
from agentprm_core.search.world_model import (
    Imagined,
    LearntModel,
    exchanged,
    observation_accuracy,
    train_world_model,
    with_end,
)
from agentprm_core.types import Game
from agentprm_core.worlds import Observation, WorldSpec, make_world
from tests.model import text_world

N = 6


class Cabinets:
    """:mod:`tests.model.text_world` as a world; the game's id ends in its number."""

    def reset(self, game: Game) -> Observation:
        self.number, self.here, self.won = int(game.id[-4:]), 0, False
        first = text_world.play(self.number, 0, turns=1).turns[0]
        self.commands = first.admissible
        return Observation(first.observation, self.commands)

    def step(self, command: str) -> Observation:
        target, place = text_world.task(self.number)
        text = "Nothing happens."
        if command.startswith("go to") and command in self.commands:
            self.here = int(command[-1])
            text = f"You arrive at cabinet {self.here}. You see {target if self.here == place else 'nothing'}."
        elif command == f"take {target}" and self.here == place:
            text, self.won = "You pick up.", True
        return Observation(text, self.commands, float(self.won), self.won)

    def clone(self) -> "Cabinets":
        twin = Cabinets()
        twin.__dict__.update(self.__dict__)
        return twin

    def state_key(self) -> str:
        return f"{self.number}:{self.here}"


CABINETS = WorldSpec(
    "cabinets", make=Cabinets, generate=lambda count, seed, split: [], kinds=("",), instruction="Look for things."
)


class SeesTheTarget:
    """A scorer of states: good where the last observation shows something. It knows nothing of actions."""

    def __init__(self):
        self.seen = {}

    def open(self, seed):
        return self._keep("")

    def fork(self, seat):
        return self._keep(self.seen[seat])

    def see(self, seat, observation, admissible):
        self.seen[seat] = observation
        return True

    def tell(self, seat, action, reason=""):
        pass

    def score(self, asked):
        return [[0.9 if self._good(self.seen[seat]) else 0.1] * len(candidates) for seat, candidates in asked]

    def close(self, seat):
        del self.seen[seat]
        return 0

    def _good(self, text):
        return "arrive" in text.lower() and "nothing" not in text.lower()

    def _keep(self, text):
        seat = max(self.seen, default=0) + 1
        self.seen[seat] = text
        return seat


class EngineModel:
    """The world itself as a perfect model. It knows the games by the seeds of their starts."""

    def __init__(self, games, world_name):
        self._games, self._world_name = games, world_name
        self._worlds = {}
        self._opened = 0

    def open(self, seed):
        world = make_world(self._world_name)
        world.reset(self._games[seed])
        return self._keep(world)

    def fork(self, seat):
        return self._keep(self._worlds[seat].clone())

    def see(self, seat, observation):
        """It knows."""

    def tell(self, seat, action):
        self._worlds[seat].step(action)

    def imagine(self, asked):
        seen = [self._worlds[seat].step(action) for seat, action in asked]
        return [Imagined(observation.text, observation.done) for observation in seen]

    def close(self, seat):
        del self._worlds[seat]
        return 0

    def _keep(self, world):
        self._opened += 1
        self._worlds[self._opened] = world
        return self._opened


@pytest.fixture(scope="module")
def renderer():
    return text_world.renderer()


@pytest.fixture
def engine(monkeypatch):
    monkeypatch.setitem(worlds._OURS, "cabinets", "tests.model.test_lookahead:CABINETS")
    return "cabinets"


@pytest.fixture(scope="module")
def learnt(renderer, tmp_path_factory):
    """A world model of random play, and its training's last figures."""
    settings = SftSettings(learning_rate=1e-2, batch_tokens=1000, seed=0, epochs=12)
    model = text_world.small_model(renderer)
    episodes = text_world.episodes(60, 4, skill=0.3)
    model, metrics = train_world_model(episodes, renderer, model, settings, tmp_path_factory.mktemp("world"))
    return Checkpoint(model.eval(), renderer.tokenizer, renderer, ""), metrics["curve"][-1]


def learnt_model(learnt, slots=64):
    return LearntModel(learnt[0], slots=slots, context=256, max_observation_tokens=16)


def samplers(renderer):
    policy = Checkpoint(text_world.small_model(renderer).eval(), renderer.tokenizer, renderer, "")
    how = {"context": 256, "temperature": 1.0, "max_action_tokens": 8}
    return (
        Sampler(policy, slots=4, constrained=True, **how),
        Sampler(policy, slots=4 * (1 + N), constrained=False, **how),
    )


def games(count=12):
    return [Game(f"game-{n:04d}", "cabinets", "", "", "", "") for n in range(500, 500 + count)]


def success(player, engine, begun):
    episodes = list(play(player, begun, world_name=engine, max_turns=4))
    return np.mean([episode.won for episode in episodes]), episodes


def test_roles_are_exchanged_and_the_tokens_stay(renderer, learnt):
    episode = text_world.play(3, 0, skill=0.3)
    world, ids = exchanged(renderer), []
    for t, turn in enumerate(episode.turns):
        if t:
            ids += world.action(turn.observation)
        said = turn.action if t else f"{turn.observation}<act>{turn.action}"
        ids += world.observation(said, t == 0)
    assert ids == renderer.episode(episode.turns).input_ids


def test_a_won_episode_ends_in_silence(renderer):
    won, lost = text_world.play(1, 0, skill=1.0), text_world.play(2, 0, skill=0.0, turns=2)
    assert with_end(won, renderer, 256).turns[-1].observation == ""
    assert with_end(won, renderer, 256).turns[:-1] == won.turns
    assert with_end(won, renderer, 8) is won
    assert with_end(lost, renderer, 256) is lost


def test_the_learnt_model_knows_what_the_world_says_of_new_games(renderer, learnt):
    episodes = text_world.episodes(20, skill=0.3, first_game=500)
    found = observation_accuracy(learnt_model(learnt), renderer, episodes)
    assert found["observations"] == sum(episode.length - 1 for episode in episodes)
    assert found["exact"] > 0.45  # all but where the object is, which takes longer training to read
    assert found["wins"] == sum(episode.won for episode in episodes) > 0
    assert found["wins_known"] > 0.8 > 0.1 > found["false_wins"]
    assert learnt[1]["observation_accuracy"] > 0.8
    assert "action_loss" not in learnt[1]


def test_the_engine_as_a_model_says_what_the_world_says(engine):
    (begun,) = starts(games(1), 1, 1)
    model = EngineModel({begun.seed: begun.game}, world_name=engine)
    target, place = text_world.task(500)
    seat = model.open(begun.seed)
    twin = model.fork(seat)
    (walked,) = model.imagine([(twin, f"go to cabinet {place}")])
    assert (walked.text, walked.won) == (f"You arrive at cabinet {place}. You see {target}.", False)
    assert model.imagine([(twin, f"take {target}"), (seat, f"take {target}")])[0].won
    assert not model.imagine([(seat, f"take {target}")])[0].won


@pytest.mark.parametrize("which", ["engine", "learnt"])
def test_looking_ahead_finds_what_a_scorer_of_states_cannot_choose(renderer, engine, learnt, which):
    begun = starts(games(), 1, 7)
    sampler, dreamer = samplers(renderer)
    blind, _ = success(Chooser(sampler, SeesTheTarget(), N), engine, begun)
    if which == "engine":
        model = EngineModel({start.seed: start.game for start in begun}, world_name=engine)
    else:
        model = learnt_model(learnt)
    player = Lookahead(sampler, dreamer, SeesTheTarget(), model, samples=N, depth=1, gamma=0.9)
    ahead, episodes = success(player, engine, begun)
    assert ahead > blind + (0.3 if which == "engine" else 0.1)
    assert player.played == sum(episode.length for episode in episodes)
    assert 0.5 < player.saved < 1
    assert all(episode.extra["cost"].policy_read > 0 for episode in episodes)
    assert not player._seats


def test_depth_0_is_best_of_n(renderer, engine, learnt):
    begun = starts(games(4), 1, 7)
    sampler, dreamer = samplers(renderer)
    _, plain = success(Chooser(sampler, SeesTheTarget(), N), engine, begun)
    player = Lookahead(sampler, dreamer, SeesTheTarget(), learnt_model(learnt), samples=N, depth=0, gamma=0.9)
    _, same = success(player, engine, begun)
    assert {e.game_id: e.turns for e in plain} == {e.game_id: e.turns for e in same}
    assert player.imagined == 0


def test_nothing_is_imagined_where_one_action_has_several_reasons(renderer, engine, monkeypatch):
    (start,), (sampler, dreamer) = starts(games(1), 1, 7), samplers(renderer)
    model = EngineModel({start.seed: start.game}, engine)
    player = Lookahead(sampler, dreamer, SeesTheTarget(), model, samples=N, depth=1, gamma=0.9)
    seat, first = player.open(start.seed), make_world(engine).reset(start.game)
    player.see(seat, first.text, first.admissible)
    same = (Decision("go to cabinet 1", "it is near", -1.0, 4), Decision("go to cabinet 1", "it is big", -1.0, 2))
    monkeypatch.setattr(sampler, "tick", lambda: [(seat, same)])
    assert player.tick() == [(seat, same)]
    assert player.imagined == 0


def test_what_cannot_look_ahead_is_refused(renderer):
    sampler, dreamer = samplers(renderer)
    with pytest.raises(ValueError, match="at least 1 sample and a depth of at least 0, not 0 and 1"):
        Lookahead(sampler, dreamer, SeesTheTarget(), None, samples=0, depth=1, gamma=1.0)
    with pytest.raises(ValueError, match="the dreamer must decode freely in 28 seats"):
        Lookahead(sampler, sampler, SeesTheTarget(), None, samples=N, depth=1, gamma=1.0)


def test_lookahead_is_a_way_of_playing(renderer, engine, learnt):
    policy = Checkpoint(text_world.small_model(renderer).eval(), renderer.tokenizer, renderer, "")
    prm = Checkpoint(new_prm(policy.model).eval(), renderer.tokenizer, renderer, "")
    settings = PlaySettings(engine, 4, 256, 8, constrained=True, slots=12, cache_mb=256)
    way = Search(decoding("lookahead_of_3x1"), settings, 1.0, gamma=0.9)
    episodes = play_games(policy, prm, games(5), way, 3, learnt[0])
    assert [episode.game_id for episode in episodes] == [game.id for game in games(5)]
    assert all(episode.extra["world_steps"] == episode.length for episode in episodes)
    assert all(episode.extra["cost"].prm_read > 0 for episode in episodes)
    assert len({episode.extra["saved"] for episode in episodes}) == 1 and episodes[0].extra["saved"] > 0.5
    assert episodes == play_games(policy, prm, games(5), way, 3, learnt[0])
    assert way.name == "lookahead_of_3x1"
    with pytest.raises(ValueError, match="lookahead needs a world model"):
        play_games(policy, prm, games(1), way, 3)
