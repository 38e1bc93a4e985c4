"""An episode's tokens only ever grow, and say the same text back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from agentprm_core.policy.prompt import make_renderer
from agentprm_core.policy.tokenizer import train_tokenizer
from agentprm_core.types import Prompt, Turn
from agentprm_core.worlds import world_spec
from tests.chat import byte_tokenizer

ROOM = (
    "You are in the middle of a room. Looking quickly around you, you see a cabinet 2, a cabinet 1, and a fridge 1."
    "\n\nYour task is to: put a clean mug in cabinet."
)
ARRIVE = "You arrive at cabinet 2. On the cabinet 2, you see a mug 1, and a plate 12."
TAKE = "You pick up the mug 1 from the cabinet 2."
COMMANDS = ("go to cabinet 2", "take mug 1 from cabinet 2", "clean mug 1 with sinkbasin 1", "move mug 1 to cabinet 1")
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def words():
    return train_tokenizer([ROOM, ARRIVE, TAKE, *COMMANDS], context=256, phrases=world_spec("alfworld").phrases)


@pytest.fixture(scope="module")
def bytes_with_template():
    """A byte-level tokenizer with a ChatML template: what a published model's looks like, without its weights."""
    return byte_tokenizer(CHATML)


def turn(observation: str, action: str, reason: str = "") -> Turn:
    return Turn(observation, action, COMMANDS, action in COMMANDS, "key", reason)


def test_an_entity_with_its_number_is_one_token(words):
    assert words.tokenize(ARRIVE) == ["you arrive at", "cabinet 2", "on", "cabinet 2", "you see", "mug 1", "plate 12"]
    assert words.tokenize("take mug 1 from cabinet 1") == ["take", "mug 1", "from", "cabinet 1"]


def test_numbers_never_seen_below_the_highest_have_tokens(words):
    assert words.unk_token not in words.tokenize("go to plate 7")
    assert words.tokenize("go to plate 13") == ["go to", words.unk_token]


def test_texts_are_encoded_as_by_the_tokenizer_whatever_it_was_asked_for_last(words):
    words([ROOM, ARRIVE], padding="max_length", truncation=True, max_length=3)
    encoded = make_renderer(words).action_text(TAKE)
    assert len(encoded) > 3
    assert list(encoded) == words.encode(TAKE, add_special_tokens=False)


def test_a_steering_prompt_is_in_the_first_message_and_nowhere_else(bytes_with_template):
    renderer = make_renderer(bytes_with_template)
    steered = renderer.steered()
    plain, asked = (bytes_with_template.decode(r.observation(ROOM, True, COMMANDS)) for r in (renderer, steered))
    assert "hypothesis" in asked and "hypothesis" not in plain
    assert asked.replace(asked[asked.index("Before you act") : asked.index("You are in the middle")], "") == plain
    assert steered.observation(ARRIVE, False, COMMANDS) == renderer.observation(ARRIVE, False, COMMANDS)
    assert steered.action(TAKE, "why") == renderer.action(TAKE, "why")


def test_a_policy_that_reads_no_instructions_cannot_be_steered(words):
    with pytest.raises(ValueError, match="a steering prompt needs a policy that reads instructions"):
        make_renderer(words).steered()


@pytest.mark.parametrize("command", COMMANDS)
def test_an_action_reads_back_as_written(words, bytes_with_template, command):
    for tokenizer, reason in ((words, ""), (bytes_with_template, "It may be there.")):
        renderer = make_renderer(tokenizer)
        assert renderer.parse(renderer.action(command, reason)) == (reason, command)


turns = st.lists(
    st.builds(turn, st.sampled_from([ROOM, ARRIVE, TAKE]), st.sampled_from(COMMANDS)), min_size=2, max_size=6
)


@settings(max_examples=40)
@given(episode=turns)
def test_tokens_of_fewer_turns_are_a_prefix(words, bytes_with_template, episode):
    for tokenizer in (words, bytes_with_template):
        renderer = make_renderer(tokenizer)
        whole = renderer.episode(episode)
        for t in range(1, len(episode)):
            part = renderer.episode(episode[:t])
            assert whole.input_ids[: len(part.input_ids)] == part.input_ids
            assert whole.action_ends[:t] == part.action_ends


def test_positions_point_at_the_action_and_its_end(words):
    renderer = make_renderer(words)
    rendered = renderer.episode([turn(ROOM, COMMANDS[0]), turn(ARRIVE, COMMANDS[1])])
    for start, end, command in zip(rendered.action_starts, rendered.action_ends, COMMANDS):
        assert renderer.parse(rendered.input_ids[start : end + 1])[1] == command
        assert rendered.input_ids[end] == renderer.stop_token
        assert all(rendered.is_action[start : end + 1])
    assert sum(rendered.is_action) == sum(len(renderer.action(c)) for c in COMMANDS[:2])


def test_the_chat_format_is_the_template_of_the_tokenizer(bytes_with_template):
    renderer = make_renderer(bytes_with_template, Prompt("You act in a household to finish a task."))
    rendered = renderer.episode([turn(ROOM, COMMANDS[0], "why"), turn(ARRIVE, COMMANDS[1], "so")])
    text = bytes_with_template.decode(rendered.input_ids)
    assert text.startswith("<|im_start|>user\nYou act in a household to finish a task. At every turn")
    assert "Admissible commands:\ngo to cabinet 2\n" in text
    assert "<|im_start|>assistant\nREASON:\nwhy\nACTION:\ngo to cabinet 2<|im_end|>\n<|im_start|>user\n" in text
    assert bytes_with_template.convert_tokens_to_ids("<|im_end|>") == renderer.stop_token


def test_a_world_whose_texts_say_what_can_be_done_lists_no_commands(bytes_with_template):
    renderer = make_renderer(bytes_with_template, Prompt("You solve a problem.", lists_commands=False))
    rendered = renderer.episode([turn(ROOM, COMMANDS[0], "why"), turn(ARRIVE, COMMANDS[1], "so")])
    text = bytes_with_template.decode(rendered.input_ids)
    assert "Admissible commands" not in text and COMMANDS[0] in text


def test_a_tokenizer_without_marks_or_template_is_refused(bytes_with_template):
    bare = PreTrainedTokenizerFast(tokenizer_object=bytes_with_template.backend_tokenizer)
    with pytest.raises(ValueError, match="neither the marks <bos> <act> <end> nor a chat template"):
        make_renderer(bare)
