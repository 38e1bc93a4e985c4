"""Where every dataset and checkpoint lies. ``dvc.yaml`` says the same to DVC, and a test holds the two together."""

from __future__ import annotations

from pathlib import Path

from agentprm_core.errors import DataError

DATA, SCRATCH = Path("data"), Path(".scratch")
SPLITS = ("train", "seen", "unseen")
METRICS, PLOTS, REPORTS, GALLERY = DATA / "metrics", DATA / "plots", DATA / "reports", DATA / "gallery"
ITERATIONS = METRICS / "iterations.json"
DEMOS = DATA / "demos" / "demos.parquet"


def require_campaign(folder: Path) -> None:
    """Raises DataError where ``folder`` is not there, or is no campaign's."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder")
    if not (folder / "params.yaml").exists():
        raise DataError(f"{folder}: no campaign: there is no params.yaml in it")


def games(split: str) -> Path:
    """Table of a split's games; ``guard``: of the games that PRMs are judged on."""
    return DATA / "games" / f"{split}.parquet"


def policy(iteration: int) -> Path:
    """π_iteration's checkpoint folder; 0 is the fine-tuned one."""
    return DATA / "checkpoints" / "policy" / str(iteration)


def prm(iteration: int) -> Path:
    return DATA / "checkpoints" / "prm" / str(iteration)


def rollouts(iteration: int) -> Path:
    """Folder of the episodes π_{iteration−1} played, and of its branching rollouts."""
    return DATA / "rollouts" / str(iteration)


def episodes(iteration: int) -> Path:
    return rollouts(iteration) / "episodes.parquet"


def branches(iteration: int) -> Path:
    return rollouts(iteration) / "branches.parquet"


def guard_episodes(iteration: int) -> Path:
    """What π_{iteration−1} played in the guard games; no such file where there are none."""
    return rollouts(iteration) / "guard_episodes.parquet"


def guard_branches(iteration: int) -> Path:
    """Branches of some of their states."""
    return rollouts(iteration) / "guard_branches.parquet"


def labels(iteration: int) -> Path:
    """What the critic learns from, in its own columns."""
    return DATA / "labels" / str(iteration) / "labels.parquet"


def collected(iteration: int) -> Path:
    """What the method's update learns from."""
    return DATA / "collected" / str(iteration) / "collected.parquet"


def outcomes(iteration: int) -> Path:
    return DATA / "evaluations" / str(iteration) / "outcomes.parquet"


def metrics(slug: str) -> Path:
    """All figures of a stage, ``rollout-1``."""
    return METRICS / "stages" / f"{slug}.json"


def gates(slug: str) -> Path:
    """What the gates of a stage have seen, ``rollout-1``."""
    return DATA / "gates" / f"{slug}.json"


def headline(iteration: int) -> Path:
    """What ``dvc metrics show`` lays side by side: a policy's success."""
    return METRICS / f"evaluate-{iteration}.json"
