"""The arithmetic world: what it lists and does, generated problems, splits, bad games, its words as tokens."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentprm_core.errors import DataError
from agentprm_core.policy.tokenizer import train_tokenizer
from agentprm_core.types import Game
from agentprm_core.worlds import UnsupportedGame, make_world, world_spec
from agentprm_core.worlds.arithmetic.engine import LIMIT, after, calculate, commands, problem
from agentprm_core.worlds.arithmetic.problems import HELD_OUT, SIGNS, SPLITS, generate_games
from agentprm_core.worlds.arithmetic.reading import distracted_chain, matters, sentences
from agentprm_core.worlds.demonstrations import demonstrate

SPEC = world_spec("arithmetic")
PAYLOAD = {
    "story": "Dan has 12 pens. Eva finds 5 pens. Dan buys 7 more pens. Dan sells 4 pens.",
    "numbers": [12, 5, 7, 4],
    "chain": ["compute 12 + 7", "compute 19 - 4", "answer 15"],
    "answer": 15,
}
GAME = Game("one", "arithmetic", "train", "2 steps", "say how many pens Dan has now.", json.dumps(PAYLOAD))


def test_an_episode() -> None:
    world = make_world("arithmetic")
    first = world.reset(GAME)
    assert first.text == PAYLOAD["story"] + "\n\nYour task is to: say how many pens Dan has now."
    assert world.step("compute 12 + 7").text == "That makes 19."
    assert world.step("compute 19 - 4")[0::2] == ("That makes 15.", 0.0)
    assert world.step("answer 15") == ("Right.", (), 1.0, True)


def test_a_wrong_answer_ends_it_too() -> None:
    world = make_world("arithmetic")
    world.reset(GAME)
    assert world.step("answer 12") == ("Wrong.", (), 0.0, True)


def test_what_is_listed_with_two_numbers_in_sight() -> None:
    listed = ("answer 12", "answer 4", "compute 12 * 4", "compute 12 + 4", "compute 12 - 4", "compute 12 / 4")
    assert commands((12, 4)) == listed
    assert commands((4, 12)) == tuple(sorted(re.sub(r"12 ([*+]) 4", r"4 \1 12", command) for command in listed))
    assert commands((7, 7)) == ("answer 7", "compute 7 * 7", "compute 7 + 7", "compute 7 / 7")
    assert commands((LIMIT, 3)) == ("answer 3", f"answer {LIMIT}", f"compute {LIMIT} - 3")


def test_a_number_is_used_once() -> None:
    assert after((12, 5, 12, 4), "compute 12 + 4") == (16, 5, 12)
    assert after((7, 7), "compute 7 / 7") == (1,)


@given(st.lists(st.integers(1, LIMIT), min_size=1, max_size=6).map(tuple))
def test_commands_are_all_pairs_that_come_out_whole_and_small(sight: tuple[int, ...]) -> None:
    listed = commands(sight)
    assert list(listed) == sorted(set(listed))
    pairs = [(a, b) for i, a in enumerate(sight) for j, b in enumerate(sight) if i != j]
    results = {a + b for a, b in pairs} | {a * b for a, b in pairs} | {a - b for a, b in pairs}
    results |= {a // b for a, b in pairs if a % b == 0}
    computed = [calculate(command) for command in listed if command.startswith("compute")]
    assert {result for _, _, result in computed} == {result for result in results if 1 <= result <= LIMIT}
    for command in listed:
        if command.startswith("compute"):
            assert len(after(sight, command)) == len(sight) - 1


def test_another_command_changes_nothing() -> None:
    world = make_world("arithmetic")
    listed, key = world.reset(GAME).admissible, world.state_key()
    for command in ("", "dance", "compute 12 + 8", "answer 15", "compute 4 - 12"):
        assert world.step(command) == ("Nothing happens.", listed, 0.0, False)
        assert world.state_key() == key


def test_keys_follow_the_numbers_in_sight_and_not_the_way_there() -> None:
    def key(*actions: str, game: Game = GAME) -> str:
        world = make_world("arithmetic")
        world.reset(game)
        for action in actions:
            world.step(action)
        return world.state_key()

    twice = json.dumps({**PAYLOAD, "numbers": [6, 2, 3, 12], "chain": ["answer 6"], "answer": 6})
    game = replace(GAME, payload=twice)
    assert key("compute 6 * 2", "compute 12 / 12", game=game) != key("compute 6 * 2", game=game)
    assert key("compute 6 / 2", "compute 3 + 3", game=game) == key("compute 6 - 3", "compute 3 * 2", game=game)
    assert key("answer 12") != key("answer 5") != key()
    assert key(game=replace(GAME, id="another")) != key()


@pytest.mark.parametrize("split", SPLITS)
def test_the_chain_wins_every_generated_problem(split: str) -> None:
    world = make_world("arithmetic")
    how = {"world_name": "arithmetic", "max_turns": SPEC.max_turns, "seed": 0, "knowledge": 0.0}
    for game in generate_games(200, 3, split):
        episode = demonstrate(world, game, **how)
        assert episode.won and episode.reward == 1.0, game
        assert episode.length == game.attributes["length"] + 1
        assert all(turn.valid for turn in episode.turns)


def test_numbers_of_a_story_are_those_in_sight_in_its_order() -> None:
    for game in generate_games(100, 4, "train"):
        payload = json.loads(game.payload)
        assert [int(number) for number in re.findall(r"\d+", payload["story"])] == payload["numbers"]


def test_an_expert_that_was_led_astray_goes_on_or_gives_up() -> None:
    how = {"world_name": "arithmetic", "max_turns": 10, "knowledge": 0.0, "corrupt": 0.3}
    games = generate_games(200, 5, "train")
    played = [demonstrate(make_world("arithmetic"), game, seed=i, **how) for i, game in enumerate(games)]
    assert 0.1 < sum(episode.won for episode in played) / len(played) < 0.6


def _operations(game: Game) -> list[str]:
    names = {sign: name for name, sign in SIGNS.items()}
    chain = json.loads(game.payload)["chain"]
    return [names[command.split(" ")[2]] for command in chain if command.startswith("compute")]


def test_unseen_has_pairs_of_operations_that_no_other_split_has() -> None:
    def held_out(game: Game) -> bool:
        return not HELD_OUT.isdisjoint(pairwise(_operations(game)))

    assert all(map(held_out, generate_games(300, 6, "unseen")))
    assert not any(map(held_out, [*generate_games(300, 6, "train"), *generate_games(100, 6, "seen")]))


def test_splits_share_no_problem_whatever_the_seed() -> None:
    train = {game.payload for seed in (1, 2) for game in generate_games(800, seed, "train")}
    seen = {game.payload for seed in (1, 2) for game in generate_games(200, seed, "seen")}
    assert len(train) >= 1595 and not train & seen


def test_games_are_those_of_a_larger_count_sorted_and_no_two_alike() -> None:
    few, many = generate_games(50, 7, "seen"), generate_games(200, 7, "seen")
    assert {game.id for game in few} < {game.id for game in many}
    assert [game.id for game in many] == sorted({game.id for game in many})
    assert {game.kind for game in many} == set(SPEC.kinds)


def test_plain_problems_have_no_sentence_that_does_not_matter_and_are_in_the_same_splits() -> None:
    plain = {split: world_spec("arithmetic-plain").generate(200, 7, split) for split in ("train", "seen")}
    assert {game.attributes["distractor"] for games in plain.values() for game in games} == {0}
    for game in plain["train"]:
        told = json.loads(game.payload)
        assert len(told["numbers"]) == len(told["chain"])  # the first number, one each operation; then the answer
    # a problem's split follows from its digest, which its id ends with
    assert {split: {int(game.id[-2:], 16) % 8 == 0 for game in plain[split]} for split in plain} == {
        "train": {False},
        "seen": {True},
    }


def test_another_split_is_refused() -> None:
    with pytest.raises(DataError, match="games: 'test' is not a split of arithmetic: train, seen, unseen"):
        generate_games(1, 1, "test")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"answer": "fifteen"}, "one: the answer 'fifteen' is no number"),
        ({"answer": True}, "the answer True is no number"),
        ({"answer": 16}, "the chain does not end with the answer 16"),
        ({"numbers": [12, 5, 7, "four"]}, "'four' is not a whole number"),
        ({"numbers": [12, 0, 7, 4]}, "0 is not a whole number from 1 to"),
        ({"numbers": [12, 5]}, r"'compute 12 \+ 7' of the chain cannot be done with the numbers \(12, 5\)"),
        ({"chain": []}, "the chain does not end with the answer 15"),
    ],
)
def test_a_problem_that_does_not_come_out_is_named(changes: dict, said: str) -> None:
    with pytest.raises(UnsupportedGame, match=said):
        make_world("arithmetic").reset(replace(GAME, payload=json.dumps(PAYLOAD | changes)))


def test_half_a_payload_is_named() -> None:
    with pytest.raises(UnsupportedGame, match="one: the payload is not a problem"):
        make_world("arithmetic").reset(replace(GAME, payload=GAME.payload[:50]))


def test_a_number_is_the_same_token_wherever_it_is() -> None:
    world, texts = make_world("arithmetic"), set()
    for game in generate_games(300, 8, "train"):
        demo = demonstrate(world, game, world_name="arithmetic", max_turns=10, seed=0, knowledge=0.0)
        texts |= {text for turn in demo.turns for text in (turn.observation, *turn.admissible)}
    tokenizer = train_tokenizer(sorted(texts), 512, SPEC.phrases)
    for token in tokenizer.get_vocab():
        assert token.isdigit() or not re.search(r"\d", token), token
    numbers = sorted(int(token) for token in tokenizer.get_vocab() if token.isdigit())
    assert numbers == list(range(1, numbers[-1] + 1)) and numbers[-1] > 0.9 * LIMIT
    assert tokenizer.tokenize("compute 12 + 7") == ["compute", "12", "+", "7"]
    assert tokenizer.decode(tokenizer.encode("compute 12 + 7")) == "compute 12 + 7"
    assert tokenizer.tokenize("That makes 19.") == ["that makes", "19"]


def test_who_is_not_distracted_solves_every_problem() -> None:
    for split in SPLITS:
        for game in generate_games(150, 5, split):
            assert distracted_chain(game, 1.0, random.Random(0)) == json.loads(game.payload)["chain"]


def test_sentences_that_matter_are_as_many_as_the_steps_and_the_start() -> None:
    for game in generate_games(150, 6, "train"):
        told = sentences(problem(game))
        assert sum(matters(sentence, game.goal) for sentence in told) == int(game.attributes["length"]) + 1
        assert len(told) == int(game.attributes["length"]) + 1 + int(game.attributes["distractor"])


def test_who_is_distracted_uses_what_does_not_matter() -> None:
    assert distracted_chain(GAME, 0.0, random.Random(0)) == [
        "compute 12 + 5",
        "compute 17 + 7",
        "compute 24 - 4",
        "answer 20",
    ]


def test_a_sentence_that_cannot_be_done_is_left_out() -> None:
    story = "Dan has 7 pens. Eva finds 6 pens. Dan splits the pens into 7 equal parts, one of which is kept."
    payload = {"story": story, "numbers": [7, 6, 7], "chain": ["compute 7 / 7", "answer 1"], "answer": 1}
    game = replace(GAME, payload=json.dumps(payload))
    assert distracted_chain(game, 0.0, random.Random(0)) == ["compute 7 + 6", "answer 13"]


def test_knowledge_is_how_many_sentences_that_do_not_matter_are_left_out() -> None:
    with_one = [game for game in generate_games(2_000, 7, "train") if game.attributes["distractor"] == 1]
    played = [
        demonstrate(
            make_world("arithmetic"),
            game,
            world_name="arithmetic",
            max_turns=10,
            seed=number,
            knowledge=0.3,
            expert="distracted",
        )
        for number, game in enumerate(with_one)
    ]
    won = sum(episode.won for episode in played)
    assert all(turn.valid for episode in played for turn in episode.turns)
    assert abs(won / len(played) - 0.3) < 4 * (0.21 / len(played)) ** 0.5 + 0.02  # a wrong sum can be right by chance
