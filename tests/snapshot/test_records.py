"""Records in JSON come back as they were; so do errors of elements; the page lists every field."""

from __future__ import annotations

import dataclasses
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.snapshot.disk import HEADER, KEY, RECORDS, RUN, WHOLE, Disk

from tundish.errors import TransformError
from tundish.snapshot.files import checksum
from tundish.snapshot.finished import read_finished
from tundish.snapshot.frame import FORMAT, pack
from tundish.snapshot.manifest import Manifest, ManifestRun, RunOutcome
from tundish.snapshot.records import (
    BatchRecord,
    CheckedFile,
    JournalRecord,
    RunHeader,
    ShardRecord,
    StoredError,
)

PAGE = (Path(__file__).resolve().parents[2] / "docs/design/006-snapshot.md").read_text()


class OwnError(Exception):
    pass


@pytest.mark.parametrize(
    "error",
    [
        ValueError(),
        ValueError("bad", 3, None, 1.5, [1, {"a": True}]),
        KeyError("missing"),
        StopIteration(7),
        FileNotFoundError(2, "No such file", "a.jpg"),
        UnicodeEncodeError("ascii", "ä", 0, 1, "not ASCII"),
        ZeroDivisionError("division by zero"),
    ],
    ids=repr,
)
def test_a_builtin_error_comes_back(error: Exception) -> None:
    stored = through_json(StoredError.of(5, error))
    made = stored.exception()

    assert type(made) is type(error)
    assert made.args == error.args
    assert str(made) == str(error)
    assert stored.n == 5


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OwnError("bad"), f"{__name__}.OwnError"),
        (ValueError(object), "ValueError"),
        (ValueError((1, 2)), "ValueError"),
        (ValueError(float("nan")), "ValueError"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "UnicodeDecodeError"),
        (ExceptionGroup("some", [ValueError()]), "ExceptionGroup"),
    ],
    ids=["own", "an object", "a tuple", "nan", "bytes", "a group"],
)
def test_another_comes_back_as_its_text(error: Exception, kind: str) -> None:
    made = through_json(StoredError.of(5, error)).exception()

    assert isinstance(made, TransformError)
    assert (made.type_name, made.text) == (kind, repr(error))


@pytest.mark.parametrize("kind", ["print", "int", "exit", "__import__"])
def test_no_name_of_a_builtin_does_more_than_make_an_error(kind: str) -> None:
    assert isinstance(StoredError(0, kind, ("x",), "").exception(), TransformError)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt("own"), GeneratorExit()])
def test_what_is_no_exception_comes_back_as_itself(error: BaseException) -> None:
    made = through_json(StoredError.of(5, error)).exception()

    assert type(made) is type(error)
    assert made.args == error.args


def test_an_error_that_takes_other_arguments_comes_back_as_its_text() -> None:
    assert isinstance(StoredError(0, "UnicodeError", (), "").exception(), UnicodeError)
    assert isinstance(StoredError(0, "UnicodeDecodeError", ("x",), "").exception(), TransformError)
    assert isinstance(StoredError(0, "ExceptionGroup", ("x", []), "").exception(), TransformError)


def through_json(error: StoredError) -> StoredError:
    record = JournalRecord(0, (), (), (error,), 0, None)
    return JournalRecord.from_bytes(record.to_bytes(), "journal").errors[0]


@pytest.mark.parametrize(
    "value",
    [
        HEADER,
        dataclasses.replace(HEADER, compression="lz4", part=(1, 3), options={"note": "ä"}),
        *RECORDS,
        Manifest.from_bytes(WHOLE["manifest.json"], ""),
        Manifest(
            KEY,
            "c",
            (ManifestRun(RUN, 3, 0, CheckedFile("i", 1, 2), CheckedFile("o", 3, 4)),),
            3,
            9,
        ),
    ],
    ids=["run", "part", "first", "second", "manifest", "with order"],
)
def test_what_is_written_is_what_is_read(value: Any) -> None:
    content = value.to_bytes()

    assert type(value).from_bytes(content, "file") == value
    assert content.isascii()
    assert content.count(b"\n") == 1
    assert content.startswith(b'{"format":[%d,%d],' % FORMAT)


@pytest.mark.parametrize("part", [[3, 3], [-1, 3], [0], [0, 1, 2], "0/3", [0.0, 3], {}])
def test_a_part_that_is_none(part: Any) -> None:
    fields = {**json.loads(HEADER.to_bytes()), "part": part}
    del fields["crc32"]
    with pytest.raises(ValueError, match=r'"part" is .*, not'):
        RunHeader.from_bytes(pack(fields), "run.json")


def test_every_checksum_is_zlibs() -> None:
    data = bytes(range(256)) * 40

    assert checksum.crc32(data) == zlib.crc32(data)
    assert checksum.crc32(memoryview(data)[100:], checksum.crc32(data[:100])) == zlib.crc32(data)


def test_a_finished_run_is_read_without_its_journal(tmp_path: Path) -> None:
    disk = Disk(tmp_path).put_all("journal/00000000.json", "journal/00000001.json")
    manifest = disk.catalog.manifest(KEY)
    assert manifest is not None
    found = read_finished(disk.catalog.at(KEY), manifest.runs[0])

    assert (found.next, found.records, found.outcome) == (10, 2, RunOutcome.COMPLETE)
    assert found.entries[["start", "rows", "shard"]].tolist() == [(0, 4, 0), (5, 5, 1)]
    assert [shard.file for shard in found.shards] == [s.file for r in RECORDS for s in r.shards]
    assert found.errors[4].text == "ValueError('bad', 4)"
    assert found.forms == (b"schema",)


# -- the page -------------------------------------------------------------------------------------


def test_the_page_is_enough_to_read_a_frame() -> None:
    """A frame is read as another program would read it, with nothing but the page."""
    for name in ("run.json", "manifest.json", "lease.json", "journal/00000000.json"):
        content = WHOLE[name]
        head, _, tail = content.rpartition(b',"crc32":')
        assert tail == b"%d}\n" % zlib.crc32(head)
        assert json.loads(head + b"}")["format"] == [1, 0]


def test_the_page_has_every_outcome() -> None:
    table = PAGE[PAGE.index("| outcome |") :].split("\n\n")[0]
    said = re.findall(r"`([A-Z_]+)`", "".join(line.split("|")[1] for line in table.splitlines()))

    assert sorted(said) == sorted(outcome.name for outcome in RunOutcome)


@pytest.mark.parametrize(
    "kind", [RunHeader, JournalRecord, ShardRecord, Manifest, ManifestRun, CheckedFile]
)
def test_the_page_has_every_field(kind: type) -> None:
    fields = {field.name for field in dataclasses.fields(kind)}

    assert {name for name in fields if f"`{name}`" not in PAGE and f'"{name}"' not in PAGE} == set()


def test_batches_are_the_numbers_that_the_page_names() -> None:
    assert f"`[{', '.join(BatchRecord._fields)}]`" in PAGE
    assert json.dumps(BatchRecord(*range(5))) == "[0, 1, 2, 3, 4]"


def test_outcomes_say_what_they_are() -> None:
    assert len({outcome.value for outcome in RunOutcome}) == len(RunOutcome)
    assert RunOutcome.COMPLETE.served
    assert not RunOutcome.COMPLETE.continued
    assert all(outcome.served for outcome in RunOutcome if outcome.continued)
    assert not RunOutcome.NEWER_FORMAT.served
