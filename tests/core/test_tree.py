"""A tree row says of every branch what the branch's own row says: log-probabilities, scores, losses, gradients."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForTokenClassification

from agentprm_core.training.packing import collate
from agentprm_core.training.tree import branch_sums, model_inputs, token_log_probs, tree_mask, tree_row

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
        return {"weight": np.full(n, weight, np.float32)}

    return tree_row(trunk, column(len(trunk)), [(at, t, column(len(t))) for at, t in branches])


def gradient(model):
    flat = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    model.zero_grad()
    return flat


@settings(max_examples=40, deadline=None)
@given(st.lists(trees(), min_size=1, max_size=3))
def test_branch_log_probs_and_gradients_are_those_of_plain_rows(forest):
    model = model_of(LlamaForCausalLM)
    batch = collate([as_row(*tree) for tree in forest], pad=0)
    together = []
    if "segment" in batch:
        log_probs = token_log_probs(model(**model_inputs(batch)).logits, batch)
        sums = branch_sums(log_probs, batch)
        together = [sums[b, j] for b, (_, branches) in enumerate(forest) for j in range(len(branches))]
    alone = []
    for trunk, branches in forest:
        for at, continuation in branches:
            ids = torch.tensor([trunk[:at] + continuation])
            each = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
            alone.append(each[range(at - 1, ids.shape[1] - 1), ids[0, at:]].sum())
    assert len(together) == len(alone)
    if alone:
        torch.testing.assert_close(torch.stack(together), torch.stack(alone), atol=1e-5, rtol=1e-5)
        # a preference-like loss, not linear in the sums and of order one
        torch.nn.functional.softplus(torch.stack(together) / 10).mean().backward()
        in_tree = gradient(model)
        torch.nn.functional.softplus(torch.stack(alone) / 10).mean().backward()
        torch.testing.assert_close(in_tree, gradient(model), atol=1e-5, rtol=0)


@settings(max_examples=40, deadline=None)
@given(trees(), trees())
def test_scores_are_those_of_plain_rows_whatever_the_neighbours(first, second):
    model = model_of(LlamaForTokenClassification, num_labels=1, classifier_dropout=0.0)
    batch = collate([as_row(*first), as_row(*second)], pad=0)
    scores = model(**model_inputs(batch)).logits[0, :, 0]
    trunk, branches = first
    torch.testing.assert_close(
        scores[: len(trunk)], model(input_ids=torch.tensor([trunk])).logits[0, :, 0], atol=1e-5, rtol=1e-5
    )
    end = len(trunk)
    for at, continuation in branches:
        alone = model(input_ids=torch.tensor([trunk[:at] + continuation])).logits[0, at:, 0]
        torch.testing.assert_close(scores[end : end + len(continuation)], alone, atol=1e-5, rtol=1e-5)
        end += len(continuation)


@settings(max_examples=50, deadline=None)
@given(st.lists(trees(), min_size=1, max_size=3))
def test_every_query_sees_itself(forest):
    batch = collate([as_row(*tree) for tree in forest], pad=0)
    if "segment" in batch:
        mask = tree_mask(batch["segment"], batch["sees"])[:, 0]
        assert mask.diagonal(dim1=1, dim2=2).all()
        assert not mask.triu(1).any()


def test_log_probs_of_a_row_without_branches_are_the_shifted_ones():
    model = model_of(LlamaForCausalLM)
    batch = collate([as_row([3, 1, 4, 1, 5], []), as_row([2, 7], [])], pad=0)
    assert set(batch) == {"input_ids", "weight"}
    logits = model(**model_inputs(batch)).logits
    expected = logits.log_softmax(-1)[0, :-1].gather(1, batch["input_ids"][0, 1:, None])[:, 0]
    torch.testing.assert_close(token_log_probs(logits, batch)[0, 1:], expected)


@pytest.mark.parametrize(("at", "tokens"), [(0, [1]), (4, [1]), (2, [])])
def test_a_branch_off_the_trunk_is_refused(at, tokens):
    with pytest.raises(ValueError, match=rf"a branch of {len(tokens)} tokens at {at} of a trunk of 3"):
        as_row([1, 2, 3], [(at, tokens)])
