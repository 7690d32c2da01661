"""A snapshot put on disk file by file, without a writer: every state that can be thought of.

The whole of it has ten elements in two shards of one batch each, and an error in the first half. The
shards hold no Arrow data: what is tested here looks at their names and sizes only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tundish.snapshot.catalog import Catalog
from tundish.snapshot.files.checksum import crc32
from tundish.snapshot.frame import pack
from tundish.snapshot.index import index_bytes
from tundish.snapshot.lease import Holder
from tundish.snapshot.manifest import Manifest, ManifestRun
from tundish.snapshot.records import (
    BatchRecord,
    CheckedFile,
    JournalRecord,
    RunHeader,
    ShardRecord,
    StoredError,
)
from tundish.snapshot.run import entries_of, read_run, run_table

KEY = "0123456789abcdef"
RUN = "a" * 32
DEAD = Holder(Holder.here().place, "here", 2**30, "0")  # no system has that many processes
FIRST, SECOND = "shard-000000-0badcafe.arrow", "shard-000001-0badcafe.arrow"
UNNAMED = "shard-000002-0badcafe.arrow"


def data(shard: int) -> bytes:
    """The bytes of a shard."""
    return bytes([shard + 1]) * (100 + shard)


def shard(number: int, start: int, rows: int) -> ShardRecord:
    """A shard with one batch."""
    content = data(number)
    batch = BatchRecord(start, rows, 8, len(content) - 8, crc32(content[8:]))
    return ShardRecord(f"shard-{number:06d}-0badcafe.arrow", len(content), rows, batches=(batch,))


def state(number: int) -> bytes:
    """A position of the upstream."""
    return b'{"n":%d}' % ((number + 1) * 5)


HEADER = RunHeader(KEY, "2026-01-01T00:00:00Z", "0.1.0", DEAD.to_json(), None, {"seed": 7})
RECORDS = (
    JournalRecord(
        0,
        (shard(0, 0, 4),),
        (b"schema",),
        (StoredError.of(4, ValueError("bad", 4)),),
        5,
        CheckedFile.of("state/00000000.json", state(0)),
        {"skipped": 1},
    ),
    JournalRecord(
        1,
        (shard(1, 5, 5),),
        (),
        (),
        10,
        CheckedFile.of("state/00000001.json", state(1)),
        {"skipped": 1},
    ),
)


def _whole_run() -> dict[str, bytes]:
    return {
        "run.json": HEADER.to_bytes(),
        FIRST: data(0),
        SECOND: data(1),
        "journal/00000000.json": RECORDS[0].to_bytes(),
        "journal/00000001.json": RECORDS[1].to_bytes(),
        "state/00000000.json": state(0),
        "state/00000001.json": state(1),
    }


@dataclass
class Disk:
    """A path with one key and one run, whose files come and go.

    Attributes
    ----------
    root : Path
        The path that ``snapshot`` is given.
    """

    root: Path
    catalog: Catalog = field(init=False)

    def __post_init__(self) -> None:
        self.catalog = Catalog(self.root)

    @property
    def run(self) -> Path:
        return self.root / KEY / "runs" / RUN

    def path(self, name: str) -> Path:
        """Return the path of a file of `WHOLE`."""
        return (self.root / KEY if name in KEY_FILES else self.run) / name

    def put(self, name: str, content: bytes | None = None) -> Path:
        """Write a file of `WHOLE`, or another; not as a writer does."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(WHOLE[name] if content is None else content)
        return path

    def take(self, name: str) -> None:
        """Remove a file, and the folders that are empty then."""
        path = self.path(name)
        path.unlink()
        while path.parent != self.root and not any(path.parent.iterdir()):
            path = path.parent
            path.rmdir()

    def put_all(self, *without: str) -> Disk:
        """The complete snapshot, but for some files."""
        for name in WHOLE:
            if name not in without:
                self.put(name)
        return self

    def files(self) -> set[str]:
        """All files of the run."""
        return {str(path.relative_to(self.run)) for path in self.run.rglob("*") if path.is_file()}


KEY_FILES = {"manifest.json", "pipeline.json", "lease.json"}
UNFINISHED = (*_whole_run(), "pipeline.json", "lease.json")
"""The files of a run that is not finished."""


def _whole() -> dict[str, bytes]:
    import tempfile

    run = _whole_run()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / KEY / "runs" / RUN
        for name, content in run.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
        prefix = read_run(Catalog(folder).at(KEY), RUN)
    index = index_bytes(entries_of(prefix.shards), run_table(prefix))
    entry = ManifestRun(RUN, 10, 1, CheckedFile.of("index.arrow", index))
    manifest = Manifest(KEY, "content", (entry,), 10, prefix.bytes, created="2026-01-01T00:00:01Z")
    return run | {
        "index.arrow": index,
        "manifest.json": manifest.to_bytes(),
        "pipeline.json": b"[]\n",
        "lease.json": pack({"run": RUN, "token": "t", "holder": DEAD.to_json()}),
        f"{UNNAMED}.tmp": b"not yet",
    }


WHOLE = _whole()
"""Every file of a complete snapshot, and one temporary one: name -> bytes."""
