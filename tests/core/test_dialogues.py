"""Files of recorded dialogues: what is read, what is counted, and what is said of a damaged one."""

import json
import lzma
import sys

import pytest

from agentprm_core.errors import DataError
from agentprm_core.worlds.dialogues import Report, read_records, tally
from agentprm_core.worlds.textcraft import pack
from agentprm_core.worlds.textcraft.pack import VARIABLE
from benchmarks import dialogues

RECORDS = [{"id": "a", "steps": [1, 2]}, {"id": "b", "steps": [3]}]


def written(path, records=RECORDS):
    path.write_text("".join(json.dumps(record) + "\n" for record in records) + "\n")
    return path


def test_records_are_read_plain_and_compressed(tmp_path):
    plain, packed = written(tmp_path / "a.jsonl"), tmp_path / "a.jsonl.xz"
    packed.write_bytes(lzma.compress(plain.read_bytes()))
    assert read_records(plain) == read_records(packed) == RECORDS


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "half.xz",
            lzma.compress(b"x" * 100)[:40],
            "after 0 records: Compressed file ended .*; is the file whole",
        ),
        ("plain.xz", b"plain", "cannot be read after 0 records"),
        ("bytes.jsonl", b"\xff\xfe", "cannot be read after 0 records: 'utf-8'"),
        ("half.jsonl", b'{"id": "a"}\n{"id": ', "line 2: no JSON"),
        ("list.jsonl", b"[1, 2]", "line 1: a list, not an object"),
        ("none.jsonl", b"\n", "has no records"),
    ],
)
def test_a_damaged_file_is_one_line_that_says_where(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=f"{name}.*{said}"):
        read_records(tmp_path / name)
    for path, said in ((tmp_path, "Is a directory"), (tmp_path / "gone.xz", "No such file or directory")):
        with pytest.raises(DataError, match=f"^{path} cannot be read: {said}; name a file of recorded dialogues$"):
            read_records(path)


def test_what_differs_is_counted_and_the_first_is_kept_in_full():
    def compared(record):
        yield from ((number, "go", step, 2) for number, step in enumerate(record["steps"]))

    found = tally(RECORDS, compared, lambda record: record["id"] == "a")
    assert found == Report(1, 3, 2, {"id": "a", "step": 0, "action": "go", "expected": 1, "found": 2})
    with pytest.raises(
        DataError,
        match=r"record 3 \(without an id\) is damaged, or not of this world: no 'steps' in it; give",
    ):
        tally([*RECORDS, {}], compared, bool)


def test_the_command_ends_with_1_where_something_differs(tmp_path, monkeypatch, capsys):
    path = written(tmp_path / "a.jsonl")
    for mismatches, code in ((0, 0), (2, 1)):
        monkeypatch.setattr(dialogues, "_check_of", lambda world, m=mismatches: lambda records: Report(2, 3, m, None))
        monkeypatch.setattr(sys, "argv", ["dialogues", "--world", "babyai", "--file", str(path), "--json"])
        with pytest.raises(SystemExit) as ended:
            dialogues.main()
        assert ended.value.code == code
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["mismatches"] == mismatches


def test_recipes_are_found_beside_the_file_where_they_are_nowhere_else(tmp_path, monkeypatch, capsys):
    said = "Crafting commands:\ncraft 1 sugar using 1 cane\n\nGoal: craft sugar."
    start = {"id": "a", "kind": "start", "variant": "adapt", "goal": "minecraft:sugar", "observation": said, "depth": 1}
    path = written(tmp_path / "a.jsonl", [start])
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setattr(pack, "SHARED", tmp_path / "nowhere")
    monkeypatch.setattr(sys, "argv", ["dialogues", "--world", "textcraft", "--file", str(path)])
    with pytest.raises(SystemExit, match=f"^dialogues: TextCraft: neither .* is in {tmp_path / 'nowhere'}: put them"):
        dialogues.main()
    sugar = {"type": "minecraft:crafting_shapeless", "result": {"item": "minecraft:sugar"}}
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "sugar.json").write_text(json.dumps(sugar | {"ingredients": [{"item": "minecraft:cane"}]}))
    with pytest.raises(SystemExit) as ended:
        dialogues.main()
    assert ended.value.code == 0
    assert capsys.readouterr().out == "textcraft: 0 dialogues, 1 steps, 0 mismatches\n"


def test_a_pack_that_the_variable_names_goes_before_that_beside_the_file(tmp_path, monkeypatch):
    (tmp_path / "recipes").mkdir()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "mine"))
    monkeypatch.setattr(pack, "SHARED", tmp_path / "nowhere")
    pack.look_beside(tmp_path)
    assert pack.find_pack() == tmp_path / "mine"


@pytest.mark.parametrize("world", ["all_worlds", "gsm8k", "tests.model.toy:TOY"])
def test_a_world_without_recordings_says_so(world):
    with pytest.raises(DataError, match="has no recorded dialogues; textcraft, babyai and webshop have"):
        dialogues._check_of(world)
