"""What a finished campaign's folder holds, for benchmarks: ``params.yaml``, and the ``data`` that its stages wrote."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import yaml

from agentprm_core.datasets import games_from_table, read_table
from agentprm_core.errors import DataError
from agentprm_core.methods.base import Folders, Given
from agentprm_core.policy.models import MANIFEST
from agentprm_core.search.playing import PlaySettings
from agentprm_core.training.hardware import Hardware
from agentprm_core.types import GAMES, Game
from agentprm_core.worlds import world_spec


def params_of(root: Path) -> dict:
    """The campaign's parameters as they stand in its file. Raises DataError where there are none."""
    path = root / "params.yaml"
    if not path.exists():
        raise DataError(f"--campaign: {path} is not there: the folder in which dvc.yaml's stages ran")
    return yaml.safe_load(path.read_text())


def given_of(root: Path, params: dict, iteration: int, scratch: Path) -> Given:
    """What the critic of this iteration was given, from the campaign's folder.

    Raises DataError where the first policy is of another world than ``params``: they are not the campaign's then.
    """
    data, before, compute, model = root / "data", iteration - 1, params["compute"], params["model"]
    play = PlaySettings(
        world=params["env"]["world"],
        max_turns=params["env"]["max_turns"],
        context=model["context"],
        max_action_tokens=model["max_action_tokens"],
        constrained=model["constrained"],
        slots=compute["slots"],
        cache_mb=compute["cache_mb"],
    )
    folders = Folders(
        games=data / "games/train.parquet",
        guard=data / "games/guard.parquet",
        demos=data / "demos/demos.parquet",
        rollouts=(data / f"rollouts/{iteration}/episodes.parquet",),
        branches=data / f"rollouts/{iteration}/branches.parquet",
        labels=data / f"labels/{iteration}/labels.parquet",
        collected=data / f"collected/{iteration}/collected.parquet",
        first_policy=data / "checkpoints/policy/0",
        policy=data / f"checkpoints/policy/{before}",
        prm=data / f"checkpoints/prm/{iteration}",
        prm_before=None,
    )
    _require_same_world(root, folders.first_policy / MANIFEST, play.world)
    kept = {"pass_tokens": compute["pass_tokens"], "save_every": 0}
    return Given(
        iteration=iteration,
        seed=params["seed"] + 1000 * iteration,
        campaign_seed=params["seed"],
        validation_share=params["rollout"]["validation_share"],
        temperature=params["rollout"]["temperature"],
        folders=folders,
        play=play,
        hardware=Hardware(optimizer=model.get("optimizer", "adamw"), precision=compute["precision"], **kept),
        device=compute["device"],
        threads=compute["threads"],
        sizes={},
        observation_weight=params["sft"]["observation_weight"],
        scratch=scratch,
    )


def games_by_world(root: Path, splits: Sequence[str]) -> dict[str, list[Game]]:
    """{world: the campaign's games of these splits, in their order}, worlds sorted by name."""
    found: dict[str, list[Game]] = defaultdict(list)
    for split in splits:
        for game in games_from_table(read_table(root / f"data/games/{split}.parquet", GAMES)):
            found[game.world].append(game)
    return dict(sorted(found.items()))


def _require_same_world(root: Path, manifest: Path, world: str) -> None:
    trained = json.loads(manifest.read_text()).get("world", "") if manifest.exists() else ""
    if trained not in ("", world, world_spec(world).name):
        raise DataError(
            f"{root / 'params.yaml'}: env.world is {world}, and the campaign's first policy was trained in {trained}: "
            "bring back the campaign's parameters (dvc exp apply NAME, or THEN=COMMAND of experiments/run)"
        )
