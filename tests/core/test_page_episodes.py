"""The episodes that pages of worlds show whole are what the world says, word for word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentprm_core.worlds import world_spec

PAGES = Path(__file__).parents[2] / "docs/worlds"
pytest.importorskip("minigrid", reason="BabyAI's engine is not installed: pip install minigrid==3.2.0 gymnasium==1.4.0")


def shown(page: str) -> list[list[str]]:
    """Of each episode: text, action, text … with single blanks."""
    blocks = re.findall(r"^```\n(.*?)^```", (PAGES / page).read_text(), re.DOTALL | re.MULTILINE)
    found = [re.split(r"^> (.*)\n", block, flags=re.MULTILINE) for block in blocks if "\n> " in block]
    return [[" ".join(part.split()) for part in parts] for parts in found]


def played(world: str, game_id: str, count: int) -> list[str]:
    """The expert's episode in a game of the first ``count`` of train by seed 1."""
    spec = world_spec(world)
    (game,) = [game for game in spec.generate(count, 1, "train") if game.id == game_id]
    at, done = spec.make(), None
    seen = at.reset(game)
    expert, said = spec.demonstrator()(at, game, 1, 0.0), [seen.text]
    while not seen.done:
        done = expert.act(seen, done)
        seen = at.step(done)
        said += [done, seen.text]
    assert seen.reward >= spec.of(game).success
    return [" ".join(text.split()) for text in said]


@pytest.mark.parametrize(
    ("world", "count", "games"),
    [
        ("babyai", 80, ["babyai-36-899847"]),
        (
            "all_worlds",
            60,
            ["train/pick_and_place_simple-Pillow-None-Sofa-210/trial_d37d469fc9eb", "train/2-steps/cf6e288643662631"],
        ),
    ],
)
def test_an_episode_of_a_page_is_played_so(world: str, count: int, games: list[str]) -> None:
    assert shown(f"{world}.md") == [played(world, game, count) for game in games]
