"""What a critic or a method is given, on a folder of a test's own."""

from dataclasses import replace
from pathlib import Path

from agentprm_core.datasets import episodes_to_table, games_to_table, write_table
from agentprm_core.methods.base import Folders, Given
from agentprm_core.search.playing import PlaySettings
from agentprm_core.training.hardware import Hardware

PLAY = PlaySettings(
    world="tests.model.toy:TOY",
    max_turns=12,
    context=512,
    max_action_tokens=8,
    constrained=True,
    slots=32,
    cache_mb=256,
)
HARDWARE = Hardware(optimizer="adamw", precision="float32", pass_tokens=4096, save_every=0)


def given(root: Path, iteration: int = 1, **changes: object) -> Given:
    """Of an iteration whose data lies in ``root``; ``changes`` are fields of :class:`Given`."""
    folders = Folders(
        games=root / "games.parquet",
        guard=root / "guard.parquet",
        demos=root / "demos.parquet",
        rollouts=tuple(root / f"rollouts-{i}.parquet" for i in range(1, iteration + 1)),
        branches=root / "branches.parquet",
        labels=root / "labels.parquet",
        collected=root / "collected.parquet",
        first_policy=root / "policy-0",
        policy=root / f"policy-{iteration - 1}",
        prm=root / f"prm-{iteration}",
        prm_before=root / f"prm-{iteration - 1}" if iteration > 1 else None,
    )
    plain = Given(
        iteration=iteration,
        seed=1 + 1000 * iteration,
        campaign_seed=1,
        validation_share=0.3,
        temperature=20.0,
        folders=folders,
        play=PLAY,
        hardware=HARDWARE,
        device="cpu",
        threads=1,
        sizes={},
        observation_weight=0.5,
        scratch=root / "scratch",
    )
    return replace(plain, **changes)


def know(given: Given, **known: object) -> Given:
    """``given`` with what it would read from disk (``policy``, ``episodes`` …) already there."""
    given.__dict__.update(known)
    return given


def write_games(given: Given, games) -> None:
    write_table(games_to_table(games), given.folders.games)


def write_episodes(path: Path, episodes, policy: str = "") -> None:
    write_table(episodes_to_table(episodes, iteration=1, method="policy", policy=policy), path)
