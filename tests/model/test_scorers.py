"""Who may choose in a search: each scorer against plain code, and what its choices depend on."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from agentprm_core.errors import DataError
from agentprm_core.policy.models import Checkpoint
from agentprm_core.policy.sampler import Decision, Sampler
from agentprm_core.prm.model import new_prm
from agentprm_core.rollout import Start, play, starts
from agentprm_core.search.beam import BeamSearch
from agentprm_core.search.best_of_n import Chooser
from agentprm_core.search.controls import Constant, Random
from agentprm_core.search.decoding_config import SCORERS, decoding
from agentprm_core.search.playing import PlaySettings, Search, play_games
from agentprm_core.search.scorers import KAPPA, MAKERS, Materials, scorer_of
from agentprm_core.seeding import episode_seed
from agentprm_core.types import Turn
from tests.chat import letter_policy
from tests.model import toy

GAMES = [toy.game(n) for n in range(6)]
POLICY = toy.policy()
OBSERVED = "You see a cabinet 1, a cabinet 2.\n\nYour task is to: take mug 1."
COMMANDS = ("go to cabinet 1", "go to cabinet 2", "inventory", "look")


@pytest.fixture(scope="module")
def prm():
    model = new_prm(toy.policy(seed=1).model, 0.7)
    torch.manual_seed(0)
    with torch.no_grad():
        model.score.weight.normal_(std=0.5)
    return Checkpoint(model.eval(), POLICY.tokenizer, POLICY.renderer, "prm")


def materials(prm, **changes) -> Materials:
    made = Materials(
        POLICY, prm, seats=8, context=512, max_action_tokens=8, starts=starts(GAMES, 1, 4),
        second=lambda: sampler(temperature=1.0), plays=2, gamma=0.9, world="toy", max_turns=6,
    )  # fmt: skip
    return replace(made, **changes)


def sampler(**changes) -> Sampler:
    settings = {"slots": 8, "context": 512, "temperature": 2.0, "constrained": True, "max_action_tokens": 8}
    return Sampler(POLICY, **{**settings, **changes})


def scores(name: str, prm) -> list[float]:
    """Of COMMANDS after a look around."""
    scorer = scorer_of(name, materials(prm))
    seat = scorer.open(3)
    scorer.see(seat, OBSERVED, COMMANDS)
    scorer.tell(seat, "look")
    scorer.see(seat, "You see nothing.", COMMANDS)
    (found,) = scorer.score([(seat, [Decision(command, "", 0.0) for command in COMMANDS])])
    return found


def plain_terms(model: Checkpoint) -> list[tuple[float, float]]:
    """(w·h, log π) of each of COMMANDS at that state, by transformers on the whole text; w·h of a policy is 0."""
    found = []
    for command in COMMANDS:
        turns = [Turn(OBSERVED, "look", COMMANDS, True, ""), Turn("You see nothing.", command, COMMANDS, True, "")]
        rendered = model.renderer.episode(turns)
        first, end = rendered.action_starts[-1], rendered.action_ends[-1]
        ids = torch.tensor([rendered.input_ids])
        with torch.no_grad():
            out = model.model(ids, output_hidden_states=True)
            logits = out.hidden_states[-1] @ model.model.get_input_embeddings().weight.T
        spoken = logits.log_softmax(-1)[0, first - 1 : end].gather(1, ids[0, first : end + 1, None]).sum()
        head = out.logits[0, end, 0].item() if hasattr(model.model, "score") else 0.0
        found.append((head, spoken.item()))
    return found


def test_every_name_has_its_scorer():
    assert tuple(MAKERS) == SCORERS


@pytest.mark.parametrize(
    ("name", "logit"),
    [
        ("prm", lambda head, trained, untrained: head + 0.7 * trained),
        ("head", lambda head, trained, untrained: head),
        ("trained_likelihood", lambda head, trained, untrained: 0.7 * trained),
        ("untrained_likelihood", lambda head, trained, untrained: 0.7 * untrained),
        ("implicit", lambda head, trained, untrained: 0.7 * (trained - untrained)),
        ("constant", lambda head, trained, untrained: 0.0),
    ],
)
def test_a_score_is_the_sigmoid_of_its_parts(prm, name, logit):
    parts = [(*of_prm, alone) for of_prm, (_, alone) in zip(plain_terms(prm), plain_terms(POLICY))]
    expected = torch.tensor([logit(*part) for part in parts]).sigmoid().tolist()
    assert scores(name, prm) == pytest.approx(expected, abs=1e-4)


def test_untrained_likelihood_is_the_untrained_prm(prm):
    untrained = Checkpoint(new_prm(POLICY.model, 0.7).eval(), POLICY.tokenizer, POLICY.renderer, "")
    assert scores("untrained_likelihood", prm) == pytest.approx(scores("prm", untrained), abs=1e-6)


def test_a_likelihood_beside_a_prm_that_has_none_is_weighed_as_by_default(prm):
    without = Checkpoint(new_prm(POLICY.model, 0.0).eval(), POLICY.tokenizer, POLICY.renderer, "")
    with_default = Checkpoint(new_prm(POLICY.model, KAPPA).eval(), POLICY.tokenizer, POLICY.renderer, "")
    for name in ("untrained_likelihood", "trained_likelihood"):
        assert scores(name, without) == pytest.approx(scores("prm", with_default), abs=1e-6)
        assert len(set(scores(name, without))) == len(COMMANDS)
    assert scores("untrained_likelihood", None) == scores("untrained_likelihood", without)


def test_the_true_q_is_what_plays_return(toy_engine):
    """Against plays one by one, from the seeds that the scorer gives them."""
    begun = starts(GAMES, 1, 4)
    scorer = scorer_of("true_q", materials(None))
    for start in begun:
        actions = toy.ToyWorld().reset(start.game).admissible
        (found,) = scorer.score([(scorer.open(start.seed), [Decision(action, "", 0.0) for action in actions])])
        for action, score in zip(actions, found, strict=True):
            returns = []
            for k in range(2):
                one = Start(start.game, 0, episode_seed(start.seed, 0, action, k), (), action)
                (episode,) = play(sampler(slots=1, temperature=1.0), [one], world_name=toy_engine, max_turns=6)
                returns.append(episode.reward * 0.9 ** (episode.length - 1))
            assert score == pytest.approx(sum(returns) / 2)


@pytest.mark.parametrize("forked", [False, True])
def test_plays_of_the_true_q_go_on_from_what_a_chat_policy_has_said(forked, toy_engine):
    """Reasons are read again, so what is done after them is another thing than without them."""
    chat, told, why = letter_policy(), ("look", "inventory"), ("It is dark.", "What have I got?")
    read, first = [], Decision("go to cabinet 1", "The mug may be there.", 0.0)

    def player() -> Sampler:
        room = {"slots": 4, "context": 8192, "max_action_tokens": 64}
        return Sampler(chat, temperature=1.0, constrained=True, **room)

    def recorded() -> Sampler:
        made = player()
        tell = made.tell
        made.tell = lambda seat, action, reason="": read.append((action, reason)) or tell(seat, action, reason)
        return made

    scorer = scorer_of("true_q", materials(None, policy=chat, second=recorded, plays=4, max_turns=8))
    values = {}
    for reasons in (why, ("", "")):
        values[reasons] = []
        for start in starts(GAMES, 1, 4):
            seat = scorer.open(start.seed)
            for action, reason in zip(told, reasons, strict=True):
                scorer.tell(seat, action, reason)
            (found,) = scorer.score([(scorer.fork(seat) if forked else seat, [first])])
            returns = []
            for k in range(4):
                seed = episode_seed(start.seed, 2, first.action, k)
                one = Start(start.game, 0, seed, told, first.action, (*reasons, first.reason))
                (episode,) = play(player(), [one], world_name=toy_engine, max_turns=8)
                assert [turn.reason for turn in episode.turns[:3]] == [*reasons, first.reason]
                returns.append(episode.reward * 0.9 ** (episode.length - 1 - episode.start))
            assert found == [pytest.approx(sum(returns) / 4)]
            values[reasons] += found
    assert values[why] != values["", ""]
    assert {*zip(told, why, strict=True), (first.action, first.reason)} <= set(read)


def test_scorers_that_read_the_prm_say_so_where_there_is_none():
    for name in ("prm", "head", "trained_likelihood", "implicit"):
        with pytest.raises(ValueError, match="needs a PRM"):
            scorer_of(name, materials(None))


def test_a_likelihood_that_a_prm_cannot_give_is_refused(prm):
    untied = SimpleNamespace(config=SimpleNamespace(tie_word_embeddings=False, likelihood=0.0))
    for name in ("trained_likelihood", "implicit"):
        with pytest.raises(DataError, match="this PRM is another: leave out trained_likelihood and implicit"):
            scorer_of(name, materials(replace(prm, model=untied)))


def test_random_scores_depend_on_the_episode_and_what_was_done_alone():
    def of(scorer, seat, *actions):
        return scorer.score([(seat, [Decision(action, "", 0.0) for action in actions])])[0]

    one, other = Random(), Random()
    seat = one.open(5)
    busy = [other.open(n) for n in (9, 5, 7)]
    first = of(one, seat, "look", "inventory")
    assert of(other, busy[0], "inventory") != first[1:]
    assert of(other, busy[1], "go to cabinet 1", "inventory", "look")[:0:-1] == first
    twin = one.fork(seat)
    assert of(one, twin, "look") == first[:1]
    one.tell(seat, "look")
    assert of(one, seat, "look") != first[:1] == of(one, twin, "look")
    for scorer, seats in ((one, (seat, twin)), (other, busy)):
        assert [scorer.close(n) for n in seats] == [0] * len(seats)


def test_random_scores_are_uniform():
    scorer = Random()
    drawn = [scorer.score([(scorer.open(n), [Decision("look", "", 0.0)])])[0][0] for n in range(2000)]
    tenths = Counter(int(10 * score) for score in drawn)
    assert sorted(tenths) == list(range(10))
    assert sum((count - 200) ** 2 / 200 for count in tenths.values()) < 27.9  # chi², 9 degrees, p = 0.001


@pytest.mark.parametrize("name", ["best_of_6_by_random", "beam_2x3_by_random", "beam_1x6_back_by_random"])
def test_chance_chooses_the_same_in_any_batch(toy_engine, prm, name):
    runs = [play_games(POLICY, prm, GAMES, search(name, slots), 4) for slots in (2, 6)]
    assert runs[0] == runs[1]
    assert runs[0] != play_games(POLICY, prm, GAMES, search(name.replace("random", "constant"), 6), 4)


def search(name: str, slots: int = 6, **changes) -> Search:
    settings = PlaySettings(
        world="toy", max_turns=6, context=512, max_action_tokens=8, constrained=True, slots=slots, cache_mb=512
    )
    return Search(decoding(name), settings, 2.0, **changes)


def test_constant_plays_the_most_frequent_sample(toy_engine):
    for episode in played(Chooser(sampler(), Constant(), 6), toy_engine):
        again = sampler(slots=1)
        seat = again.open(episode.seed)
        for turn in episode.turns:
            again.see(seat, turn.observation, turn.admissible)
            again.ask(seat, 6)
            while not (done := again.tick()):
                pass
            counts = Counter({d.action: d.count for d in done[0][1]})
            assert counts[turn.action] == max(counts.values())
            again.tell(seat, turn.action)


def played(player, engine, seed=4, max_turns=6):
    return sorted(play(player, starts(GAMES, 1, seed), world_name=engine, max_turns=max_turns), key=lambda e: e.game_id)


@pytest.mark.parametrize("scorer", SCORERS)
@pytest.mark.parametrize("way", ["best_of_3", "beam_2x2"])
def test_every_search_takes_every_scorer(toy_engine, prm, way, scorer):
    found = play_games(POLICY, prm, GAMES, search(f"{way}_by_{scorer}", prior=0.1), 4)
    assert [episode.game_id for episode in found] == [game.id for game in GAMES]
    read = sum(episode.extra["cost"].prm_read for episode in found)
    assert (read > 0) == (scorer not in ("constant", "random"))
    steps = {episode.game_id: episode.extra["world_steps"] for episode in found}
    assert all(steps[e.game_id] >= e.length for e in found)
    if scorer == "true_q":
        assert sum(steps.values()) > 4 * sum(e.length for e in found)


@pytest.mark.parametrize("prior", [0.0, 0.1])
def test_a_beam_of_width_1_that_may_go_back_is_best_of_n(toy_engine, prm, prior):
    beam, best = (
        play_games(POLICY, prm, GAMES, search(name, prior=prior), 4) for name in ("beam_1x6_back", "best_of_6")
    )
    assert [(e.turns, e.won) for e in beam] == [(e.turns, e.won) for e in best]
    kept = play_games(POLICY, prm, GAMES, search("beam_1x6", prior=prior), 4)
    assert [e.turns for e in kept] != [e.turns for e in best]  # or nothing here was ever gone back from


def test_a_wide_beam_that_may_go_back_does(toy_engine):
    def returns(back):
        beam = BeamSearch(sampler(), Constant(), width=3, samples=2, back=back)
        found = beam.search(starts(GAMES, 1, 4), world_name=toy_engine, max_turns=8)
        return sum(len({turn.state_key for turn in episode.turns}) < episode.length for episode in found)

    assert returns(back=True) > returns(back=False)


def test_the_true_q_wins_more_than_chance(toy_engine):
    games = [toy.game(n) for n in range(30)]
    won = {
        scorer: sum(e.won for e in play_games(POLICY, None, games, search(f"best_of_4_by_{scorer}", 30), 4))
        for scorer in ("true_q", "random", "constant")
    }
    assert won["true_q"] > max(won["random"], won["constant"])
