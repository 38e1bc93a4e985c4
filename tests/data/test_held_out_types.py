"""One type of task is kept out of training, and is all that the held-out games are of."""

import pytest

from agentprm_core.worlds.alfworld.kinds import TASK_TYPES
from benchmarks.held_out_types import without


def test_a_type_kept_out_is_measured_alone():
    world = without("pick_and_place_simple")
    train, seen, unseen = (world.generate(8, 3, split) for split in ("train", "seen", "unseen"))
    assert {game.kind for game in train} <= set(TASK_TYPES) - {"pick_and_place_simple"}
    assert {game.kind for game in (*seen, *unseen)} == {"pick_and_place_simple"}
    assert all(len({game.id for game in games}) == 8 for games in (train, seen, unseen))
    assert len({game.kind for game in world.generate(40, 3, "train")}) > 3  # drawn from all of them
    assert world.generate(8, 3, "seen") == seen


def test_a_type_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="'pick_three' is not one of pick_and_place_simple, "):
        without("pick_three")
