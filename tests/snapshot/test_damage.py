"""Files that are not what was written: noticed, named, and what was durable before them still read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.snapshot.disk import DEAD, FIRST, KEY, RECORDS, RUN, SECOND, WHOLE, Disk

from tundish.errors import SnapshotCorruptError, SnapshotError, SnapshotVersionError
from tundish.snapshot.files.checksum import crc32
from tundish.snapshot.finished import read_finished
from tundish.snapshot.frame import FORMAT
from tundish.snapshot.index import read_index
from tundish.snapshot.lease import adopt_run
from tundish.snapshot.manifest import Manifest, RunOutcome
from tundish.snapshot.records import JournalRecord, RunHeader
from tundish.snapshot.run import read_run

Change = Callable[[bytes], bytes]


def reframed(content: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """A JSON file whose fields were changed by someone who knows how its checksum is made."""
    fields = json.loads(content)
    del fields["crc32"]
    change(fields)
    head = json.dumps(fields, separators=(",", ":"))[:-1].encode()
    return head + b',"crc32":%d}\n' % crc32(head)


def setting(**values: Any) -> Change:
    return lambda content: reframed(content, lambda fields: fields.update(values))


def by_hand(content: bytes) -> bytes:
    """Return the content as an editor leaves it that someone formatted the file with."""
    return json.dumps(json.loads(content), indent=2).encode()


NEWER = {"format": [FORMAT[0] + 1, 0]}
SECOND_RECORD = "journal/00000001.json"
FIRST_RECORD = "journal/00000000.json"

CHANGES: dict[str, tuple[Change, str]] = {
    "empty": (lambda content: b"", "TORN"),
    "zeros": (lambda content: bytes(len(content)), "TORN"),
    "torn": (lambda content: content[:-20], "TORN"),
    "zero tail": (lambda content: content[:-20] + bytes(20), "TORN"),
    "doubled": (lambda content: content + content, "TORN"),
    "not text": (lambda content: b"\xff" + content, "TORN"),
    "nested without end": (lambda content: b"[" * 100_000, "TORN"),
    "a long number": (lambda content: content[:-2] + b"9" * 5000 + b"}\n", "TORN"),
    "formatted": (by_hand, "EDITED"),
    "one value": (lambda content: content.replace(b"0", b"1", 1), "EDITED"),
    "a list": (lambda content: b"[]", "WRONG"),
    "without a version": (setting(format=None), "WRONG"),
    "a newer format": (setting(**NEWER), "NEWER"),
    "a feature": (setting(requires=["columns in squares"]), "NEWER"),
    "features that are none": (setting(requires=7), "WRONG"),
}


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize(
    ("name", "file"),
    [("run.json", "HEADER"), (SECOND_RECORD, "JOURNAL"), ("manifest.json", "MANIFEST")],
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, file: str, how: str) -> None:
    disk = Disk(tmp_path)
    disk.put_all(*([] if name == "manifest.json" else ["manifest.json", "index.arrow"]))
    change, kind = CHANGES[how]
    path = disk.put(name, change(WHOLE[name]))
    outcome, error = disk.catalog.examine(KEY)

    if how == "empty" and name != "run.json":
        # On a filesystem without links, a writer that died between taking the name and filling it.
        assert outcome is (RunOutcome.FINISHED if file == "MANIFEST" else RunOutcome.PREFIX)
        return
    assert outcome is (RunOutcome.NEWER_FORMAT if kind == "NEWER" else RunOutcome[f"{kind}_{file}"])
    assert not outcome.served
    assert not outcome.continued
    assert isinstance(error, SnapshotVersionError if kind == "NEWER" else SnapshotCorruptError)
    assert str(path) in str(error)
    if name == SECOND_RECORD:
        prefix = read_run(disk.catalog.at(KEY), RUN)
        assert (prefix.next, prefix.state, type(prefix.problem)) == (5, None, type(error))
        assert read_run(disk.catalog.at(KEY), RUN, upto=1).next == 5
        with pytest.raises(SnapshotError, match=str(path)):
            read_run(disk.catalog.at(KEY), RUN, upto=2)
    if name == "manifest.json":
        assert read_run(disk.catalog.at(KEY), RUN).next == 10


READERS = {
    "run.json": RunHeader.from_bytes,
    SECOND_RECORD: JournalRecord.from_bytes,
    "manifest.json": Manifest.from_bytes,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_every_bit_and_every_length_of_a_record_is_checked(name: str) -> None:
    content, read = WHOLE[name], READERS[name]
    whole = read(content, name)
    for length in range(len(content) - 1):  # without its last line end it is whole
        with pytest.raises(SnapshotError, match=name):
            read(content[:length], name)
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            assert read(bytes(flipped), name) == whole  # the last line end may be another space
            assert bit // 8 == len(content) - 1
        except SnapshotError as error:
            assert name in str(error)  # noqa: PT017 - one flip may change nothing


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_a_record_with_strange_values_is_read_or_refused(name: str) -> None:
    """With a right checksum: no KeyError, TypeError, OverflowError or endless loop, whatever stands there."""
    strange: list[Any] = [
        None,
        -1,
        0,
        2**63,
        2**70,
        1.5,
        True,
        "",
        "x",
        "../x",
        [],
        [None],
        [[]],
        [[0] * 5],
        {},
        {"file": 1},
    ]
    tried = refused = 0
    for content in variants(json.loads(WHOLE[name]), strange):
        framed = reframed(json.dumps(content).encode(), lambda fields: None)
        tried += 1
        try:
            READERS[name](framed, name)
        except SnapshotError as error:
            assert name in str(error)  # noqa: PT017 - some are read
            refused += 1

    assert tried > refused > tried // 3


def variants(value: Any, strange: list[Any]) -> Iterator[Any]:
    """A JSON value with each part of it, at any depth, missing or replaced."""
    if isinstance(value, dict):
        for key in value:
            if key == "crc32" and "format" in value:
                continue
            yield {k: v for k, v in value.items() if k != key}
            for other in [*strange, *variants(value[key], strange)]:
                yield value | {key: other}
    elif isinstance(value, list):
        for k in range(len(value)):
            for other in [*strange, *variants(value[k], strange)]:
                yield [*value[:k], other, *value[k + 1 :]]


def wrong_journals() -> dict[str, dict[str, bytes]]:
    """Records that are whole, and not the next ones."""
    second = WHOLE[SECOND_RECORD]
    shard = json.loads(second)["shards"][0]
    first = json.loads(WHOLE[FIRST_RECORD])["shards"][0]
    errors = [[4, "ValueError", None, ""]]
    batch = shard["batches"][0]
    return {
        "the first twice": {SECOND_RECORD: WHOLE[FIRST_RECORD]},
        "the first twice, numbered": {SECOND_RECORD: setting(n=1)(WHOLE[FIRST_RECORD])},
        "two exchanged": {FIRST_RECORD: second, SECOND_RECORD: WHOLE[FIRST_RECORD]},
        "a third that is the second": {"journal/00000002.json": setting(n=2)(second)},
        "a fence twice": {
            "journal/00000002.json": setting(n=2, shards=[])(second),
            "journal/00000003.json": setting(n=2, shards=[])(second),
        },
        "fewer elements than rows": {SECOND_RECORD: setting(next=9)(second)},
        "more elements than rows": {SECOND_RECORD: setting(next=11)(second)},
        "backwards": {SECOND_RECORD: setting(next=4, shards=[])(second)},
        "an error of before": {SECOND_RECORD: setting(next=11, errors=errors)(second)},
        "an element twice": {
            SECOND_RECORD: setting(next=11, errors=[[7, "ValueError", None, ""]])(second)
        },
        "elements of before": {
            SECOND_RECORD: setting(shards=[{**shard, "batches": [[4, *batch[1:]]]}])(second)
        },
        "a shard of before": {
            SECOND_RECORD: setting(
                next=9, shards=[{**first, "batches": [[5, *first["batches"][0][1:]]]}]
            )(second)
        },
        "an unknown form": {SECOND_RECORD: setting(shards=[{**shard, "form": 1}])(second)},
        "behind the end of the file": {
            SECOND_RECORD: setting(shards=[{**shard, "batches": [[5, 5, 50, 52, 0]]}])(second)
        },
        "other rows than its batches": {
            SECOND_RECORD: setting(shards=[{**shard, "rows": 6}])(second)
        },
        "a path": {SECOND_RECORD: setting(shards=[{**shard, "file": "../../x.arrow"}])(second)},
    }


@pytest.mark.parametrize("how", wrong_journals())
def test_a_record_that_does_not_follow_ends_the_prefix(tmp_path: Path, how: str) -> None:
    disk = Disk(tmp_path).put_all("manifest.json", "index.arrow")
    for name, content in wrong_journals()[how].items():
        disk.put(name, content)
    prefix = read_run(disk.catalog.at(KEY), RUN)
    durable = {"two exchanged": 0, "a third that is the second": 10, "a fence twice": 10}.get(
        how, 5
    )

    assert (prefix.outcome, prefix.next) == (RunOutcome.WRONG_JOURNAL, durable)
    assert str(disk.run / "journal") in str(prefix.problem)
    assert disk.catalog.best_run(KEY) is None
    assert adopt_run(disk.catalog.at(KEY), RUN, DEAD.to_json()) is None


def test_a_gap_ends_the_prefix(tmp_path: Path) -> None:
    disk = Disk(tmp_path).put_all("manifest.json", "index.arrow", FIRST_RECORD)
    disk.put("journal/00000007.json", WHOLE[SECOND_RECORD])
    prefix = read_run(disk.catalog.at(KEY), RUN)

    assert (prefix.outcome, prefix.next) == (RunOutcome.LOST_RECORD, 0)
    assert str(prefix.problem) == f"{disk.path(FIRST_RECORD)}: is missing, and number 7 is there"


def test_records_that_are_not_yet_published_do_not_count(tmp_path: Path) -> None:
    disk = Disk(tmp_path).put_all("manifest.json", "index.arrow", SECOND_RECORD)
    disk.put(f"{SECOND_RECORD}.1a2b3c4d.tmp", WHOLE[SECOND_RECORD])
    prefix = read_run(disk.catalog.at(KEY), RUN)

    assert (prefix.outcome, prefix.next) == (RunOutcome.PREFIX, 5)


STATES: dict[str, tuple[Change, RunOutcome]] = {
    "torn": (lambda content: content[:-1], RunOutcome.TORN_STATE),
    "empty": (lambda content: b"", RunOutcome.TORN_STATE),
    "longer": (lambda content: content + b" ", RunOutcome.TORN_STATE),
    "edited": (lambda content: content.replace(b"10", b"11"), RunOutcome.EDITED_STATE),
}


@pytest.mark.parametrize("how", STATES)
def test_a_damaged_state_costs_a_replay_and_no_element(tmp_path: Path, how: str) -> None:
    disk = Disk(tmp_path).put_all("manifest.json", "index.arrow")
    change, outcome = STATES[how]
    path = disk.put("state/00000001.json", change(WHOLE["state/00000001.json"]))
    prefix = disk.catalog.best_run(KEY)

    assert prefix is not None
    assert (prefix.outcome, prefix.next, prefix.state) == (outcome, 10, None)
    assert str(path) in str(prefix.problem)
    adopted = adopt_run(disk.catalog.at(KEY), RUN, DEAD.to_json())
    assert adopted is not None
    assert (
        read_run(disk.catalog.at(KEY), RUN).outcome is RunOutcome.PREFIX
    )  # and is not asked about again


SHARDS: dict[str, tuple[Change, RunOutcome]] = {
    "short": (lambda content: content[:50], RunOutcome.TORN_SHARD),
    "empty": (lambda content: b"", RunOutcome.TORN_SHARD),
    "longer": (lambda content: content + b"\0", RunOutcome.TORN_SHARD),
}


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("how", SHARDS)
def test_a_shard_of_another_size_names_file_and_batch(
    tmp_path: Path, how: str, complete: bool
) -> None:
    disk = Disk(tmp_path).put_all(*([] if complete else ["manifest.json", "index.arrow"]))
    change, expected = SHARDS[how]
    path = disk.put(SECOND, change(WHOLE[SECOND]))
    outcome, error = disk.catalog.examine(KEY)

    assert outcome is expected
    assert isinstance(error, SnapshotCorruptError)
    assert (error.path, error.batch) == (str(path), None if how == "longer" else 5)
    assert read_run(disk.catalog.at(KEY), RUN).next == 5


INDICES: dict[str, tuple[Change, RunOutcome]] = {
    "short": (lambda content: content[:-8], RunOutcome.TORN_INDEX),
    "zero tail": (lambda content: content[:-8] + bytes(8), RunOutcome.EDITED_INDEX),
    "bit flip": (
        lambda content: content[:300] + bytes([content[300] ^ 4]) + content[301:],
        RunOutcome.EDITED_INDEX,
    ),
    "longer": (lambda content: content + b"\0", RunOutcome.TORN_INDEX),
}


@pytest.mark.parametrize("how", INDICES)
def test_a_damaged_index_is_named(tmp_path: Path, how: str) -> None:
    disk = Disk(tmp_path).put_all()
    change, expected = INDICES[how]
    path = disk.put("index.arrow", change(WHOLE["index.arrow"]))
    outcome, error = disk.catalog.examine(KEY)

    assert outcome is expected
    assert str(path) in str(error)
    assert read_run(disk.catalog.at(KEY), RUN, upto=2).next == 10


@pytest.mark.slow
def test_every_byte_of_an_index_is_checked_without_a_manifest_too(tmp_path: Path) -> None:
    """An index must say what the journal says; and whatever stands there, the journal is read."""
    disk = Disk(tmp_path).put_all("manifest.json")
    content = WHOLE["index.arrow"]
    said = read_index(content, "")
    named = set()
    for place in range(len(content)):
        changed = content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :]
        disk.put("index.arrow", changed)
        prefix = read_run(disk.catalog.at(KEY), RUN)
        named.add(prefix.outcome)
        assert prefix.next == 10
        if prefix.outcome is RunOutcome.FINISHED:  # a flip in padding changes nothing that is read
            entries, table = read_index(changed, "")
            assert (entries.tolist(), table) == (said[0].tolist(), said[1])

    assert named == {RunOutcome.FINISHED, RunOutcome.WRONG_INDEX}


def test_an_index_with_columns_of_other_types_is_none() -> None:
    table = pa.ipc.open_file(WHOLE["index.arrow"]).read_all()
    number = table.schema.get_field_index("start")
    other = table.set_column(number, "start", table.column("start").cast(pa.float64()))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, other.schema) as writer:
        writer.write_table(other)

    with pytest.raises(SnapshotCorruptError, match=r"index.arrow: is not an index of a run"):
        read_index(sink.getvalue().to_pybytes(), "index.arrow")


def test_an_index_of_another_run_is_wrong(tmp_path: Path) -> None:
    disk = Disk(tmp_path).put_all()
    manifest = disk.catalog.manifest(KEY)
    assert manifest is not None
    entry = json.loads(WHOLE["manifest.json"])["runs"][0]
    disk.put(
        "manifest.json", setting(rows=11, runs=[{**entry, "rows": 11}])(WHOLE["manifest.json"])
    )
    outcome, error = disk.catalog.examine(KEY)

    assert outcome is RunOutcome.WRONG_INDEX
    assert "9 rows and 1 errors, and the manifest says 11 elements" in str(error)
    assert read_finished(disk.catalog.at(KEY), manifest.runs[0]).next == 10


def test_a_manifest_that_contradicts_itself_is_wrong(tmp_path: Path) -> None:
    disk = Disk(tmp_path).put_all()
    disk.put("manifest.json", setting(rows=11)(WHOLE["manifest.json"]))
    outcome, error = disk.catalog.examine(KEY)

    assert outcome is RunOutcome.WRONG_MANIFEST
    assert "has 11 rows, but its runs have another total" in str(error)


def test_a_manifest_or_run_of_another_key_is_not_taken(tmp_path: Path) -> None:
    disk = Disk(tmp_path).put_all()
    disk.put("manifest.json", setting(key="f" * 16)(WHOLE["manifest.json"]))

    assert disk.catalog.examine(KEY)[0] is RunOutcome.WRONG_MANIFEST
    disk.take("manifest.json")
    disk.put("run.json", setting(key="f" * 16)(WHOLE["run.json"]))
    assert disk.catalog.examine(KEY)[0] is RunOutcome.WRONG_HEADER
    assert disk.catalog.best_run(KEY) is None


def test_a_higher_minor_version_and_unknown_keys_are_read(tmp_path: Path) -> None:
    disk = Disk(tmp_path).put_all()
    for name in ("run.json", FIRST_RECORD, SECOND_RECORD, "manifest.json"):
        disk.put(name, setting(format=[FORMAT[0], 7], colour="green")(WHOLE[name]))

    assert disk.catalog.examine(KEY)[0] is RunOutcome.COMPLETE
    disk.take("manifest.json")
    assert disk.catalog.examine(KEY)[0] is RunOutcome.FINISHED


def test_versions_and_problems_cross_processes() -> None:
    import pickle

    error = SnapshotVersionError("a/manifest.json", "2.0", "1.x")

    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert "a/manifest.json is of format 2.0, this library reads 1.x" in str(error)


def test_what_a_journal_says_is_what_was_said() -> None:
    for record in RECORDS:
        assert JournalRecord.from_bytes(record.to_bytes(), "") == record


def test_a_damaged_description_does_not_keep_from_reading(tmp_path: Path) -> None:
    disk = Disk(tmp_path).put_all("pipeline.json")
    path = disk.put("pipeline.json", b"[1, 2")

    assert disk.catalog.examine(KEY)[0] is RunOutcome.COMPLETE
    with pytest.raises(SnapshotCorruptError, match=str(path)):
        disk.catalog.pipeline(KEY)


def test_shards_that_no_record_names_are_nobodys(tmp_path: Path) -> None:
    disk = Disk(tmp_path).put_all("manifest.json", "index.arrow", SECOND_RECORD)
    prefix = adopt_run(disk.catalog.at(KEY), RUN, DEAD.to_json())

    assert prefix is not None
    assert {FIRST, "run.json"} < disk.files()
    assert SECOND not in disk.files()
