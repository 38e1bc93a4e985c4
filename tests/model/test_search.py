"""Search plays what its scorer likes best, and costs no more than it must."""

import dataclasses
import math
import random

import pytest
import torch

from agentprm_core.errors import DataError
from agentprm_core.policy.models import Checkpoint
from agentprm_core.policy.sampler import Cost, Decision, Sampler
from agentprm_core.prm.model import new_prm
from agentprm_core.rollout import play, starts
from agentprm_core.search.beam import BeamSearch
from agentprm_core.search.best_of_n import Chooser, best_trajectories, judged, ranked
from agentprm_core.search.oracle import TrueQ
from agentprm_core.search.scorer import PrmScorer, action_tokens
from agentprm_core.types import Episode, Turn
from agentprm_core.worlds import world_spec
from tests.model import toy

GAMES = [toy.game(n) for n in range(6)]


def prm_of(likelihood: float) -> Checkpoint:
    policy = toy.policy(seed=1)
    model = new_prm(policy.model, likelihood)
    torch.manual_seed(0)
    with torch.no_grad():
        model.score.weight.normal_(std=0.5)
    return Checkpoint(model.eval(), policy.tokenizer, policy.renderer, "prm")


@pytest.fixture(scope="module")
def prm():
    return prm_of(0.0)


def sampler(**changes):
    settings = {"slots": 8, "context": 512, "temperature": 2.0, "constrained": True, "max_action_tokens": 8}
    return Sampler(toy.policy(), **{**settings, **changes})


def scorer(prm, slots=8):
    return PrmScorer(prm, slots=slots, context=512, max_action_tokens=8)


def plain_score(prm, turns):
    rendered = prm.renderer.episode(turns)
    first, end = rendered.action_starts[-1], rendered.action_ends[-1]
    ids = torch.tensor([rendered.input_ids])
    out = prm.model(ids, output_hidden_states=True)
    spoken = (out.hidden_states[-1] @ prm.model.get_input_embeddings().weight.T).log_softmax(-1)[0, first - 1 : end]
    likelihood = spoken.gather(1, ids[0, first : end + 1, None]).sum()
    return (out.logits[0, end, 0] + prm.model.config.likelihood * likelihood).sigmoid().item()


def with_action(turn, action):
    return Turn(turn.observation, action, turn.admissible, True, turn.state_key)


def played(player, engine, games=GAMES, seed=4, max_turns=8):
    begun = starts(games, 1, seed)
    return sorted(play(player, begun, world_name=engine, max_turns=max_turns), key=lambda e: e.game_id)


@pytest.mark.parametrize("likelihood", [0.0, 0.7])
def test_scores_are_those_of_the_plain_prm(toy_engine, likelihood):
    prm = prm_of(likelihood)
    scoring = scorer(prm)
    episodes = played(sampler(), toy_engine)
    seats = [scoring.open(e.seed) for e in episodes]
    for t in range(4):
        asked = []
        for seat, episode in zip(seats, episodes):
            if t < episode.length:
                turn = episode.turns[t]
                scoring.see(seat, turn.observation, turn.admissible)
                asked.append((seat, episode, [Decision(c, "", 0.0) for c in turn.admissible]))
        for given, (_, episode, candidates) in zip(scoring.score([(s, c) for s, _, c in asked]), asked):
            turns = episode.turns
            plain = [plain_score(prm, [*turns[:t], with_action(turns[t], c.action)]) for c in candidates]
            assert given == pytest.approx(plain, abs=1e-4)
        for seat, episode, _ in asked:
            scoring.tell(seat, episode.turns[t].action)


@pytest.mark.parametrize("likelihood", [0.0, 0.7])
def test_more_candidates_than_there_is_room_for_are_scored_in_rounds(likelihood):
    prm = prm_of(likelihood)
    scoring = scorer(prm)
    seat = scoring.open(0)
    scoring.see(seat, "You see a cabinet 1.", ("look",))
    commands = ["look", "inventory", *(f"go to cabinet {n}" for n in range(1, 6))] * 20
    scores = scoring.score([(seat, [Decision(c, "", 0.0) for c in commands])])[0]
    assert scores[7:] == pytest.approx(scores[:-7], abs=1e-5)
    turn = Turn("You see a cabinet 1.", "go to cabinet 5", ("look",), True, "")
    assert scores[-1] == pytest.approx(plain_score(prm, [turn]), abs=1e-4)


