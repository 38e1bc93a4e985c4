"""The champion: the policy that others are held against, of a world and a set of held-out games.

Policies that were measured in the same way on the same games share a registered model of MLflow, the *arena*: its name
says the world, how many games, and a digest of the games and of the way of playing. So a run on other games, or on
fewer, cannot touch a champion. In an arena the alias ``champion`` goes to a campaign's best policy where there is none
yet, and from one policy to another only where the exact paired test on the games says so (McNemar, p < 0.05). A best
policy that does not pass has the alias ``challenger``.

A version's source is not a folder, which the next run would overwrite, but DVC's md5: ``agentprm fetch`` brings
the weights.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from agentprm_core.errors import DataError
from agentprm_core.evaluate import LEVEL, Paired, paired_test, wins
from tasks.frame.tracking import dvc_md5, git_commit
from tasks.frame.upstream import locked_md5

PREFIX = "agentprm-policy-"
CONSIDER = "tasks.frame.champion:consider"
CHAMPION, CHALLENGER = "champion", "challenger"


def arena(world: str, outcomes: pa.Table, row: Mapping) -> str:
    """The name of the registered model for what ``row`` of the iterations' table was measured on."""
    won = _won(outcomes, row)
    decides = [world, row["split"], row["decoding"], str(row["constrained"]), *sorted(won)]
    digest = hashlib.sha256("\n".join(decides).encode()).hexdigest()[:8]
    named = re.sub(r"[^\w.-]", "-", world)
    return f"{PREFIX}{named}-{len(won)}-{digest}"


def candidate(outcomes: pa.Table, row: Mapping, folder: Path) -> dict[str, str]:
    """The tags of a policy's version: what it is, and which of the games it won, in the order of their ids. ``folder``:
    where DVC has its weights."""
    won = _won(outcomes, row)
    return {
        "digest": player(outcomes, row["iteration"]),
        "dvc_md5": locked_md5(folder) or dvc_md5(folder),
        **git_commit(),
        "iteration": str(row["iteration"]),
        "success": f"{row['success']:.4f}",
        "games": str(len(won)),
        "split": row["split"],
        "decoding": row["decoding"],
        "wins": packed([won[game] for game in sorted(won)]),
    }


def player(outcomes: pa.Table, iteration: int) -> str:
    """The digest of the policy that these outcomes are of."""
    (digest,) = {
        row["policy"] for row in outcomes.select(["iteration", "policy"]).to_pylist() if row["iteration"] == iteration
    }
    return digest


def _won(outcomes: pa.Table, row: Mapping) -> dict[str, bool]:
    return wins(outcomes, **{name: row[name] for name in ("iteration", "split", "decoding", "constrained")})


def packed(won: Iterable[bool]) -> str:
    """Hexadecimal digits, the first game's in the lowest bit."""
    return f"{sum(1 << n for n, one in enumerate(won) if one):x}"


def unpacked(digits: str, games: int) -> list[bool]:
    """What :func:`packed` was given."""
    bits = int(digits, 16)
    return [bool(bits >> n & 1) for n in range(games)]


def test(before: Mapping[str, str], after: Mapping[str, str]) -> Paired:
    """Two versions by their tags, on the games of their arena."""
    games = int(before["games"])
    sides = [dict(enumerate(unpacked(tags["wins"], games))) for tags in (before, after)]
    return paired_test(*[{str(game): won for game, won in side.items()} for side in sides])


def consider(store: Any, *, name: str, policies: Sequence[Mapping[str, str]], best: str) -> None:
    """Register a campaign's policies in the arena ``name`` and let the one with the digest ``best`` compete. Called
    where MLflow is told things; ``store``: :class:`tasks.frame.mlflow_store.Store`. Can be done twice."""
    client = store.client
    there = _versions(client, name)
    campaign = client.get_run(store.runs["campaign"]).data.tags["campaign"]
    for tags in policies:
        if tags["digest"] not in there:
            there[tags["digest"]] = _register(store, name, {**tags, "campaign": campaign})
    verdict = compete(client, name, there[best])
    for run in sorted({store.runs["stage"], store.runs["campaign"]}):
        client.set_tag(run, "champion", f"{name}: {verdict}")


def compete(client: Any, name: str, version: Any) -> str:
    """Give ``version`` the alias that it earned. What became of it, in words."""
    aliases = client.get_registered_model(name).aliases
    mine, incumbent = str(version.version), aliases.get(CHAMPION)
    if incumbent is None:
        client.set_registered_model_alias(name, CHAMPION, mine)
        return f"version {mine} is the first champion"
    if str(incumbent) == mine:
        return f"version {mine} is champion already"
    if "rolled_back" in version.tags:
        return f"version {mine} was rolled back once and does not compete"
    found = test(client.get_model_version(name, str(incumbent)).tags, version.tags)
    counted = f"{found.gained} games gained, {found.lost} lost, p = {found.p_value:.3g}"
    if found.gained > found.lost and found.p_value < LEVEL:
        client.set_model_version_tag(name, mine, "champion_before", str(incumbent))
        client.set_registered_model_alias(name, CHAMPION, mine)
        if str(aliases.get(CHALLENGER)) == mine:
            client.delete_registered_model_alias(name, CHALLENGER)
        return f"version {mine} replaces version {incumbent} ({counted})"
    client.set_registered_model_alias(name, CHALLENGER, mine)
    return f"version {mine} is challenger of version {incumbent} ({counted})"


def roll_back(client: Any, name: str) -> str:
    """Give the alias back to the champion before. Raises DataError where there is none."""
    current = client.get_registered_model(name).aliases.get(CHAMPION)
    before = client.get_model_version(name, str(current)).tags.get("champion_before") if current else None
    if before is None:
        raise DataError(
            f"{name}: no champion before {f'version {current}' if current else 'this'}: nothing to go back to"
        )
    client.set_model_version_tag(name, str(current), "rolled_back", "true")
    client.set_registered_model_alias(name, CHAMPION, before)
    return f"{name}: version {before} is champion again; version {current} does not compete any more"


def arenas(client: Any) -> list[Any]:
    """The registered models of all arenas, the largest set of games first."""
    found = [model for model in client.search_registered_models() if model.name.startswith(PREFIX)]
    return sorted(found, key=lambda model: (-int(model.name.rsplit("-", 2)[1]), model.name))


def _versions(client: Any, name: str) -> dict[str, Any]:
    """By digest, the oldest of each."""
    from mlflow.exceptions import MlflowException

    try:
        said = "Policies measured on the same games in the same way. Weights lie in DVC: agentprm fetch"
        client.create_registered_model(name, description=said)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    found = sorted(client.search_model_versions(f"name='{name}'"), key=lambda version: -int(version.version))
    return {version.tags["digest"]: version for version in found}


def _register(store: Any, name: str, tags: Mapping[str, str]) -> Any:
    model = store.model(tags["digest"], tags["iteration"])
    return store.client.create_model_version(
        name,
        source=f"dvc:/{tags['dvc_md5']}",  # without the slash a server takes it for a relative path, and refuses
        run_id=store.runs["stage"],
        tags=dict(tags),
        model_id=model.model_id if model else None,
        await_creation_for=0,
    )
