"""The manifest (``manifest.json``), which marks a snapshot as complete, and the states of keys and runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Self

from tundish.errors import SnapshotCorruptError
from tundish.snapshot.frame import JSON, Fields, by_name, pack, unpack
from tundish.snapshot.records import RUN_NAME, CheckedFile

if TYPE_CHECKING:
    from collections.abc import Mapping

Bytes = bytes  # another name, for classes with a field `bytes`


@dataclass(frozen=True)
class ManifestRun:
    """A run in a manifest: its rows, its last journal record, its index and its order."""

    run: str
    rows: int
    journal: int
    index: CheckedFile
    order: CheckedFile | None = None

    @classmethod
    def from_json(cls, fields: Fields) -> Self:
        index, order = fields.optional_object("index"), fields.optional_object("order")
        if index is None:
            raise fields.wrong("index", "an object")
        return cls(
            fields.text("run", RUN_NAME),
            fields.integer("rows"),
            fields.integer("journal"),
            CheckedFile.from_json(index),
            None if order is None else CheckedFile.from_json(order),
        )


@dataclass(frozen=True)
class Manifest:
    """``manifest.json``: a complete snapshot, over one run or several in order.

    Parameters
    ----------
    key, content : str
        The fingerprint's key; and a name of the elements in their order, which `compact` keeps.
    runs : tuple of ManifestRun
        The runs, in the order of their elements.
    rows, bytes : int
        The number of elements (including those that failed), and the size of all shards.
    compression : str, optional
        None, "lz4" or "zstd".
    user_shards : bool
        True if there was a ``shard_func``.
    element_spec : JSON
        For display; readers use the schemas of the shards.
    marks : mapping
        The entries "skipped", "unordered", "random".
    inputs : tuple
        The times at which the input files were written (`tundish.snapshot.fingerprint.differences.written`).
    created, library : str
        The time, and the version of this library.
    generation : int
        The number of times it was replaced by `compact`.
    """

    key: str
    content: str
    runs: tuple[ManifestRun, ...]
    rows: int
    bytes: int
    compression: str | None = None
    user_shards: bool = False
    element_spec: JSON = None
    marks: Mapping[str, JSON] = field(default_factory=dict)
    inputs: tuple[JSON, ...] = ()
    created: str = ""
    library: str = ""
    generation: int = 0

    def to_bytes(self) -> Bytes:
        return pack(by_name(self))

    @classmethod
    def from_bytes(cls, data: Bytes, path: str) -> Self:
        fields = unpack(data, path)
        manifest = cls(
            fields.text("key"),
            fields.text("content"),
            tuple(ManifestRun.from_json(run) for run in fields.objects("runs")),
            fields.integer("rows"),
            fields.integer("bytes"),
            fields.optional_text("compression"),
            fields.flag("user_shards"),
            fields.value.get("element_spec"),
            fields.mapping("marks"),
            tuple(fields.items("inputs")),
            fields.text("created"),
            fields.text("library"),
            fields.integer("generation"),
        )
        if manifest.rows != sum(run.rows for run in manifest.runs):
            raise SnapshotCorruptError(
                path, f"has {manifest.rows} rows, but its runs have another total"
            )
        return manifest


class RunOutcome(Enum):
    """The state of a key or a run; its value is a description for people.

    A reader gets elements in `served` states; a writer continues runs in `continued` states. Anything else is left
    alone: nothing is read from it, and a new run is begun beside it, or an error names the file if the snapshot had
    been complete.
    """

    EMPTY = "nothing is there"
    FRESH = "a run was begun, and none of its elements is durable"
    PREFIX = "a run was not finished; what its journal names is durable"
    FINISHED = "a run has all its elements and its index; only the manifest is missing"
    COMPLETE = "a manifest, and everything that it names"

    LOST_STATE = "the position after a durable prefix is missing; computing replays up to there"
    TORN_STATE = "the position after a durable prefix is cut off; computing replays up to there"
    EDITED_STATE = "the position after a durable prefix was changed; computing replays up to there"

    LOST_HEADER = "files of a run without its run.json: of one that was being begun, or removed"
    TORN_HEADER = "a run.json is cut off"
    EDITED_HEADER = "a run.json was changed"
    WRONG_HEADER = "a run.json is whole and not what it should be, or of another key"

    LOST_RECORD = "a journal record is missing, and later ones are there"
    TORN_JOURNAL = "a journal record is cut off"
    EDITED_JOURNAL = "a journal record was changed"
    WRONG_JOURNAL = "a journal record is whole and does not follow the one before it"

    LOST_SHARD = "a shard that was published is missing"
    TORN_SHARD = "a shard that was published has another size"

    TORN_MANIFEST = "a manifest is cut off"
    EDITED_MANIFEST = "a manifest was changed"
    WRONG_MANIFEST = "a manifest is whole and not what it should be, or of another key"
    LOST_RUN = "a run that the manifest names is missing"
    LOST_INDEX = "the index of a complete run is missing"
    TORN_INDEX = "the index of a complete run has another size"
    EDITED_INDEX = "the index of a complete run was changed"
    WRONG_INDEX = "the index of a complete run is whole and not what it should be"
    LOST_ORDER = "the order of a complete run with user shards is missing"
    TORN_ORDER = "the order of a complete run with user shards has another size"

    NEWER_FORMAT = "a later version of this library wrote it"

    @property
    def served(self) -> bool:
        """True if readers get elements (possibly none)."""
        return self in _SERVED

    @property
    def continued(self) -> bool:
        """True if a writer may continue the run."""
        return self in _CONTINUED


_CONTINUED = {
    RunOutcome.FRESH,
    RunOutcome.PREFIX,
    RunOutcome.FINISHED,
    RunOutcome.LOST_STATE,
    RunOutcome.TORN_STATE,
    RunOutcome.EDITED_STATE,
}
_SERVED = _CONTINUED | {RunOutcome.COMPLETE}
