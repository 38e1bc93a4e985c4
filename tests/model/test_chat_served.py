"""A chat model behind a server plays as it does here, with the same log-probabilities."""

from dataclasses import replace

import pytest
import torch

from agentprm_core.chat.dialogues import make_dialogues
from agentprm_core.chat.model import save_chat_model, train_chat_model
from agentprm_core.chat.sizes import SIZES
from agentprm_core.policy.models import load_checkpoint
from agentprm_core.policy.sampler import Sampler
from agentprm_core.policy.server import Endpoint, ServerPlayer
from agentprm_core.rollout import play, starts
from agentprm_core.worlds import world_spec
from tests.model import test_server
from tests.model.served_by_transformers import needs_transformers_serve, transformers_serve

SPEC = world_spec("babyai")
MOST = 24


def made(folder, steps, **sizes):
    size = replace(SIZES["tiny"], steps=steps, batch_tokens=2048, **sizes)
    dialogues = make_dialogues(["babyai"], 4 * steps, seed=1)
    model, tokenizer, _ = train_chat_model(dialogues, size, precision="float32", seed=1, scratch=folder / "scratch")
    save_chat_model(model, tokenizer, folder / "model")
    return folder / "model"


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return load_checkpoint(made(tmp_path_factory.mktemp("chat"), 10), prompt=SPEC.prompt)


def reference(body, policy):
    """What a server of the chat API answers, by the template and transformers' own greedy generation."""
    marks = {"add_generation_prompt": True, "return_tensors": "pt", "return_dict": True}
    asked = policy.tokenizer.apply_chat_template(body["messages"], **marks)["input_ids"]
    ends = {"eos_token_id": policy.renderer.stop_token, "pad_token_id": policy.tokenizer.pad_token_id}
    how = {"do_sample": False, "max_new_tokens": body["max_tokens"], "return_dict_in_generate": True}
    with test_server.LOCK, torch.inference_mode():
        written = policy.model.generate(asked, output_logits=True, **how, **ends)
    tokens = written.sequences[0, asked.shape[1] :].tolist()
    logs = [logits[0].float().log_softmax(-1)[token].item() for logits, token in zip(written.logits, tokens)]
    message = {"content": policy.tokenizer.decode(tokens, skip_special_tokens=True)}
    usage = {"prompt_tokens": asked.shape[1], "completion_tokens": len(tokens)}
    return {"choices": [{"message": message, "logprobs": {"content": [{"logprob": x} for x in logs]}}], "usage": usage}


def decisions(player, turns):
    """Of one seat that sees two turns and does what is decided elsewhere."""
    seat, found = player.open(3), []
    for observation, action in turns:
        player.see(seat, observation, ("go to red ball 1", "turn left"))
        player.ask(seat)
        ready = player.tick()
        while not ready:
            ready = player.tick()
        found.append(ready[0][1][0])
        player.tell(seat, action, "The task names ball.")
    return found


def test_log_probabilities_are_those_of_the_sampler(policy, monkeypatch):
    monkeypatch.setattr(test_server, "complete", lambda body, _: reference(body, policy))
    how = {"context": 2048, "temperature": 0.0, "max_action_tokens": MOST}
    turns = [("You see a red ball 1.", "turn left"), ("You see a wall.", "go to red ball 1")]
    here = decisions(Sampler(policy, slots=1, constrained=False, **how), turns)
    with test_server.serving() as server:
        there = Endpoint(
            f"http://127.0.0.1:{server.server_port}/v1", "chat", "chat", prompt=SPEC.prompt, log_probs=True
        )
        with ServerPlayer(there, seats=1, **how) as player:
            served = decisions(player, turns)
    for ours, theirs in zip(here, served, strict=True):
        assert (ours.action, ours.reason) == (theirs.action, theirs.reason)
        assert theirs.log_prob == pytest.approx(ours.log_prob, abs=1e-3)


@pytest.mark.slow
@needs_transformers_serve
def test_transformers_serve_says_what_the_sampler_says(tmp_path):
    folder = made(tmp_path, 150)
    games = SPEC.generate(3, 5, "unseen")
    how = {"context": 4096, "temperature": 0.0, "max_action_tokens": 64}
    with transformers_serve(folder) as address:
        policy = load_checkpoint(folder, prompt=SPEC.prompt)
        there = Endpoint(address, str(folder), "chat", prompt=SPEC.prompt)
        with ServerPlayer(there, seats=2, **how) as player:
            served = list(play(player, starts(games, 1, 3), world_name="babyai", max_turns=4))
    here = play(
        Sampler(policy, slots=3, constrained=False, **how), starts(games, 1, 3), world_name="babyai", max_turns=4
    )
    assert sorted(here, key=lambda e: e.game_id) == sorted(served, key=lambda e: e.game_id)
