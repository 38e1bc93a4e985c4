"""A slot holds what was written to it or copied into it, and a copy moves no row that is there already."""

import numpy as np
import torch

from agentprm_core.policy.cache import KeyValueCache


def small_cache():
    return KeyValueCache(
        layers=2, slots=4, context=9, kv_heads=1, head_dim=2, device=torch.device("cpu"), dtype=torch.float32
    )


def write(cache, slot, values, forgotten=0):
    """``values`` at the slot's end, a row each; the last ``forgotten`` of them are not kept (branches)."""
    first = cache.lengths[slot]
    places = cache.claim(np.full(len(values), slot), first + np.arange(len(values)))
    for layer in range(2):
        rows = torch.tensor(values, dtype=torch.float32)[:, None, None].expand(-1, 1, 2)
        cache.write(layer, places, rows + layer, -rows)
    cache.lengths[slot] += len(values) - forgotten


def test_slots_hold_what_was_written_and_copied_whatever_happened_before():
    cache, rng, held, number = small_cache(), np.random.default_rng(0), {}, 0
    for _ in range(3000):
        deed = rng.choice(["open", "close", "write", "branch", "cut", "copy"])
        slot, other = (rng.choice(list(held)) for _ in range(2)) if held else (0, 0)
        if deed == "open" and cache.free:
            held[cache.open()] = []
        elif deed == "close" and held:
            cache.close(slot)
            del held[slot]
        elif deed in ("write", "branch") and held and len(held[slot]) < 7:
            write(cache, slot, [number, number + 1], 2 if deed == "branch" else 0)
            held[slot] += [number, number + 1] if deed == "write" else []
            number += 2
        elif deed == "cut" and held:
            held[slot] = held[slot][: rng.integers(len(held[slot]) + 1)]
            cache.cut(slot, len(held[slot]))
        elif deed == "copy" and held:
            held[other] = held[slot][: rng.integers(len(held[slot]) + 1)]
            cache.copy(slot, other, len(held[other]))
        for slot, values in held.items():
            assert cache.rows[0, slot, : cache.lengths[slot], 0, 0, 0].tolist() == values
            assert cache.rows[1, slot, : cache.lengths[slot], 0, 0, 0].tolist() == [value + 1 for value in values]
    assert number > 500


def test_a_copy_moves_only_what_the_slots_do_not_share():
    cache = small_cache()
    old, new = cache.open(), cache.open()
    write(cache, old, [1, 2, 3])
    cache.copy(old, new, 3)
    write(cache, old, [4, 5])
    write(cache, new, [6])
    cache.rows[:, old, :3] = 7.0
    cache.copy(old, new, 5)
    assert cache.rows[0, new, :5, 0, 0, 0].tolist() == [1, 2, 3, 4, 5], "three rows were there, two are new"
