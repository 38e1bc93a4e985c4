"""A pack says of every row, and a tree of every branch, what a row of its own says: scores, losses, gradients."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForTokenClassification, MistralConfig, MistralForCausalLM

from agentprm_core.training.attention import branch_mask, forward, log_probs, packed_attention
from agentprm_core.training.columns import TrainColumns
from agentprm_core.training.packing import pack
from agentprm_core.training.tree import branch_sums, tree_row

VOCABULARY = 23
CONFIG = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
}


def model_of(kind, **extra):
    torch.manual_seed(0)
    return kind(LlamaConfig(**CONFIG, **extra)).eval()


tokens = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=5)


@st.composite
def trees(draw):
    """A trunk and its branches ``(at, tokens)``."""
    trunk = draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=2, max_size=14))
    return trunk, draw(st.lists(st.tuples(st.integers(1, len(trunk)), tokens), max_size=5))


def as_row(trunk, branches, weight=1.0):
    def column(n):
        return TrainColumns(np.full(n, weight, np.float32))

    return tree_row(trunk, column(len(trunk)), [(at, t, column(len(t))) for at, t in branches])


def gradient(model):
    flat = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    model.zero_grad()
    return flat


def rows_of(tree):
    """The trunk and each of its branches as plain rows, with where the part in question starts."""
    trunk, branches = tree
    return [(trunk, 1), *((trunk[:at] + continuation, at) for at, continuation in branches)]


@settings(max_examples=25)
@given(st.lists(trees(), min_size=1, max_size=4))
def test_log_probs_and_gradients_are_those_of_plain_rows(forest):
    model = model_of(LlamaForCausalLM)
    batch = pack([as_row(*tree) for tree in forest])
    predicted = batch.position_ids > 0
    with packed_attention(model):
        each, _ = log_probs(model, batch, predicted)
    branch = batch.branch[predicted]
    on_trunk, number = branch < 0, sum(len(branches) for _, branches in forest)
    trunks = each.new_zeros(len(forest)).index_add(0, batch.row[predicted][on_trunk], each[on_trunk])
    together = torch.cat([trunks, branch_sums(each[~on_trunk], branch[~on_trunk], number)])

    def alone(ids, start):
        log_probs_LV = model(input_ids=torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
        return log_probs_LV[range(start - 1, len(ids) - 1), ids[start:]].sum()

    plain = [[alone(*row) for row in rows_of(tree)] for tree in forest]
    apart = torch.stack([*(rows[0] for rows in plain), *(branch for rows in plain for branch in rows[1:])])
    torch.testing.assert_close(together, apart, atol=1e-5, rtol=1e-5)
    # a preference-like loss, not linear in the sums and of order one
    torch.nn.functional.softplus(together / 10).mean().backward()
    in_pack = gradient(model)
    torch.nn.functional.softplus(apart / 10).mean().backward()
    torch.testing.assert_close(in_pack, gradient(model), atol=1e-5, rtol=0)


@settings(max_examples=25)
@given(st.lists(trees(), min_size=1, max_size=4))
def test_scores_are_those_of_plain_rows_whatever_the_neighbours(forest):
    model = model_of(LlamaForTokenClassification, num_labels=1, classifier_dropout=0.0)
    with packed_attention(model):
        packed = forward(model, pack([as_row(*tree) for tree in forest])).logits[0, :, 0]
    plain = []
    for tree in forest:
        for i, (ids, start) in enumerate(rows_of(tree)):
            plain.append(model(input_ids=torch.tensor([ids])).logits[0, start if i else 0 :, 0])
    torch.testing.assert_close(packed, torch.cat(plain), atol=1e-5, rtol=1e-5)


@settings(max_examples=50)
@given(st.lists(trees(), min_size=1, max_size=4))
def test_every_query_sees_itself_and_nothing_ahead(forest):
    for block in pack([as_row(*tree) for tree in forest]).blocks:
        if block.fork is not None:
            mask_BQL, at_BQ = branch_mask(block.fork)[:, 0], block.fork.at
            assert mask_BQL.gather(2, at_BQ[:, :, None]).all()
            ahead_BQL = torch.arange(mask_BQL.shape[2]) > at_BQ[:, :, None]
            assert not (mask_BQL & ahead_BQL).any()


def test_outside_the_block_the_model_reads_as_ever():
    model = model_of(LlamaForCausalLM)
    ids = torch.tensor([[1, 2, 3]])
    before = model(input_ids=ids).logits
    with packed_attention(model), pytest.raises(TypeError, match="packed"):
        model(input_ids=ids)
    torch.testing.assert_close(model(input_ids=ids).logits, before)


def test_a_sliding_window_is_refused():
    config = MistralConfig(**CONFIG, sliding_window=4)
    model = MistralForCausalLM(config)
    with packed_attention(model), pytest.raises(ValueError, match="sliding window cannot be trained on packed"):
        forward(model, pack([as_row([1, 2, 3], [])]))


@pytest.mark.parametrize(("at", "tokens"), [(0, [1]), (4, [1]), (2, [])])
def test_a_branch_off_the_trunk_is_refused(at, tokens):
    with pytest.raises(ValueError, match=rf"a branch of {len(tokens)} tokens at {at} of a trunk of 3"):
        as_row([1, 2, 3], [(at, tokens)])
