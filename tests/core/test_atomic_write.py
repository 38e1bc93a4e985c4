"""What is written aside takes a place whole, and no folder is lost to a file."""

from pathlib import Path

import pytest

from agentprm_core.datasets import atomic_write
from agentprm_core.errors import DataError


def test_a_file_does_not_take_the_place_of_a_folder(tmp_path: Path):
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    with pytest.raises(DataError, match="pages is a folder: name a file"), atomic_write(folder) as aside:
        aside.write_text("<html>")
    assert [path.name for path in tmp_path.iterdir()] == ["pages"]
    assert (folder / "thesis.txt").read_text() == "years of work"


def test_a_folder_takes_the_place_of_the_one_before(tmp_path: Path):
    for name in ("old", "new"):
        with atomic_write(tmp_path / "made") as aside:
            aside.mkdir()
            (aside / name).touch()
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["new"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a file/out/table", r"cannot be written: .*a file/out: Not a directory$"),
        ("a file/table", r"cannot be written: .*a file.*: (File exists|Not a directory)$"),
    ],
)
def test_a_place_where_nothing_can_be_written(tmp_path: Path, name: str, said: str):
    (tmp_path / "a file").touch()
    with pytest.raises(DataError, match=said), atomic_write(tmp_path / name):
        pytest.fail("the work was begun")


def test_a_disk_that_is_full(tmp_path: Path):
    said = r"table: cannot be written: No space left on device$"
    with pytest.raises(DataError, match=said), atomic_write(tmp_path / "table"):
        raise OSError(28, "No space left on device")
    assert not list(tmp_path.iterdir())
