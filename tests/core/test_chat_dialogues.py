"""Dialogues of the worlds: what each kind asks and teaches, and that they come out the same for a seed."""

import json
import random

import pytest

from agentprm_core.chat import dialogues
from agentprm_core.chat.dialogues import ACTION_ONLY, RECALL, SHARES, Speakers, make_dialogues, reason_for, told
from agentprm_core.errors import DataError
from agentprm_core.policy.prompt import chat_message, hindsight, parse_reply
from agentprm_core.types import Episode, Prompt, Turn
from agentprm_core.worlds.arithmetic.problems import generate_games

GOAL = "take the mug"
TURNS = (
    Turn("You see a shelf 1.", "go to shelf 1", ("go to shelf 1", "look"), True, "a"),
    Turn("You see a mug 1.", "take mug 1", ("look", "take mug 1"), True, "b"),
)
EPISODE = Episode("game", 0, 1, TURNS, won=True)


def dialogue(kind, seed=0):
    return dialogues._KINDS[kind](EPISODE, GOAL, Prompt("You act."), random.Random(seed))


def test_a_reason_names_what_task_and_command_share():
    assert reason_for("heat some mug and put it in cabinet", "take mug 1 from shelf 2") == "The task names mug."
    assert reason_for("heat some mug", "go to shelf 2") == "What the task names is not here yet."
    assert reason_for("heat some mug", "use toaster 1") == "This leads to what the task names."


def test_an_episode_is_told_as_the_pipeline_tells_it():
    messages = dialogue("play")
    assert [m.role for m in messages] == ["user", "assistant"] * 2
    assert messages[0].content == chat_message(TURNS[0].observation, True, TURNS[0].admissible, Prompt("You act."))
    assert [m.taught for m in messages] == [False, True] * 2
    assert [parse_reply(m.content)[1] for m in messages[1::2]] == [turn.action for turn in TURNS]


def test_an_instruction_changes_the_reply():
    system, _, reply, *_ = dialogue("action_only")
    assert (system.role, system.content, reply.content) == ("system", ACTION_ONLY, "ACTION:\ngo to shelf 1")


@pytest.mark.parametrize("seed", range(6))
def test_a_forbidden_command_is_not_used(seed):
    rule, *before, reply = dialogue("forbidden", seed)
    turn = TURNS[len(before) // 2]
    assert rule.content.endswith(turn.action)
    assert parse_reply(reply.content)[1] in set(turn.admissible) - {turn.action}
    assert [m.taught for m in before] == [False] * len(before) and reply.taught


def test_where_nothing_else_is_listed_nothing_is_forbidden():
    alone = Episode("game", 0, 1, (TURNS[0]._replace(admissible=("go to shelf 1",)),), won=True)
    assert dialogues._forbidden(alone, GOAL, Prompt(), random.Random(0)) == tuple(told(alone, GOAL, Prompt()))


def test_where_no_command_is_listed_nothing_is_forbidden():
    unlisted = Prompt("You act.", lists_commands=False)
    messages = dialogues._forbidden(EPISODE, GOAL, unlisted, random.Random(0))
    assert messages == tuple(told(EPISODE, GOAL, unlisted))
    assert all("Admissible" not in message.content for message in messages)


@pytest.mark.parametrize("seed", range(6))
def test_a_reason_is_given_for_the_command_that_is_told(seed):
    *before, question, reply = dialogue("hindsight", seed)
    turn = TURNS[len(before) // 2]
    assert question.content.endswith(turn.admissible[-1] + hindsight(turn.action))
    assert reply.content == f"REASON:\n{reason_for(GOAL, turn.action)}"
    assert sum(m.taught for m in (*before, question, reply)) == 1


def test_the_task_is_remembered():
    *_, question, reply = dialogue("recall")
    assert (question.content, reply.content) == (RECALL, GOAL)


def test_steering_asks_for_a_strategy():
    assert "hypothesis" in dialogue("steered")[0].content


def test_the_same_seed_makes_the_same_dialogues_of_every_kind():
    made = make_dialogues(["babyai", "arithmetic"], 80, seed=1)
    assert made == make_dialogues(["babyai", "arithmetic"], 80, seed=1)
    assert made != make_dialogues(["babyai", "arithmetic"], 80, seed=2)
    assert {d.world for d in made} == {"babyai", "arithmetic"}
    assert {d.kind for d in make_dialogues(["arithmetic"], 200, seed=1)} == set(SHARES)
    assert all(d.messages[-1].role == "assistant" and d.messages[-1].taught for d in made)


def test_a_world_that_is_named_twice_has_twice_as_many_games():
    made = make_dialogues(["arithmetic", "textcraft", "arithmetic"], 300, seed=1)
    told = [dialogue.messages for dialogue in made if dialogue.world == "arithmetic"]
    assert 1.9 < len(told) / (len(made) - len(told)) < 2.2
    assert len({messages[0].content + messages[-1].content for messages in told}) > 0.95 * len(told)


def test_a_model_is_not_made_of_the_games_that_a_campaign_of_its_seed_trains_on():
    played = {game.goal + json.loads(game.payload)["story"] for game in generate_games(600, 1, "train")}
    said = [d.messages for d in make_dialogues(["arithmetic"], 200, seed=1) if d.kind == "play"]
    stories = [messages[0].content.split("\n\n")[1] for messages in said]
    assert len(stories) > 80 and all("has" in story for story in stories)
    assert not any(story in told for story in stories for told in played)


def test_households_without_listed_commands_say_in_the_instruction_what_can_be_done():
    listed, unlisted = (make_dialogues([name], 12, seed=1) for name in ("alfworld", "alfworld-unlisted"))
    said = [message.content for dialogue in unlisted for message in dialogue.messages if message.role == "user"]
    assert not any("Admissible commands" in text for text in said)
    assert any("take THING from PLACE" in text for text in said)
    assert sum(map(len, said)) < 0.5 * sum(len(m.content) for d in listed for m in d.messages if m.role == "user")


def test_an_expert_that_knows_less_takes_longer():
    lengths = [
        sum(len(dialogue.messages) for dialogue in make_dialogues(["alfworld"], 60, 1, Speakers(knowledge=knowledge)))
        for knowledge in (0, 1)
    ]
    assert lengths[0] > 1.1 * lengths[1]


def test_lost_episodes_are_told_only_where_asked_for():
    won = make_dialogues(["arithmetic"], 120, 1, Speakers("distracted", 0.0))
    told = make_dialogues(["arithmetic"], 120, 1, Speakers("distracted", 0.0, lost=True))
    assert len(told) == 120
    assert 0.15 < len(won) / len(told) < 0.4  # a quarter of the problems has nothing that distracts


def test_an_expert_that_a_world_does_not_have_is_refused():
    with pytest.raises(DataError, match="nobody is no expert of the world arithmetic; allowed: distracted"):
        make_dialogues(["arithmetic"], 4, 1, Speakers("nobody"))


def test_a_world_that_nobody_can_show_is_refused():
    with pytest.raises(DataError, match=r"TOY: it has no expert.*name another world"):
        make_dialogues(["tests.model.toy:TOY"], 4, seed=1)
    with pytest.raises(DataError, match=r"^gsm8k: it generates no games to make dialogues of: name another world$"):
        make_dialogues(["gsm8k"], 4, seed=1)
    with pytest.raises(DataError, match="'alfword' is not one of alfworld"):
        make_dialogues(["alfword"], 4, seed=1)
