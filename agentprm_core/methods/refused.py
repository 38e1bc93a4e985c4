"""A PRM that was refused (:mod:`agentprm_core.methods.trust`): nothing is collected, and the policy stays as it is.

In place of what the method collects there is one row that says so. The next policy is then a copy of the one before,
with the same digest, and the campaign goes on.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from agentprm_core.datasets import read_table
from agentprm_core.errors import DataError
from agentprm_core.expectations import Check, one_of
from agentprm_core.methods.base import Collected, Given
from agentprm_core.methods.methods import method_module
from agentprm_core.methods.trust import OR_ERROR, PrmRefused
from agentprm_core.methods.update_base import UpdateConfig
from agentprm_core.policy.models import MANIFEST, checkpoint_digest

REFUSED = pa.schema([("iteration", pa.int32()), ("prm", pa.string()), ("policy", pa.string()), ("shown", pa.string())])
"""One row: PRM ``iteration`` was refused for what it has ``shown``. ``prm`` and ``policy`` are the digests of that PRM
and of the policy that stays."""


@dataclass(frozen=True)
class Refusal:
    """A row of REFUSED."""

    iteration: int
    prm: str
    policy: str
    shown: str

    def __str__(self) -> str:
        i = self.iteration
        return f"PRM {i} was refused ({self.shown}): policy {i} is policy {i - 1}"


def collect(config: UpdateConfig, given: Given) -> Collected:
    """What the method collects, or the refusal of its PRM.

    Raises:
        PrmRefused: the PRM is refused, and ``critic.require`` makes that an error.
    """
    try:
        return method_module(config.name).collect(config, given)
    except PrmRefused as refused:
        if given.require.endswith(OR_ERROR):
            raise
        return _refusal(given, refused)


def refusal_of(collected: Path) -> Refusal | None:
    """The refusal that lies where a method's collected data would lie; None where there is such data."""
    if pq.read_schema(collected).names != REFUSED.names:
        return None
    return Refusal(**read_table(collected, REFUSED).to_pylist()[0])


def copy_policy(source: Path, folder: Path, refusal: Refusal) -> str:
    """The policy at ``source`` once more in ``folder``, whose ``agentprm.json`` says why; its digest.

    Raises:
        DataError: the policy at ``source`` is not the one that was to stay.
    """
    digest = checkpoint_digest(source)
    if digest != refusal.policy:
        raise DataError(
            f"{source}: is {digest}, and the policy that stays is {refusal.policy}. Collect again: dvc repro "
            f"collect@{refusal.iteration}"
        )
    shutil.copytree(source, folder, copy_function=shutil.copyfile)  # what DVC linked may not be written to
    manifest = json.loads((source / MANIFEST).read_text()) | {"copy": str(refusal)}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")
    return checkpoint_digest(folder)


def _refusal(given: Given, refused: PrmRefused) -> Collected:
    policy = checkpoint_digest(given.folders.policy)
    refusal = Refusal(given.iteration, checkpoint_digest(given.folders.prm), policy, refused.shown)
    print(f"{refused}. Nothing is collected. {refusal}", flush=True)
    table = pa.Table.from_pylist([{name: getattr(refusal, name) for name in REFUSED.names}], REFUSED)
    return Collected(table, {"refused": str(refusal)}, [refused_suite(table, given)])


def refused_suite(table: pa.Table, given: Given) -> Check:
    """One refusal, of this iteration, that leaves the policy that played its rollouts."""
    counted = table.append_column("rows", pa.array([table.num_rows] * table.num_rows, pa.int32()))
    return Check(
        "refused PRM",
        counted,
        ("iteration",),
        (
            one_of("rows", [1], "one refusal"),
            one_of("iteration", [given.iteration], "of this iteration"),
            one_of("policy", [checkpoint_digest(given.folders.policy)], "the policy before stays"),
        ),
    )
