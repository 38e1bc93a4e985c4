"""Causal attention of packed rows: plain products say what the kernel says, and are used where they are faster."""

import pytest
import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model

from agentprm_core.policy import slot_attention
from agentprm_core.training import attention
from agentprm_core.training.precision import computing_in
from tests.model import text_world


def rows(length: int, dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(length)
    return [torch.randn(3, 2, length, 16).to(dtype).requires_grad_() for _ in range(3)]


@pytest.mark.parametrize("length", [1, 2, 17, 300])
@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_products_are_what_the_kernel_says(length, dtype, near):
    kernel, products = rows(length, dtype), rows(length, dtype)
    first = F.scaled_dot_product_attention(*kernel, is_causal=True, scale=0.3)
    second = attention._causal_products(*products, 0.3)
    torch.testing.assert_close(second, first, atol=near, rtol=near)
    upstream = torch.randn(first.shape).to(dtype)
    first.backward(upstream)
    second.backward(upstream)
    for one, other in zip(kernel, products):
        torch.testing.assert_close(other.grad, one.grad, atol=4 * near, rtol=4 * near)


@pytest.mark.parametrize(("heads", "queries"), [(2, 12), (2, 1), (6, 4)], ids=["folded", "one query", "plain"])
def test_products_over_a_cache_are_what_the_kernel_says(heads, queries):
    """Three slots of 50 keys in 2 heads. The mask is for one query, for a query each, or for each of three heads."""
    torch.manual_seed(0)
    query, keys, values = torch.randn(3, heads, queries, 16), *torch.randn(2, 3, 50, 2, 16).transpose(2, 3)
    hidden = torch.arange(50) > torch.randint(5, 50, (3, 1, queries, 1))
    mask = torch.zeros(hidden.shape).masked_fill_(hidden, torch.finfo(torch.float32).min)
    exact = slot_attention._seen(query, keys, values, mask, 0.3)
    low = [x.bfloat16() for x in (query, keys, values)]
    products = slot_attention._seen(*low, mask.clamp(min=torch.finfo(torch.bfloat16).min).bfloat16(), 0.3)
    torch.testing.assert_close(products.float(), exact, atol=2e-2, rtol=2e-2)


def test_products_are_for_short_rows_in_bfloat16():
    query = rows(300, torch.bfloat16)[0]
    assert attention._products_are_faster(query, 0.0)
    assert not attention._products_are_faster(query, 0.1)
    assert not attention._products_are_faster(query.float(), 0.0)
    assert not attention._products_are_faster(rows(attention._SHORT + 1, torch.bfloat16)[0], 0.0)
    with torch.autocast("cpu", torch.bfloat16):
        assert attention._products_are_faster(query.float(), 0.0)


def test_adapters_read_what_comes_in_bfloat16():
    model = text_world.small_model(text_world.renderer())
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"]))
    layer = next(module for name, module in adapted.named_modules() if name.endswith("q_proj"))
    with computing_in(adapted, "bfloat16"):
        assert layer.cast_input_dtype_enabled is False
    assert layer.cast_input_dtype_enabled is True
