"""The weights of a policy that MLflow knows, from DVC's cache or remote into a folder, and checked.

    agentprm fetch champion --to DIR             # of the largest evaluation; ARENA@champion is that of another
    agentprm fetch ARENA/3 --to DIR              # a version of the registered model ARENA
    agentprm fetch 1f3c9a2b --to DIR             # a policy's digest, its first digits do
    agentprm fetch CAMPAIGN --to DIR             # the best policy of a campaign, by its id

Run in a checkout: its ``.dvc/config`` names cache and remote. The folder's SHA-256 digest is compared with MLflow's.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentprm_core.arguments import OneLineParser
from agentprm_core.datasets import atomic_write
from agentprm_core.errors import EXPECTED, DataError

_DIGEST = re.compile(r"[0-9a-f]{4,16}")


def resolve(client: Any, experiment: str, what: str) -> Mapping[str, str]:
    """The tags of the policy that ``what`` names, among them ``digest`` and ``dvc_md5``. Raises DataError, naming what
    there is."""
    from tasks.frame.champion import CHAMPION, arenas

    models = {model.name: model for model in arenas(client)}
    if what == CHAMPION:
        holders = [name for name, model in models.items() if CHAMPION in model.aliases]
        if not holders:
            raise DataError("champion: there is none yet: the stage compare names one at the end of a campaign")
        what = f"{holders[0]}@{CHAMPION}"
    name, sign, key = re.fullmatch(r"([^@/]*)([@/]?)(.*)", what, re.DOTALL).groups()  # type: ignore[union-attr]
    if sign:
        number = models[name].aliases.get(key) if sign == "@" and name in models else key
        if name not in models or number is None:
            raise DataError(f"{what}: no such version; there are: {', '.join(models) or 'none'}")
        return _version(client, name, str(number), what)
    versions = [version for model in models for version in client.search_model_versions(f"name='{model}'")]
    logged = list(client.search_logged_models([experiment]))
    if _DIGEST.fullmatch(what):
        found = {t["digest"]: t for t in (m.tags for m in [*logged, *versions]) if t.get("digest", "").startswith(what)}
        if len(found) == 1:
            return next(iter(found.values()))
        if found:
            raise DataError(f"{what}: which of {', '.join(sorted(found))}?")
    of_campaign = [version.tags for version in versions if version.tags.get("campaign") == what]
    if not of_campaign:
        raise DataError(f"{what}: MLflow knows no version, digest or campaign of this name")
    return max(of_campaign, key=lambda tags: (float(tags["success"]), -int(tags["iteration"])))


def _version(client: Any, name: str, number: str, what: str) -> Mapping[str, str]:
    from mlflow.exceptions import MlflowException

    try:
        return client.get_model_version(name, number).tags
    except MlflowException as error:
        raise DataError(f"{what}: {name} has no version {number}") from error


def bring(md5: str, to: Path, root: Path = Path()) -> None:
    """The folder that DVC knows by ``md5`` (``….dir``), from the cache, or from the default remote into the cache.

    Raises:
        DataError: neither has all of it.
    """
    from dvc.exceptions import DvcException
    from dvc.repo import Repo
    from dvc_data.hashfile.hash_info import HashInfo

    logging.getLogger("dvc").setLevel(logging.CRITICAL)  # what is missing is said once, and here
    with Repo(str(root)) as repo:
        odb = repo.cache.local
        if _missing(odb, md5):
            remote = repo.config["core"].get("remote")
            try:
                for _ in range(2 if remote else 0):  # the list of the files, then the files
                    repo.cloud.pull([HashInfo("md5", one) for one in _missing(odb, md5)])
            except (DvcException, OSError) as error:
                raise DataError(f"{md5}: not in {odb.path}, and the remote {remote} gave nothing: {error}") from error
            if missing := _missing(odb, md5):
                where = f"the remote {remote}" if remote else "any remote (none is set: dvc remote add --default)"
                raise DataError(
                    f"{md5}: {len(missing)} files are neither in {odb.path} nor in {where}: "
                    "run dvc push in the checkout that trained it"
                )
        with atomic_write(to) as folder:
            for entry in _listing(odb, md5):
                (folder / entry["relpath"]).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(odb.oid_to_path(entry["md5"]), folder / entry["relpath"])


def _listing(odb: Any, md5: str) -> list[dict[str, str]]:
    return json.loads(Path(odb.oid_to_path(md5)).read_text())


def _missing(odb: Any, md5: str) -> list[str]:
    """The objects of a folder that the cache has not."""
    if not Path(odb.oid_to_path(md5)).exists():
        return [md5]
    return [one["md5"] for one in _listing(odb, md5) if not Path(odb.oid_to_path(one["md5"])).exists()]


def fetch(what: str, to: Path) -> Mapping[str, str]:
    """Bring the policy ``what`` to ``to``; its tags. Raises DataError, and leaves no folder that is not it."""
    from agentprm_core.policy.models import checkpoint_digest
    from tasks.commands.registry import asked_mlflow

    if to.exists():
        raise DataError(f"{to}: is there already: name a folder that is not")
    with asked_mlflow() as (client, experiment):
        tags = resolve(client, experiment, what)
    bring(tags["dvc_md5"], to)
    found = checkpoint_digest(to)
    if found != tags["digest"]:
        shutil.rmtree(to)
        raise DataError(f"{what}: the digest of what DVC has is {found}, MLflow says {tags['digest']}: not kept")
    return tags


def main(prog: str = "python -m tasks.fetch", arguments: Sequence[str] | None = None) -> None:
    description = "Bring a policy's weights from DVC's cache or remote, and check their digest."
    parser = OneLineParser(prog=prog, description=description)
    parser.add_argument("what", help="champion, ARENA@champion, ARENA/VERSION, a digest, or a campaign's id")
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="a folder that is not there yet")
    asked = parser.parse_args(arguments)
    try:
        tags = fetch(asked.what, asked.to)
    except EXPECTED as error:
        sys.exit(str(error))
    measured = f", success {float(tags['success']):.1%} of {tags['games']} games" if "success" in tags else ""
    print(f"{asked.to}: policy {tags['digest']} of iteration {tags['iteration']}{measured}; the digest is right")


if __name__ == "__main__":
    main()
