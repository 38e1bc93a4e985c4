"""A chat model made here: its tokens are those of its template, it trains, and it is loaded as a published one is."""

import json
import random
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentprm_core.chat import dialogues
from agentprm_core.chat.dialogues import make_dialogues, told
from agentprm_core.chat.model import LISTENING, chat_row, save_chat_model, train_chat_model
from agentprm_core.chat.sizes import SIZES
from agentprm_core.chat.tokenizer import train_chat_tokenizer
from agentprm_core.errors import DataError
from agentprm_core.policy.models import CheckpointError, load_checkpoint, save_checkpoint
from agentprm_core.policy.prompt import make_renderer
from agentprm_core.policy.starting import Lora, PublishedModel, starting_policy, with_lora
from agentprm_core.types import Episode, Prompt, Turn
from agentprm_core.worlds import world_spec
from benchmarks import chat_model
from tasks.commands import make_chat_model

SIZE = replace(SIZES["tiny"], width=32, layers=2, heads=2, vocabulary=400, steps=6, batch_tokens=1024)
LISTED = ("go to shelf 1", "go to shelf 12", "take mug 1 from shelf 1")


@pytest.fixture(scope="module")
def spoken():
    return make_dialogues(["babyai"], 24, seed=1)


@pytest.fixture(scope="module")
def tokenizer(spoken):
    texts = [message.content for dialogue in spoken for message in dialogue.messages]
    return train_chat_tokenizer(texts, 400, 4096)


@pytest.fixture(scope="module")
def folder(spoken, tmp_path_factory):
    root = tmp_path_factory.mktemp("chat")
    model, tokenizer, _ = train_chat_model(spoken, SIZE, precision="float32", seed=1, scratch=root / "scratch")
    save_chat_model(model, tokenizer, root / "model")
    return root / "model"


def test_rows_are_the_templates_tokens(spoken, tokenizer):
    for dialogue in spoken:
        messages = [{"role": m.role, "content": m.content} for m in dialogue.messages]
        text = tokenizer.apply_chat_template(messages, tokenize=False)
        row = chat_row(dialogue, tokenizer)
        assert row.input_ids.tolist() == tokenizer.encode(text, add_special_tokens=False)
        taught = sum(
            len(tokenizer.encode(m.content, add_special_tokens=False)) + 1 for m in dialogue.messages if m.taught
        )
        assert row.columns.is_action.sum() == taught
        assert set(row.columns.loss_weight[1:].tolist()) == {1.0, float(np.float32(LISTENING))}


def test_an_episode_is_rendered_as_it_was_learnt(tokenizer):
    renderer, goal = make_renderer(tokenizer, Prompt("You act.")), "take the mug"
    turns = tuple(Turn(f"You see {n}.", action, LISTED, True, str(n), "why") for n, action in enumerate(LISTED))
    rendered = renderer.episode(turns)
    said = told(Episode("g", 0, 0, turns, won=True), goal, Prompt("You act."))
    messages = [{"role": m.role, "content": m.content} for m in said]
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    assert rendered.input_ids == tokenizer.encode(text, add_special_tokens=False)


def test_a_question_for_a_reason_is_the_tokens_that_were_learnt(tokenizer):
    """Those of a dialogue that teaches to give reasons, up to its reply."""
    prompt, renderer = Prompt("You act."), make_renderer(tokenizer, Prompt("You act."))
    turns = tuple(Turn(f"You see {n}.", action, LISTED, True, str(n)) for n, action in enumerate(LISTED))
    episode = Episode("g", 0, 0, turns[:1], won=True)
    (*_, asked, reply) = dialogues._hindsight(episode, "take the mug", prompt, random.Random(0))
    learnt = chat_row(dialogues.Dialogue("w", "hindsight", (asked, reply)), tokenizer).input_ids.tolist()
    seen = renderer.observation(turns[0].observation, True, LISTED)[: -len(renderer.before_action)]
    question = [*seen, *renderer.question(turns[0].action)]
    assert learnt == [*question, *tokenizer.encode(reply.content, add_special_tokens=False), renderer.stop_token]
    assert renderer.reason(learnt[len(question) :]) == reply.content.removeprefix("REASON:\n")


