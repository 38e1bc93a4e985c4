"""Checkpoints come back as they were written, and refuse to be what they are not."""

import json

import pytest
import torch

from agentprm_core.policy.models import CheckpointError, checkpoint_digest, load_checkpoint, new_model, save_checkpoint
from agentprm_core.policy.tokenizer import train_tokenizer

SIZE = {"width": 32, "layers": 2, "heads": 4, "kv_heads": 1, "context": 64, "seed": 0}


@pytest.fixture
def checkpoint(tmp_path):
    tokenizer = train_tokenizer(["go to cabinet 3", "You arrive at cabinet 3."], 64)
    save_checkpoint(new_model(tokenizer, **SIZE), tokenizer, tmp_path / "policy")
    return tmp_path / "policy"


def test_a_checkpoint_reads_back(checkpoint):
    policy = load_checkpoint(checkpoint)
    fresh = new_model(policy.tokenizer, **SIZE)
    for name, weights in fresh.state_dict().items():
        assert torch.equal(policy.model.state_dict()[name], weights), name
    assert policy.digest == checkpoint_digest(checkpoint)
    assert not list(checkpoint.glob("*.bin")), "weights are safetensors only"


def test_the_same_seed_gives_the_same_digest(checkpoint, tmp_path):
    tokenizer = load_checkpoint(checkpoint).tokenizer
    assert save_checkpoint(new_model(tokenizer, **SIZE), tokenizer, tmp_path / "b") == checkpoint_digest(checkpoint)
    other = new_model(tokenizer, **{**SIZE, "seed": 1})
    assert save_checkpoint(other, tokenizer, tmp_path / "c") != checkpoint_digest(checkpoint)


def test_another_tokenizer_is_refused(checkpoint):
    train_tokenizer(["go to fridge 1", "You open the fridge 1."], 64).save_pretrained(checkpoint)
    with pytest.raises(CheckpointError, match="is not the one its weights were trained with"):
        load_checkpoint(checkpoint)


def test_a_policy_is_not_a_prm(checkpoint):
    with pytest.raises(CheckpointError, match="holds a policy, not a prm"):
        load_checkpoint(checkpoint, kind="prm")


def test_half_a_checkpoint_is_refused(checkpoint, tmp_path):
    (checkpoint / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"no \*.safetensors in it"):
        load_checkpoint(checkpoint)
    with pytest.raises(CheckpointError, match="is it a checkpoint"):
        load_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="policy/9: no such checkpoint folder"):
        load_checkpoint(tmp_path / "policy" / "9")


def test_lora_is_saved_as_an_adapter_and_finds_its_base(checkpoint, tmp_path):
    from peft import LoraConfig, get_peft_model

    policy = load_checkpoint(checkpoint)
    torch.manual_seed(0)
    lora = get_peft_model(policy.model, LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    ids = torch.tensor([policy.renderer.observation("You arrive at cabinet 3.", True)])
    expected = lora(input_ids=ids).logits
    save_checkpoint(lora, policy.tokenizer, tmp_path / "lora")
    assert json.loads((tmp_path / "lora" / "agentprm.json").read_text())["base"] == str(checkpoint)
    assert torch.allclose(load_checkpoint(tmp_path / "lora").model(input_ids=ids).logits, expected, atol=1e-6)


def test_sizes_that_do_not_divide_are_named(checkpoint):
    with pytest.raises(ValueError, match="width 32 must divide by heads 5"):
        new_model(load_checkpoint(checkpoint).tokenizer, **{**SIZE, "heads": 5})


def test_names_of_one_kind_start_alike():
    tokenizer = train_tokenizer(["put some cabinet on shelf", "go to cabinet 3", "go to drawer 3"], 64)
    embedding = new_model(tokenizer, **{**SIZE, "width": 128}).get_input_embeddings().weight

    def likeness(a: str, b: str) -> float:
        (first,), (second,) = (tokenizer.encode(text, add_special_tokens=False) for text in (a, b))
        return torch.cosine_similarity(embedding[first], embedding[second], dim=0).item()

    assert likeness("cabinet 1", "cabinet 2") > 0.3 > likeness("cabinet 1", "drawer 2")
    assert likeness("cabinet", "cabinet 2") > 0.3 > likeness("shelf", "cabinet 2")
    assert likeness("cabinet 3", "drawer 3") > 0.3


def test_what_starts_alike_is_the_worlds_to_say():
    texts = ["go to red ball", "red ball 1", "red ball 2", "blue ball 1", "grey box 2"]
    name = r"(?:red|blue|grey) (?:ball|box)(?: \d+)?"
    tokenizer = train_tokenizer(texts, 64, entity=name)
    embedding = new_model(tokenizer, **{**SIZE, "width": 128}, alike=name).get_input_embeddings().weight

    def likeness(a: str, b: str) -> float:
        return torch.cosine_similarity(*(embedding[tokenizer.convert_tokens_to_ids(name)] for name in (a, b)), 0).item()

    assert likeness("red ball", "red ball 1") > 0.6 > likeness("red ball", "blue ball 1") > 0.2
    assert likeness("red ball 1", "grey box 2") < 0.2


def test_numbers_get_tokens_up_to_a_thousand_and_above_only_where_they_were_seen():
    tokenizer = train_tokenizer(["go to cabinet 3", "it costs 1234567", "room 1000"], 64, entity=r"[a-z]+ \d+|\d+")
    known = tokenizer.get_vocab()
    assert {"cabinet 1", "cabinet 2", "room 1", "room 999", "costs 1234567"} <= known.keys()
    assert "costs 1" not in known and len(known) < 1100
