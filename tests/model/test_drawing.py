"""One way of drawing, seen from its users: what is drawn is held as digests, since later work builds on the draws."""

import hashlib

import pytest

from agentprm_core import worlds
from agentprm_core.improve.proposals import Proposer
from agentprm_core.policy.models import Checkpoint, new_model
from agentprm_core.policy.prompt import make_renderer
from agentprm_core.policy.sampler import Sampler
from agentprm_core.policy.tokenizer import train_tokenizer
from agentprm_core.rollout import play, starts
from agentprm_core.types import Game
from agentprm_core.worlds import Observation, WorldSpec
from agentprm_core.worlds.base import admits
from tests.model import toy

WORDS = ("red", "mug", "big", "cup", "hello", "you")


class OpenWorld:
    """Listed commands and templates at even turns, any text at odd ones."""

    def reset(self, game):
        self.turns = 0
        return self._look()

    def step(self, command):
        self.turns += 1
        return self._look()

    def state_key(self):
        return str(self.turns)

    def _look(self):
        listed = ("look", "say …", "search[…]", "get … big cup") if self.turns % 2 == 0 else ()
        return Observation(f"you see {WORDS[self.turns % 6]} cup.", listed)


OPEN_WORLD = WorldSpec(
    "open", OpenWorld, lambda count, seed, split: [], ("say",), "You talk.", phrases=("search[", "]")
)


def talker():
    texts = ["you see red mug, big cup. hello", "look", "say hello", "search[red mug]", "get big cup"]
    tokenizer = train_tokenizer(texts, 256, OPEN_WORLD.phrases)
    model = new_model(tokenizer, width=32, layers=2, heads=4, kv_heads=2, context=256, seed=0)
    return Checkpoint(model.eval(), tokenizer, make_renderer(tokenizer), "talker")


GAMES = [toy.game(number) for number in range(12)]
PLAYED = {
    (True, 1.0): "66bda197e2c925f6",
    (False, 1.0): "8e7a1bd29c194306",
    (True, 0.0): "84cabc254dfe7607",
    (False, 0.0): "d9c73dcea15a34ac",
}
"""(constrained, temperature) → digest of all actions of toy rollouts."""
SAMPLED = {True: "c02ac52b652abd36", False: "1facf5bd6a573541"}
PROPOSED = {True: "f5e6c95ed880227e", False: "cb19f34cc64fd2e0"}


def digest(said: object) -> str:
    return hashlib.blake2b(repr(said).encode(), digest_size=8).hexdigest()


def sampler(constrained=True, temperature=1.0):
    settings = {"slots": 8, "context": 512, "max_action_tokens": 8}
    return Sampler(toy.policy(), constrained=constrained, temperature=temperature, **settings)


def rollouts(engine, constrained=True, temperature=1.0):
    episodes = play(sampler(constrained, temperature), starts(GAMES, 2, 3), world_name=engine, max_turns=12)
    return sorted(episodes, key=lambda episode: (episode.game_id, episode.index))


@pytest.mark.parametrize(("constrained", "temperature"), PLAYED)
def test_rollouts_are_the_episodes_they_were(toy_engine, constrained, temperature):
    episodes = rollouts(toy_engine, constrained, temperature)
    said = [[turn.action for turn in episode.turns] for episode in episodes]
    assert digest(said) == PLAYED[constrained, temperature]


@pytest.mark.parametrize("constrained", [True, False])
def test_many_samples_of_a_state_are_what_they_were(constrained):
    player, found = sampler(constrained), []
    for game in GAMES:
        seen, seat = toy.ToyWorld().reset(game), player.open(seed=5)
        player.see(seat, seen.text, seen.admissible)
        player.ask(seat, 30)
        while seat not in (done := dict(player.tick())):
            pass
        found.append(sorted((decision.action, decision.count) for decision in done[seat]))
        player.close(seat)
    assert digest(found) == SAMPLED[constrained]


@pytest.mark.parametrize("constrained", [True, False])
def test_proposals_are_what_they_were(toy_engine, constrained):
    episodes = rollouts(toy_engine)
    how = {"temperature": 1.0, "max_action_tokens": 8, "batch_tokens": 600}
    drawn = Proposer(toy.policy(), constrained=constrained, **how).propose(episodes, 3, [(9, i) for i in range(24)])
    assert digest([[[p.tokens for p in turn] for turn in of] for of in drawn]) == PROPOSED[constrained]


@pytest.fixture
def open_world(monkeypatch):
    worlds.world_spec.cache_clear()
    monkeypatch.setitem(worlds._OURS, "open", "tests.model.test_drawing:OPEN_WORLD")
    yield "open"
    worlds.world_spec.cache_clear()


def talks(engine, slots=4):
    player = Sampler(talker(), slots=slots, context=256, temperature=1.5, constrained=True, max_action_tokens=5)
    games = [Game(f"open/{number}", "open", "train", "say", "talk", "") for number in range(8)]
    episodes = play(player, starts(games, 2, 1), world_name=engine, max_turns=6)
    return sorted(episodes, key=lambda episode: (episode.game_id, episode.index))


def test_templates_and_worlds_of_any_text_are_played(open_world):
    episodes = talks(open_world)
    turns = [turn for episode in episodes for turn in episode.turns]
    assert len(turns) == 16 * 6
    assert all(turn.valid == (turn.action != "") for turn in turns), "saying nothing means nothing"
    by_template = [turn.action for turn in turns if turn.admissible]
    for begin, end in (("look", "look"), ("say ", ""), ("search[", "]"), ("get ", " big cup")):
        alike = [action for action in by_template if action.startswith(begin)]
        assert alike and all(action.endswith(end) for action in alike), begin
    assert not any(mark in action for action in by_template for mark in ("<", "…"))
    assert {turn.action for turn in turns if not turn.admissible} - set(by_template), "any text"
    assert talks(open_world, slots=1) == episodes, "whatever is decoded beside it"


def test_what_was_said_by_a_template_is_spelt_as_it_was_drawn():
    policy = talker()
    unknown = policy.tokenizer.unk_token_id
    assert unknown not in policy.renderer.action("search[red mug]")
    assert policy.tokenizer.convert_ids_to_tokens(policy.renderer.action_text("search[red mug]")) == [
        "search[",
        "red",
        "mug",
        "]",
    ]


def test_proposals_fill_templates(open_world):
    episodes, policy = talks(open_world), talker()
    proposer = Proposer(policy, temperature=1.5, constrained=True, max_action_tokens=5, batch_tokens=500)
    drawn = proposer.propose(episodes, 3, [(number,) for number in range(16)])
    for episode, of_episode in zip(episodes, drawn):
        for turn, proposals in zip(episode.turns, of_episode):
            assert all(admits(turn.admissible, said.action) == (said.action != "") for said in proposals)
            for proposal in proposals if turn.admissible else ():
                assert proposal.tokens[-1] == policy.renderer.stop_token and proposal.ended
                assert policy.renderer.action(proposal.action) == proposal.tokens