@settings(max_examples=50)
@given(st.text(st.characters(exclude_characters="<|>", exclude_categories=["Cs"])))
def test_any_text_can_be_said(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_a_command_is_the_same_tokens_in_a_list_and_in_a_reply(tokenizer):
    def ids(text):
        return tokenizer.encode(text, add_special_tokens=False)

    listed, reply = ids("Admissible commands:\n" + "\n".join(LISTED)), ids(f"ACTION:\n{LISTED[1]}")
    command = reply[len(ids("ACTION:")) :]
    assert any(listed[at : at + len(command)] == command for at in range(len(listed)))


def test_it_learns_and_the_same_seed_gives_the_same_weights(spoken, tmp_path):
    found = [
        train_chat_model(spoken, SIZE, precision="float32", seed=1, scratch=tmp_path / str(run)) for run in range(2)
    ]
    curve = found[0][2]["curve"]
    assert curve[-1]["loss"] < curve[0]["loss"]
    assert sum(found[0][2]["kinds"].values()) == found[0][2]["rows"]
    for one, other in zip(found[0][0].parameters(), found[1][0].parameters()):
        assert torch.equal(one, other)


def test_the_folder_is_an_ordinary_one(folder):
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"} <= names
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    asked = [{"role": "user", "content": "You see a mug 1."}]
    ids = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    written = model.generate(**ids, max_new_tokens=4)
    assert written.shape[1] <= ids["input_ids"].shape[1] + 4
    assert make_renderer(tokenizer).format == "chat"


def test_dialogues_that_are_all_too_long_are_refused(spoken, tmp_path):
    with pytest.raises(DataError, match=r"none of \d+ dialogues has at most 3 tokens"):
        train_chat_model(spoken, replace(SIZE, longest=3), precision="float32", seed=1, scratch=tmp_path)


def test_a_revision_pins_the_weights_of_a_folder(folder):
    digest = load_checkpoint(folder).digest
    assert load_checkpoint(folder, revision=digest).digest == digest
    with pytest.raises(CheckpointError, match=f"its weights have the digest {digest}, model.revision asks for 123"):
        load_checkpoint(folder, revision="123")


def published(folder, **changes):
    lora = Lora(rank=4, alpha=8, modules=("q_proj", "down_proj"))
    plain = {"revision": None, "context": 512, "max_action_tokens": 16, "constrained": False, "lora": lora}
    return PublishedModel(str(folder), **{**plain, "reason_tokens": 0, "gradient_checkpointing": False, **changes})


def test_an_adapter_knows_the_weights_that_it_goes_with(folder, tmp_path):
    base = tmp_path / "base"
    subprocess.run(["cp", "-r", folder, base], check=True)
    policy = starting_policy(published(base), [], world_spec("babyai"), device="cpu", seed=1)
    digest = save_checkpoint(policy.model, policy.tokenizer, tmp_path / "adapter")
    assert json.loads((tmp_path / "adapter" / "agentprm.json").read_text())["base_digest"] == policy.digest
    assert load_checkpoint(tmp_path / "adapter").digest == digest
    moved = tmp_path / "moved"
    base.rename(moved)
    elsewhere = starting_policy(published(moved), [], world_spec("babyai"), device="cpu", seed=1)
    elsewhere.model.load_state_dict(policy.model.state_dict())
    assert save_checkpoint(elsewhere.model, policy.tokenizer, tmp_path / "again") == digest, "a path is no weight"
    other = load_checkpoint(moved).model
    with torch.no_grad():
        other.lm_head.weight += 1
    other.save_pretrained(base)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (base / name).write_bytes((moved / name).read_bytes())
    with pytest.raises(CheckpointError, match=f"adapter was trained on the weights {policy.digest} of .*base, whose"):
        load_checkpoint(tmp_path / "adapter")


def test_an_adapter_that_does_not_fit_is_refused(folder):
    policy = load_checkpoint(folder)
    with pytest.raises(
        DataError, match=r"model.lora.rank: 16 is not allowed: less than 16, the smaller side of .*k_proj"
    ):
        with_lora(policy, Lora(16, 8, ("q_proj", "k_proj")))
    with pytest.raises(DataError, match=r"model.lora.modules: qkv is not allowed: .*down_proj, gate_proj"):
        with_lora(policy, Lora(2, 8, ("qkv", "q_proj")))


def test_a_folder_that_is_no_model_is_one_line(tmp_path):
    with pytest.raises(CheckpointError, match=r"nor the config.json of a published model in it") as said:
        load_checkpoint(tmp_path)
    assert "\n" not in str(said.value)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="transformers cannot load it as a model") as said:
        load_checkpoint(tmp_path)
    assert "\n" not in str(said.value)