@pytest.mark.parametrize("likelihood", [0.0, 0.7])
def test_a_candidate_that_outgrows_the_context_is_scored_by_what_fits(likelihood):
    prm = prm_of(likelihood)
    written = Turn("You see a cabinet 1.", "go to cabinet 1", ("look",), True, "")
    context = len(prm.renderer.episode([written]).input_ids)
    scoring = PrmScorer(prm, slots=2, context=context, max_action_tokens=1)
    seat = scoring.open(0)
    assert scoring.see(seat, written.observation, written.admissible)
    begun = action_tokens(prm.renderer, written.action, "")[:-1]  # all but what ends an action
    longer = Decision(" ".join([written.action] * 20), "", 0.0)
    assert action_tokens(prm.renderer, longer.action, "")[: len(begun)] == begun
    scores = scoring.score([(seat, [longer, Decision(written.action, "", 0.0)])])[0]
    assert scores[1] == pytest.approx(plain_score(prm, [written]), abs=1e-4)
    assert 0 < scores[0] < 1 and scores[0] != pytest.approx(scores[1], abs=1e-6)


def test_best_of_n_plays_the_best_of_its_samples(toy_engine, prm):
    for episode in played(Chooser(sampler(), scorer(prm), 6), toy_engine):
        again = sampler(slots=1)
        seat = again.open(episode.seed)
        for t, turn in enumerate(episode.turns):
            again.see(seat, turn.observation, turn.admissible)
            again.ask(seat, 6)
            while not (done := again.tick()):
                pass
            candidates = [d.action for d in done[0][1]]
            scores = [plain_score(prm, [*episode.turns[:t], with_action(turn, c)]) for c in candidates]
            assert turn.action == candidates[scores.index(max(scores))]
            again.tell(seat, turn.action)


def test_with_a_large_prior_the_commonest_sample_is_played(toy_engine, prm):
    def common(prior):
        episodes = played(Chooser(Fixed(), scorer(prm), 1, prior), toy_engine, max_turns=4)
        return [Fixed.count(t.action) == max(map(Fixed.count, t.admissible)) for e in episodes for t in e.turns]

    assert all(common(1e3)) and not all(common(0.0))


def test_best_of_one_is_sampling(toy_engine, prm):
    assert played(Chooser(sampler(), scorer(prm), 1), toy_engine) == played(sampler(), toy_engine)


@pytest.mark.parametrize("constrained", [True, False])
def test_best_of_n_is_the_same_in_any_batch(toy_engine, prm, constrained):
    runs = [
        played(Chooser(sampler(slots=slots, constrained=constrained), scorer(prm), 3), toy_engine, max_turns=4)
        for slots in (1, 5)
    ]
    assert runs[0] == runs[1]


def test_the_cost_counts_both_models(toy_engine, prm):
    player, scoring = sampler(), scorer(prm)
    episodes = played(Chooser(player, scoring, 4), toy_engine)
    costs = [e.extra["cost"] for e in episodes]
    assert sum(c.policy_read for c in costs) == player.tokens_read
    assert sum(c.prm_read for c in costs) == scoring.tokens_read
    for episode, cost in zip(episodes, costs):
        shortest = min(len(toy.policy().renderer.action(c)) for t in episode.turns for c in t.admissible)
        assert cost.generated >= 4 * episode.length * shortest


def test_best_trajectories_are_those_that_end_best():
    def episode(game, index):
        return Episode(game, index, 0, (), False)

    episodes = [episode("b", 0), episode("a", 0), episode("a", 1), episode("a", 2), episode("b", 1)]
    best = best_trajectories(episodes, [0.3, 0.1, 0.9, 0.9, 0.2])
    assert [(e.game_id, e.index) for e in best] == [("a", 1), ("b", 0)]


def test_the_true_q_of_an_action_is_what_playing_on_from_it_gives(toy_engine):
    begun = starts(GAMES, 1, seed=4)
    oracle = TrueQ(
        sampler(temperature=0.0),
        {s.seed: s.game for s in begun},
        plays=2,
        gamma=0.9,
        world_name=toy_engine,
        max_turns=6,
    )
    asked = []
    for start in begun:
        seen = toy.ToyWorld().reset(start.game)
        asked.append((oracle.open(start.seed), [Decision(c, "", 0.0) for c in seen.admissible]))
    for start, (_, candidates), scores in zip(begun, asked, oracle.score(asked)):
        for candidate, score in zip(candidates, scores):
            world = toy.ToyWorld()
            turns = [(world.reset(start.game), candidate.action)]
            player = sampler(temperature=0.0, slots=1)
            seat = player.open(0)
            while True:  # the greedy policy, by hand
                seen, action = turns[-1]
                player.see(seat, seen.text, seen.admissible)
                player.tell(seat, action)
                after = world.step(action)
                if after.done or len(turns) == 6:
                    break
                player.see(seat, after.text, after.admissible)
                player.ask(seat)
                while not (done := player.tick()):
                    pass
                turns.append((after, done[0][1][0].action))
                player.close(seat)
                seat = player.open(0)
                for seen, action in turns[:-1]:
                    player.see(seat, seen.text, seen.admissible)
                    player.tell(seat, action)
            assert score == pytest.approx(after.done * 0.9 ** (len(turns) - 1))


