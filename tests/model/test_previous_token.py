"""Heads that start by looking back, against the attention that transformers computes."""

import numpy as np
import pytest
import torch

from agentprm_core.policy.models import load_checkpoint, new_model, save_checkpoint
from agentprm_core.policy.tokenizer import train_tokenizer

SIZE = {"width": 128, "layers": 2, "heads": 4, "kv_heads": 2, "context": 128, "seed": 0}


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([f"word{number}" for number in range(60)], 128)


def attention_of(model, tokens=40):
    """Of the first layer's heads over ``tokens`` random tokens: [heads, tokens, tokens]."""
    model.config._attn_implementation = "eager"
    ids = torch.randint(4, model.config.vocab_size, (1, tokens), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return model(ids, output_attentions=True).attentions[0][0]


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_each_head_looks_at_its_own_distance(tokenizer, heads):
    attention = attention_of(new_model(tokenizer, **SIZE, previous_token_heads=heads))
    rows = torch.arange(10, 40)
    for head in range(heads):
        assert (attention[head, rows].argmax(-1) == rows - head - 1).all()
        assert attention[head, rows, rows - head - 1].median() > 0.7
    for head in range(heads, 4):  # the others start as ever: by next to nothing
        assert attention[head, 39].max() < 0.2


def test_the_score_is_the_closed_form(tokenizer):
    model = new_model(tokenizer, **SIZE, previous_token_heads=2)
    with torch.no_grad():  # the content says nothing
        for name, weight in model.model.layers[0].self_attn.named_parameters():
            if name in ("q_proj.weight", "k_proj.weight"):
                weight.zero_()
    turn = 1e4 ** -(np.arange(16) / 16)
    distance = np.arange(40)[:, None] - np.arange(40)[None]
    attention = attention_of(model)
    for head in range(2):
        angle = turn[turn > 0.05] * (distance[..., None] - head - 1)
        score = np.where(distance >= 0, 25 / 32**0.5 * np.cos(angle).sum(-1), -np.inf)
        expected = np.exp(score - score.max(-1, keepdims=True))
        expected /= expected.sum(-1, keepdims=True)
        assert np.allclose(attention[head].numpy(), expected, atol=1e-4)


def test_without_them_there_are_no_biases_and_all_others_start_at_0(tokenizer):
    plain, some = new_model(tokenizer, **SIZE), new_model(tokenizer, **SIZE, previous_token_heads=2)
    assert not [name for name, _ in plain.named_parameters() if name.endswith("bias")]
    biased = {name for name, weight in some.named_parameters() if name.endswith("bias") and weight.any()}
    assert biased == {f"model.layers.0.self_attn.{part}_proj.bias" for part in "qk"}


def test_a_checkpoint_keeps_them(tokenizer, tmp_path):
    model = new_model(tokenizer, **SIZE, previous_token_heads=2)
    save_checkpoint(model, tokenizer, tmp_path / "policy")
    read = load_checkpoint(tmp_path / "policy").model.state_dict()
    assert all(torch.equal(read[name], weight) for name, weight in model.state_dict().items())


def test_more_than_there_are_is_refused(tokenizer):
    with pytest.raises(ValueError, match="previous_token_heads 5 is more than heads, 4"):
        new_model(tokenizer, **SIZE, previous_token_heads=5)