def test_answers_together_are_those_one_by_one(folder):
    policy = load_checkpoint(folder)
    talks = [[{"role": "user", "content": "You see a ball. " * n}] for n in (1, 9, 3)]
    assert chat_model.replies(policy, talks) == [chat_model.replies(policy, [each])[0] for each in talks]


def test_a_state_is_asked_as_the_pipeline_asks(folder):
    policy = load_checkpoint(folder, prompt=Prompt("You act."))
    turns = tuple(Turn(f"You see {n}.", action, LISTED, True, str(n), "why") for n, action in enumerate(LISTED))
    asked = chat_model.talk(policy, Episode("g", 0, 0, turns, won=True), 1)
    ids = policy.tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_dict=True)["input_ids"]
    rendered = policy.renderer.episode(turns)
    assert ids == rendered.input_ids[: rendered.action_starts[1]]


def test_what_is_measured_of_a_chat_model_has_its_number_of_trials(folder, monkeypatch, capsys):
    words = f"--model {folder} --world babyai --split seen --games 3 --max-turns 2 --slots 2 --threads 1 --json"
    monkeypatch.setattr(sys, "argv", ["chat_model", *words.split()])
    chat_model.main()
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["greedy"]["n"] == 3
    for asked in found["instructions"].values():
        assert {each["n"] for each in asked.values()} == {3}
    assert found["instructions"]["not this command"]["without"]["share"] == 0.0
    assert found["steering"]["won"]["difference"]["n"] == 3
    for own in found["reasons"].values():
        assert own["of the command told"]["n"] == own["of the other one"]["n"] <= 3


def command(*words):
    ran = [sys.executable, "-W", "ignore", "-m", "tasks.commands.make_chat_model", *words]
    return subprocess.run(ran, capture_output=True, text=True)


def test_a_place_where_no_model_can_be_made_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "a file").touch()
    asked = ["make", "--out", f"{tmp_path}/a file/chat", "--size", "tiny", "--worlds", "arithmetic"]
    monkeypatch.setattr(sys, "argv", [*asked, "--dialogues", "20"])
    with pytest.raises(SystemExit, match=r"^make_chat_model: .*Not a directory.*a file/chat.training'$"):
        make_chat_model.main()


@pytest.mark.integration
def test_the_command_makes_a_model_and_refuses_to_overwrite_it(tmp_path):
    words = ["--out", str(tmp_path / "chat"), "--size", "tiny", "--worlds", "arithmetic", "--dialogues", "20"]
    whose = ["--expert", "distracted", "--knowledge", "0", "--lost", "--batch-tokens", "600"]
    done = command(*words, *whose, "--steps", "2", "--threads", "1", "--json")
    assert done.returncode == 0, done.stderr
    card = (tmp_path / "chat" / "README.md").read_text()
    assert "experts' knowledge 0, expert distracted, lost episodes told too, 2 steps of 600 tokens" in card
    figures = json.loads(done.stdout.splitlines()[-1])
    assert load_checkpoint(tmp_path / "chat").digest == figures["digest"]
    assert {path.name for path in tmp_path.iterdir()} == {"chat"}, "nothing is left beside it"
    again = command(*words)
    assert again.returncode == 1
    assert (
        again.stderr == f"make_chat_model: --out: {tmp_path}/chat is there already; remove it, or name another folder\n"
    )
