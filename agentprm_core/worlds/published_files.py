"""Text files of published data: in a folder at any depth, or in an archive that need not be unpacked."""

from __future__ import annotations

import lzma
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from agentprm_core.errors import DataError


def published_files(root: Path, wanted: Callable[[str], bool], what: str) -> Iterator[tuple[str, str]]:
    """(where it lies, text) of each file below ``root`` whose name is ``wanted``, sorted by path.

    ``root`` is a folder or a tar archive (``.tar``, ``.tar.gz``, ``.tar.xz``). ``what`` names the data in errors.

    Raises DataError: no such folder, an archive that is cut off, no file of that name, text that is not UTF-8.
    """
    if not root.exists():
        raise DataError(f"games.published: {root} is not there; it should be the folder or archive of {what}")
    found = sorted(_folder(root, wanted) if root.is_dir() else _archive(root, wanted, what))
    if not found:
        raise DataError(f"games.published: {root} holds no file of {what}")
    for where, content in found:
        try:
            yield where, content.decode()
        except UnicodeDecodeError as error:
            raise DataError(f"{where}: not UTF-8 at byte {error.start}; fetch {what} again") from None


def read_member(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """What a file of an archive holds. Raises tarfile.TarError for what is no file."""
    opened = archive.extractfile(member)
    if opened is None:
        raise tarfile.ReadError(f"{member.name} is no file")
    return opened.read()


def _folder(root: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    for path in root.rglob("*"):
        if wanted(path.name) and path.is_file():
            yield str(path), path.read_bytes()


def _archive(root: Path, wanted: Callable[[str], bool], what: str) -> list[tuple[str, bytes]]:
    try:
        with tarfile.open(root) as archive:
            members = [m for m in archive if m.isfile() and wanted(PurePosixPath(m.name).name)]
            return [(f"{root}/{m.name}", read_member(archive, m)) for m in members]
    except (tarfile.TarError, EOFError, lzma.LZMAError, OSError) as error:
        raise DataError(f"{root}: not a whole archive ({error}); fetch {what} again") from None