def test_the_true_q_lifts_best_of_n(toy_engine):
    games = [toy.game(n) for n in range(20)]
    begun = starts(games, 1, seed=4)
    oracle = TrueQ(
        sampler(slots=32),
        {s.seed: s.game for s in begun},
        plays=4,
        gamma=0.95,
        world_name=toy_engine,
        max_turns=6,
    )
    plain = played(sampler(slots=20), toy_engine, games, max_turns=6)
    best = played(Chooser(sampler(slots=20), oracle, 4), toy_engine, games, max_turns=6)
    assert sum(e.won for e in best) > sum(e.won for e in plain)


def searched(prm, engine, width, samples, slots=8, max_turns=6, back=False, **changes):
    beam = BeamSearch(sampler(slots=slots, **changes), scorer(prm, slots), width=width, samples=samples, back=back)
    return sorted(beam.search(starts(GAMES, 1, 4), world_name=engine, max_turns=max_turns), key=lambda e: e.game_id)


def test_a_beam_of_one_by_one_is_sampling(toy_engine, prm):
    for a, b in zip(searched(prm, toy_engine, 1, 1), played(sampler(), toy_engine, max_turns=6)):
        assert (a.turns, a.won, a.seed) == (b.turns, b.won, b.seed)


def test_a_beam_is_the_same_whatever_is_searched_beside_it(toy_engine, prm):
    runs = [searched(prm, toy_engine, 3, 2, slots=slots) for slots in (3, 7, 18)]
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize("width", [1, 3])
def test_a_beam_finds_what_a_plain_search_finds(toy_engine, prm, width):
    """With so many samples that every admissible command is among them, by hand and without caches."""
    found = searched(prm, toy_engine, width, 3000 // width, temperature=8.0, max_turns=4)
    for game, episode in zip(GAMES, found):
        turns = plain_beam(prm, game, width, max_turns=4)
        assert [t.action for t in episode.turns] == [t.action for t in turns]
        assert episode.extra["score"] == pytest.approx(plain_score(prm, turns), abs=1e-4)


@pytest.mark.parametrize("width", [1, 3])
def test_a_beam_with_a_prior_finds_what_a_plain_search_finds(toy_engine, prm, width):
    """Kept by score and the last step's likelihood; the score that is reported is the PRM's."""
    beam, differ = BeamSearch(Fixed(), scorer(prm), width=width, samples=1, prior=0.05), 0
    for start in starts(GAMES, 1, 4):
        (episode,) = beam.search([start], world_name=toy_engine, max_turns=4)
        turns = plain_beam(prm, start.game, width, max_turns=4, prior=0.05)
        assert [t.action for t in episode.turns] == [t.action for t in turns]
        assert episode.extra["score"] == pytest.approx(plain_score(prm, turns), abs=1e-4)
        differ += turns != plain_beam(prm, start.game, width, max_turns=4)
    assert differ


def test_a_beam_with_the_prior_of_whole_paths_finds_what_a_plain_search_finds(toy_engine, prm):
    beam, differ = BeamSearch(Fixed(), scorer(prm), width=3, samples=1, prior=0.05, path=True), 0
    for start in starts(GAMES, 1, 4):
        (episode,) = beam.search([start], world_name=toy_engine, max_turns=4)
        turns = plain_beam(prm, start.game, 3, max_turns=4, prior=0.05, path=True)
        assert [t.action for t in episode.turns] == [t.action for t in turns]
        assert episode.extra["score"] == pytest.approx(plain_score(prm, turns), abs=1e-4)
        differ += turns != plain_beam(prm, start.game, 3, max_turns=4, prior=0.05)
    assert differ


def test_of_one_path_the_prior_of_all_steps_is_that_of_the_last(toy_engine, prm):
    """Its earlier steps are the same for all that is compared."""
    step, path = (
        BeamSearch(sampler(), scorer(prm), width=1, samples=6, prior=0.1, path=path) for path in (False, True)
    )
    found = [
        [e.turns for e in beam.search(starts(GAMES, 1, 4), world_name=toy_engine, max_turns=6)] for beam in (step, path)
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("prior", [0.0, 0.1, 1e3])
def test_a_beam_of_width_1_is_best_of_n_that_does_not_go_back(toy_engine, prm, prior):
    """The two part where Best-of-N's choice leads to a state that the path has been in, and nowhere before."""
    beam = BeamSearch(sampler(), scorer(prm), width=1, samples=6, prior=prior)
    found = sorted(beam.search(starts(GAMES, 1, 4), world_name=toy_engine, max_turns=6), key=lambda e: e.game_id)
    best = played(Chooser(sampler(), scorer(prm), 6, prior=prior), toy_engine, max_turns=6)
    shared = []
    for game, ours, theirs in zip(GAMES, found, best, strict=True):
        same = next((t for t, (a, b) in enumerate(zip(ours.turns, theirs.turns)) if a != b), None)
        if same is None:
            assert ours.length == theirs.length
            continue
        shared.append(same)
        states = states_of(game, theirs)
        assert states[same + 1] in states[: same + 1]
    assert shared and (prior or max(shared) > 1)  # a large prior looks around at once, which leads nowhere


def states_of(game, episode):
    """The keys of an episode's states, the last one's included."""
    world = toy.ToyWorld()
    world.reset(game)
    return [world.state_key(), *((world.step(turn.action), world.state_key())[1] for turn in episode.turns)]


@pytest.mark.parametrize("width", [1, 3])
def test_a_path_goes_back_only_where_all_samples_do(toy_engine, prm, width):
    """Of all commands one leads on at every state of these worlds; of one sample none may."""
    for game, episode in zip(GAMES, searched(prm, toy_engine, width, 3000 // width, temperature=8.0)):
        states = states_of(game, episode)
        assert len(set(states)) == len(states)
    alone = searched(prm, toy_engine, 1, 1)
    assert any(len(set(states_of(game, e))) <= e.length for game, e in zip(GAMES, alone))


def test_paths_may_go_back_in_a_world_whose_refusals_tell(toy_engine, prm, monkeypatch):
    asked = searched(prm, toy_engine, 2, 2, back=True)
    assert searched(prm, toy_engine, 2, 2) != asked
    telling = dataclasses.replace(world_spec(toy_engine), refusals_tell=True)
    monkeypatch.setattr("agentprm_core.search.beam.world_spec", lambda name: telling)
    assert searched(prm, toy_engine, 2, 2) == asked


@pytest.mark.parametrize("seed", range(50))
def test_without_a_prior_the_score_decides_and_with_a_large_one_the_samples(seed):
    rng = random.Random(seed)
    candidates = [Decision(f"go to cabinet {n}", "", 0.0, rng.randint(1, 4)) for n in range(6)]
    scores = [rng.randint(0, 3) / 3 for _ in candidates]
    by_score = sorted(zip(scores, candidates), key=lambda pair: (-pair[0], -pair[1].count))
    by_count = sorted(zip(scores, candidates), key=lambda pair: (-pair[1].count, -pair[0]))
    assert ranked(candidates, scores) == ranked(candidates, scores, 0.0) == tuple(c for _, c in by_score)
    assert ranked(candidates, scores, 1e6) == tuple(c for _, c in by_count)


def test_a_prior_weighs_the_score_against_the_share_of_the_samples():
    often, rare = Decision("open cabinet 1", "", 0.0, 12), Decision("look", "", 0.0, 4)
    even = 0.2 / math.log(3)
    assert judged([often, rare], [0.5, 0.7], 0.1) == pytest.approx(
        [0.5 + 0.1 * math.log(0.75), 0.7 + 0.1 * math.log(0.25)]
    )
    assert ranked([often, rare], [0.5, 0.7], 0.99 * even) == (rare, often)
    assert ranked([often, rare], [0.5, 0.7], 1.01 * even) == (often, rare)
    reasoned = [Decision("look", reason, 0.0, 1) for reason in ("a", "b", "c")]
    assert ranked([*reasoned, Decision("inventory", "", 0.0, 2)], [0.1, 0.1, 0.1, 0.1], 0.1)[:3] == tuple(reasoned)


def plain_beam(prm, game, width, max_turns, prior=0.0, path=False):
    world = toy.ToyWorld()
    nodes = [(0.0, [], world, world.reset(game), False)]
    while not nodes[0][4]:
        children = []
        for _, turns, world, seen, ended in nodes:
            for action in seen.admissible if not ended else ():
                turn = Turn(seen.text, action, seen.admissible, True, world.state_key())
                counted = [*turns, turn] if path else [turn]
                shares = [Fixed.count(t.action) / sum(map(Fixed.count, t.admissible)) for t in counted]
                worth = plain_score(prm, [*turns, turn]) + prior * sum(map(math.log, shares))
                children.append((worth, [*turns, turn], world, action))
        kept, reached = [], set()
        for worth, turns, world, action in sorted(children, key=lambda c: -c[0]):
            after = world.clone()
            seen = after.step(action)
            if after.state_key() in {world.state_key(), *(turn.state_key for turn in turns)}:
                continue
            if after.state_key() not in reached and len(kept) < width:
                reached.add(after.state_key())
                kept.append((worth, turns, after, seen, seen.done or len(turns) == max_turns))
        nodes = sorted([n for n in nodes if n[4]] + kept, key=lambda n: -n[0])[:width]
    return nodes[0][1]


class Fixed:
    """In a sampler's place: every admissible command at every state, each as often as its name says."""

    seats = 8

    def __init__(self):
        self._admissible, self._asked = {}, []

    def open(self, seed):
        return self.fork(None, seed)

    def fork(self, seat, seed):
        new = len(self._admissible)
        self._admissible[new] = self._admissible.get(seat, ())
        return new

    def see(self, seat, observation, admissible):
        self._admissible[seat] = admissible
        return True

    def ask(self, seat, samples):
        self._asked.append(seat)

    def tell(self, seat, action, reason):
        pass

    def tick(self):
        done, self._asked = self._asked, []
        return [(s, tuple(Decision(a, "", 0.0, self.count(a)) for a in self._admissible[s])) for s in done]

    def close(self, seat):
        return Cost()

    @staticmethod
    def count(action):
        return 1 + sum(action.encode()) % 7


def test_beams_leave_their_seats(toy_engine, prm):
    player, scoring = sampler(slots=6), scorer(prm, 6)
    beam = BeamSearch(player, scoring, width=3, samples=2)
    for _ in range(3):
        next(beam.search(starts(GAMES, 1, 4), world_name=toy_engine, max_turns=5))
    episodes = list(beam.search(starts(GAMES, 1, 4), world_name=toy_engine, max_turns=5))
    assert sum(e.extra["cost"].policy_read for e in episodes) <= player.tokens_read
    assert [player.open(n) for n in range(6)]


def test_an_action_is_done_once_in_a_state_and_what_it_leads_to_hashed_once(toy_engine, prm, monkeypatch):
    hashed, state_key = [], toy.ToyWorld.state_key
    done, step = [], toy.ToyWorld.step
    monkeypatch.setattr(toy.ToyWorld, "state_key", lambda world: hashed.append(world) or state_key(world))
    monkeypatch.setattr(
        toy.ToyWorld, "step", lambda world, action: done.append((state_key(world), action)) or step(world, action)
    )
    episodes = searched(prm, toy_engine, 3, 2)
    assert len(done) == len(set(done)) < sum(episode.extra["world_steps"] for episode in episodes)
    asked_of_clones = 4  # once a game: two places, and a clone of each
    assert len(hashed) == len(episodes) * (1 + asked_of_clones) + len(done)


def test_widths_out_of_range_are_refused(prm):
    with pytest.raises(ValueError, match="beam search of width 9 needs that many seats, the sampler has 8"):
        BeamSearch(sampler(), scorer(prm), width=9, samples=1)
    with pytest.raises(ValueError, match="at least 1 × 1, not 0 × 4"):
        BeamSearch(sampler(), scorer(prm), width=0, samples=4)
    with pytest.raises(ValueError, match="at least one sample, not 0"):
        Chooser(sampler(), scorer(prm), 0)


def test_a_world_that_cannot_be_cloned_is_refused_by_name_and_best_of_n_plays_it(toy_engine, prm, monkeypatch):
    monkeypatch.setattr(toy, "TOY", dataclasses.replace(toy.TOY, clones=False))
    monkeypatch.delattr(toy.ToyWorld, "clone")
    said = "env.world: toy cannot be cloned, which beam search needs; Best-of-N by turn needs no clones"
    with pytest.raises(DataError, match=said):
        searched(prm, toy_engine, 2, 2)
    assert len(played(Chooser(sampler(), scorer(prm), 2), toy_engine, GAMES, max_turns=3)) == len(GAMES)
