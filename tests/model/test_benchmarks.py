"""What benchmarks count, against the models they time."""

from argparse import Namespace

import pytest

from benchmarks.training import flops_a_token, model_of


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_every_weight_of_the_layers_is_six_flops_a_token(kv_heads):
    args = Namespace(width=16, layers=2, heads=4, kv_heads=kv_heads, device="cpu")
    weights = sum(p.numel() for name, p in model_of(args).named_parameters() if ".layers." in name and p.dim() == 2)
    assert flops_a_token(args, tokens=0) == 6 * weights
