"""What a GPU computes is what the CPU computes. Skipped where there is none."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from agentprm_core.policy.runner import CachedModel, Extension
from agentprm_core.training import attention
from agentprm_core.training.packing import Row, pack
from tests.model import text_world

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
LENGTHS = (3, 200, 1, 57)


def packed(device: str):
    return pack([Row(np.zeros(length, np.int32)) for length in LENGTHS]).to(torch.device(device))


def test_rows_end_where_the_pack_has_the_next_one():
    ends, longest = attention._rows(packed("cpu"))
    assert ends.tolist() == [0, 3, 203, 204, 261] and ends.dtype == torch.int32
    assert longest == 200


def test_a_cpu_attends_in_blocks():
    assert attention.forward_blocks(packed("cpu")).rows is None


@GPU
@pytest.mark.parametrize("kv_heads", [2, 6])
def test_rows_as_they_lie_attend_as_in_blocks(kv_heads):
    torch.manual_seed(0)
    blocks = attention.forward_blocks(packed("cuda"))
    assert blocks.rows is not None
    total, found = sum(LENGTHS), []
    given = [torch.randn(1, heads, total, 32, device="cuda").bfloat16() for heads in (6, kv_heads, kv_heads)]
    upstream = torch.randn(1, total, 6, 32, device="cuda").bfloat16()
    for how in (blocks, replace(blocks, rows=None)):
        qkv = [x.clone().requires_grad_() for x in given]
        out, _ = attention.attend_packed(None, *qkv, None, 0.2, how)
        out.backward(upstream)
        found.append([out.detach(), *(x.grad for x in qkv)])
    for one, other in zip(*found):
        torch.testing.assert_close(one.float(), other.float(), atol=5e-2, rtol=5e-2)


@GPU
@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-3), (torch.bfloat16, 0.2)])
def test_a_cache_on_a_gpu_holds_what_one_on_the_cpu_holds(dtype, near):
    found = []
    for device in ("cpu", "cuda"):
        model = text_world.small_model(text_world.renderer()).to(device, dtype).eval()
        runner = CachedModel(model, slots=3, context=64, branch_room=32)
        slots = [runner.cache.open() for _ in range(3)]
        first = [Extension(slot, [5 + n % 7 for n in range(11 + 6 * slot)]) for slot in slots]
        then = [Extension(slot, [6, 7], reads=1, branches=[[8, 9, 5], [9]]) for slot in slots]
        found.append([runner.extend(some).float().cpu() for some in (first, then)])
    for one, other in zip(*found):
        torch.testing.assert_close(one, other, atol=near, rtol=near)
