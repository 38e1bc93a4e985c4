"""The models that only play, against transformers' own: the same numbers from the same folder."""

import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from agentprm_core.errors import DataError
from agentprm_core.opinions import opinions
from agentprm_core.policy.models import load_checkpoint, merged, save_checkpoint
from agentprm_core.policy.playing import PlayingLlama
from agentprm_core.policy.playing_tokenizer import PlayingTokenizer, has_plain_tokenizer
from agentprm_core.policy.prompt import make_renderer
from agentprm_core.policy.runner import CachedModel, Extension
from agentprm_core.prm.model import new_prm
from agentprm_core.prm.score import score_actions, score_episodes
from tests.model import text_world

CACHED = [
    Extension(0, (5, 6, 7, 8), reads=2),
    Extension(1, (9, 10, 11), branches=((4, 5), (6, 7, 8)), throughout=True),
]


@pytest.fixture(scope="module", params=[0, 1], ids=["plain", "looking-back"])
def folders(request, tmp_path_factory) -> dict[str, Path]:
    """A small policy and its PRM, whose head and likelihood both count; without and with biases of the attention."""
    torch.manual_seed(3)
    renderer, root = text_world.renderer(), tmp_path_factory.mktemp("checkpoints")
    policy = text_world.small_model(renderer, previous_token_heads=request.param)
    for name, weight in policy.named_parameters():
        if name.endswith("bias"):  # most start at 0
            weight.data += torch.randn_like(weight) * 0.1
    prm = new_prm(policy, 0.3)
    torch.nn.init.normal_(prm.score.weight)
    save_checkpoint(policy, renderer.tokenizer, root / "policy")
    save_checkpoint(prm, renderer.tokenizer, root / "prm", "prm")
    return {"policy": root / "policy", "prm": root / "prm"}


def both(folders, kind):
    """A checkpoint as it plays, and as transformers loads it."""
    playing, trained = (load_checkpoint(folders[kind], kind=kind, plays=plays) for plays in (True, False))
    assert isinstance(playing.model, PlayingLlama) and isinstance(trained.model, PreTrainedModel)
    assert playing.digest == trained.digest
    return playing, trained


@cache
def both_once(root):
    return both({"policy": root}, "policy")


def adapter_on(folders):
    """A LoRA adapter of the small policy that changes nothing yet."""
    config = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    return get_peft_model(load_checkpoint(folders["policy"]).model, config)


@pytest.mark.parametrize("kind", ["policy", "prm"])
def test_over_a_cache_it_gives_the_same_bits(folders, kind):
    read = []
    for checkpoint in both(folders, kind):
        cached = CachedModel(checkpoint.model, slots=2, context=64, branch_room=16)
        hidden = cached.extend(CACHED)
        again = cached.extend([Extension(0, (12, 13))])
        read.append(torch.cat([cached.head(hidden), cached.head(again)]))
    assert torch.equal(*read)


def test_whole_episodes_and_branches_get_the_same_probabilities_and_scores(folders):
    (policy, policy_trained), (prm, prm_trained) = both(folders, "policy"), both(folders, "prm")
    episodes = text_world.episodes(3, skill=0.3)
    for episode in episodes:
        mine = opinions(policy, [prm], episode, constrained=False)
        theirs = opinions(policy_trained, [prm_trained], episode, constrained=False)
        assert [[c.action for c in turn] for turn in mine] == [[c.action for c in turn] for turn in theirs]
        for one, other in zip(mine, theirs):
            np.testing.assert_allclose([c.probability for c in one], [c.probability for c in other], rtol=1e-4)
            np.testing.assert_allclose([c.scores for c in one], [c.scores for c in other], rtol=1e-4)
    tried = [[(0, "take mug"), (1, "go to cabinet 2")]] * 3
    for args in ((), (tried,)):
        score = score_actions if args else score_episodes
        found = [score(one.model, one.renderer, episodes, *args, 200) for one in (prm, prm_trained)]
        np.testing.assert_allclose(np.concatenate(found[0]), np.concatenate(found[1]), rtol=1e-4)


