"""One way of drawing, seen from its users: what is drawn is held as digests, since later work builds on the draws."""

import hashlib

import pytest

from agentprm_core.improve.proposals import Proposer
from agentprm_core.policy.sampler import Sampler
from agentprm_core.rollout import play, starts
from tests.model import toy

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