def test_what_it_does_not_build_is_loaded_by_transformers(folders, tmp_path):
    """An adapter, and a model with a bias or another rotary embedding."""
    save_checkpoint(adapter_on(folders), text_world.renderer().tokenizer, tmp_path / "adapter")
    assert not isinstance(load_checkpoint(tmp_path / "adapter", plays=True).model, PlayingLlama)
    for key, value in (
        ("mlp_bias", True),
        ("rope_parameters", {"rope_theta": 1e4, "rope_type": "linear", "factor": 2.0}),
    ):
        other = tmp_path / key
        shutil.copytree(folders["policy"], other)
        config = json.loads((other / "config.json").read_text()) | {key: value}
        (other / "config.json").write_text(json.dumps(config))
        assert not isinstance(load_checkpoint(other, plays=True).model, PlayingLlama)


def test_an_adapter_plays_as_part_of_the_weights(folders, tmp_path):
    tuned = adapter_on(folders)
    for name, weight in tuned.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weight, std=0.3)
    save_checkpoint(tuned, text_world.renderer().tokenizer, tmp_path / "adapter")
    before, plays = load_checkpoint(tmp_path / "adapter"), merged(load_checkpoint(tmp_path / "adapter"))
    assert hasattr(before.model, "peft_config") and not hasattr(plays.model, "peft_config")
    assert plays.digest == before.digest
    episode = text_world.episodes(1, skill=0.3)[0]
    bare, known, together = (
        [c.probability for turn in opinions(policy, [], episode, constrained=False) for c in turn]
        for policy in (load_checkpoint(folders["policy"]), before, plays)
    )
    np.testing.assert_allclose(together, known, rtol=1e-4)
    assert not np.allclose(bare, known, rtol=1e-2), "the adapter counts"
    assert merged(plays) is plays


def test_weights_cut_in_half_are_one_line(folders, tmp_path):
    shutil.copytree(folders["policy"], tmp_path / "cut")
    weights = tmp_path / "cut" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    with pytest.raises(DataError, match=r"cut: its weights cannot be loaded: .*; restore the folder"):
        load_checkpoint(tmp_path / "cut", plays=True)


@settings(max_examples=100)
@given(
    text=st.text() | st.lists(st.sampled_from(["go", "to", "cabinet 2", "cabinet 99", "<act>", "mug."])).map(" ".join)
)
def test_its_tokenizer_says_what_transformers_does(folders, text):
    ours, theirs = (checkpoint.tokenizer for checkpoint in both_once(folders["policy"]))
    assert isinstance(ours, PlayingTokenizer) and isinstance(theirs, PreTrainedTokenizerBase)
    ours_reads, theirs_reads = (make_renderer(tokenizer) for tokenizer in (ours, theirs))
    tokens = theirs_reads.words(text)
    assert ours_reads.words(text) == tokens
    assert ours_reads.said(tokens) == theirs_reads.said(tokens)
    assert ours_reads.marks == theirs_reads.marks and len(ours) == len(theirs)
    assert ours.get_vocab() == theirs.get_vocab() and ours.unk_token_id == theirs.unk_token_id


def test_a_tokenizer_with_a_chat_template_is_read_by_transformers(folders, tmp_path):
    shutil.copytree(folders["policy"], tmp_path / "chat")
    assert has_plain_tokenizer(tmp_path / "chat")
    (tmp_path / "chat" / "chat_template.jinja").write_text("{{ messages }}")
    assert not has_plain_tokenizer(tmp_path / "chat")


def test_a_tokenizer_cut_in_half_is_one_line(folders, tmp_path):
    shutil.copytree(folders["policy"], tmp_path / "cut")
    words = tmp_path / "cut" / "tokenizer.json"
    words.write_text(words.read_text()[:200])
    with pytest.raises(DataError, match=r"tokenizer.json: this tokenizer cannot be loaded: .*; restore the folder"):
        load_checkpoint(tmp_path / "cut", plays=True)


@pytest.mark.integration
def test_showing_a_game_does_not_import_transformers(folders):
    code = (
        "import sys; from agentprm_core.policy.models import load_checkpoint; import tasks.commands.show_page;"
        f"load_checkpoint({str(folders['policy'])!r}, plays=True);"
        "heavy = ('transformers', 'torch._dynamo');"
        "print([name for name in sys.modules if name.startswith(heavy)])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"
