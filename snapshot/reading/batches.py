"""The record batches of a snapshot: decoded when they are touched, and kept while there is room.

Files of this machine's disks are mapped, and the mappings kept up to a number: each takes one of the
process's, and before Python 3.13 a descriptor. Nothing is mapped before its size was compared, and files
are never changed, so no access runs behind their end.
"""

from __future__ import annotations

import mmap
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import psutil
import pyarrow as pa

from tundish.errors import SnapshotCorruptError
from tundish.snapshot.encoding.forms import INDEX, Decoded, Form, decode
from tundish.snapshot.files.checksum import crc32

if TYPE_CHECKING:
    from tundish.snapshot.files.mapping import Mapping
    from tundish.snapshot.files.store import Store
    from tundish.snapshot.records import Shard
    from tundish.snapshot.run import Prefix

__all__ = ["CACHE_BYTES", "VERIFY", "Batches", "open_limit"]

VERIFY = ("size", "batch", "full")
CACHE_BYTES = 256 << 20
_MAGIC = b"ARROW1\0\0"
_REMEDY = "restore the file, or remove the snapshot's folder so that it is written anew"
_DAMAGE = (
    pa.ArrowException,
    EOFError,
    KeyError,
    OSError,
    OverflowError,
    StopIteration,
    TypeError,
    ValueError,
)
"""What pyarrow and numpy raise over bytes that are not those of a batch."""


def open_limit() -> int:
    """How many shards are mapped at once."""
    if sys.version_info >= (3, 13):  # a mapping needs no descriptor
        return 4096
    soft = psutil.Process().rlimit(psutil.RLIMIT_NOFILE)[0] if psutil.LINUX else 1024
    return 1024 if soft < 0 else max(16, min(1024, soft // 4))  # below 0: as many as one likes


class _Open:
    """A mapped shard, and which of its batches are decoded."""

    __slots__ = ("batches", "buffer", "mapping")

    def __init__(self, mapping: Mapping) -> None:
        self.mapping = mapping
        self.buffer = pa.py_buffer(mapping)
        self.batches: set[int] = set()


class Batches:
    """All batches of some runs, in order.

    Parameters
    ----------
    store : callable
        Gives the store of the key's folder.
    prefixes : sequence of Prefix
        The runs.
    verify : {"size", "batch", "full"}
        "batch": every batch's crc32 is compared when it is decoded first.
    mapped : bool
        Whether shards are mapped; else their bytes are read.
    cache_bytes : int
        What decoded batches may take, beside what is mapped.

    Attributes
    ----------
    ready : dict of int to callable
        The `Decoded.element` of the batches that are decoded: reading an element is two look-ups.
    """

    def __init__(
        self,
        store: Callable[[], Store],
        prefixes: Sequence[Prefix],
        verify: str,
        *,
        mapped: bool,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self._store = store
        self._mapped, self._room, self._open_limit = mapped, cache_bytes, open_limit()
        self._files: list[tuple[str, Shard, int]] = []
        self.forms: list[Form] = []
        self._schemas: list[Any] = []
        self._heads: list[bytes] = []
        entries, first = [], 0
        for prefix in prefixes:
            own = prefix.entries.copy()
            own["start"] += first
            own["shard"] += len(self._files)
            entries.append(own)
            self._files += [
                (f"runs/{prefix.run}/{shard.file}", shard, len(self.forms) + shard.form)
                for shard in prefix.shards
            ]
            self._add_forms(prefix.forms)
            first += prefix.next
        self.entries = np.concatenate(entries) if entries else np.empty(0, [("start", "i8")])
        compressed = [p.header.compression is not None for p in prefixes for _ in p.shards]
        self._compressed = compressed  # by shard
        self._unchecked = np.full(len(self.entries), verify != "size")
        self._open: OrderedDict[int, _Open] = OrderedDict()
        self._decoded: dict[int, tuple[Decoded, int]] = {}
        self._cost = 0
        self._lock = threading.RLock()
        self.ready: dict[int, Callable[[int], Any]] = {}

    def _add_forms(self, forms: Sequence[bytes]) -> None:
        for serialized in forms:
            schema = pa.ipc.read_schema(pa.py_buffer(serialized))
            self._heads.append(_MAGIC + serialized)
            self._schemas.append(schema)
            self.forms.append(Form.from_schema(schema))

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, b: int) -> Decoded:
        found = self._decoded.get(b)
        return found[0] if found is not None else self._load(b)

    def renew(self) -> None:
        """Make it right in a forked child: a thread that is not here may have held the lock."""
        self._lock = threading.RLock()

    # -- decoding ------------------------------------------------------------------------------

    def _load(self, b: int) -> Decoded:
        with self._lock:
            found = self._decoded.get(b)
            if found is not None:  # by another thread
                return found[0]
            number = int(self.entries[b]["shard"])
            batch, opened = self._record_batch(b)
            cost = 0 if opened is not None and not self._compressed[number] else batch.nbytes
            try:
                mapping = None if opened is None else opened.mapping
                decoded = decode(batch, self.forms[self._files[number][2]], mapping)
            except _DAMAGE as problem:
                self.fail(b, problem)
            cost += decoded.cost
            self._decoded[b] = decoded, cost
            self.ready[b] = decoded.element
            self._cost += cost
            if opened is not None:
                opened.batches.add(b)
            self._make_room(b)
            return decoded

    def _record_batch(self, b: int) -> tuple[Any, _Open | None]:
        entry = self.entries[b]
        number, first, length = int(entry["shard"]), int(entry["offset"]), int(entry["length"])
        form = self._files[number][2]
        opened = self._opened(number) if self._mapped else None
        data = self._bytes(b) if opened is None else opened.buffer.slice(first, length)
        if self._unchecked[b]:
            self._check(b, data)
            self._unchecked[b] = False
        try:
            if self._compressed[number]:
                batch = _decompressed(data, self._heads[form])
            else:
                batch = pa.ipc.read_record_batch(pa.py_buffer(data), self._schemas[form])
        except _DAMAGE as problem:
            self.fail(b, problem)
        if batch.num_rows != entry["rows"]:
            self.fail(b, f"has {batch.num_rows} rows, {entry['rows']} were written")
        return batch, opened

    def _bytes(self, b: int) -> bytes:
        entry = self.entries[b]
        name, length = self._files[int(entry["shard"])][0], int(entry["length"])
        try:
            data = self._store().read_range(name, int(entry["offset"]), length)
        except FileNotFoundError:
            self.fail(b, "the file is missing")
        if len(data) != length:
            self.fail(b, f"has {len(data):,} bytes, {length:,} were written")
        return data

    def _check(self, b: int, data: Any) -> None:
        found, written = crc32(data), int(self.entries[b]["crc32"])
        if found != written:
            self.fail(b, f"its bytes have crc32 {found}, {written} was written")

    def _opened(self, number: int) -> _Open:
        opened = self._open.get(number)
        if opened is not None:
            self._open.move_to_end(number)
            return opened
        name, shard, form = self._files[number]
        store = self._store()
        path = store.shown(name)
        try:
            mapping = store.map(name)
        except FileNotFoundError:
            raise SnapshotCorruptError(path, "is missing", remedy=_REMEDY) from None
        if len(mapping) != shard.bytes:
            problem = f"has {len(mapping):,} bytes, {shard.bytes:,} were written"
            raise SnapshotCorruptError(path, problem, remedy=_REMEDY)
        head = self._heads[form]
        if mapping[: len(head)] != head:
            problem = "does not begin with the schema that it was written with"
            raise SnapshotCorruptError(path, problem, remedy=_REMEDY)
        while len(self._open) >= self._open_limit:
            self._close(next(iter(self._open)))
        self._open[number] = opened = _Open(mapping)
        return opened

    def _close(self, number: int) -> None:
        with self._lock:
            opened = self._open.pop(number, None)
            for b in () if opened is None else opened.batches:
                self._drop(b)

    def _make_room(self, newest: int) -> None:
        while self._cost > self._room and len(self._decoded) > 1:
            oldest = next(iter(self._decoded))
            if oldest == newest:
                break
            opened = self._open.get(int(self.entries[oldest]["shard"]))
            if opened is not None:
                opened.batches.discard(oldest)
            self._drop(oldest)

    def _drop(self, b: int) -> None:
        _, cost = self._decoded.pop(b)
        del self.ready[b]
        self._cost -= cost

    # -- what else is asked ----------------------------------------------------------------------

    def numbers(self, b: int) -> np.ndarray:
        """The elements that the rows of a batch are, counted from the begin of the first run."""
        entry = self.entries[b]
        schema = self._schemas[self._files[int(entry["shard"])][2]]
        at = schema.get_field_index(INDEX)
        if at < 0:
            return np.arange(entry["start"], entry["start"] + entry["rows"])
        with self._lock:
            found = self._record_batch(b)[0].column(at).to_numpy()
        if len(found) and (np.diff(found) <= 0).any():
            self.fail(b, "its elements are not in order")
        shifted: np.ndarray = found + (entry["start"] - found[0])
        return shifted

    def user_shard(self, b: int) -> int | None:
        """What ``shard_func`` said of a batch's elements; None if there was none."""
        return self._files[int(self.entries[b]["shard"])][1].user_shard

    def advise(self, b: int) -> None:
        """Ask the system to read a batch ahead."""
        if not self._mapped or not hasattr(mmap, "MADV_WILLNEED"):
            return
        entry = self.entries[b]
        first = int(entry["offset"]) // mmap.PAGESIZE * mmap.PAGESIZE
        length = int(entry["offset"]) + int(entry["length"]) - first
        with self._lock:
            mapping = self._opened(int(entry["shard"])).mapping
            mapping.madvise(mmap.MADV_WILLNEED, first, length)

    def check(self) -> None:
        """Compare every batch's crc32, and what stands around them in the files.

        Raises
        ------
        SnapshotCorruptError
            For the first that is not what was written.
        """
        for number, (name, shard, form) in enumerate(self._files):
            data = self._file(number)
            own = np.flatnonzero(self.entries["shard"] == number)
            first = last = len(self._heads[form])
            for b in own[np.argsort(self.entries["offset"][own])].tolist():
                entry = self.entries[b]
                self._check(b, data.slice(int(entry["offset"]), int(entry["length"])))
                last = int(entry["offset"]) + int(entry["length"])
            problem = _frame_problem(data, self._heads[form], len(own), shard.bytes)
            frame = crc32(data.slice(last), crc32(data.slice(0, first)))
            if not problem and shard.frame not in (None, frame):
                problem = f"its footer has crc32 {frame}, {shard.frame} was written"
            if problem:
                raise SnapshotCorruptError(self._store().shown(name), problem, remedy=_REMEDY)

    def _file(self, number: int) -> Any:
        name, shard, _ = self._files[number]
        if self._mapped:
            with self._lock:
                return self._opened(number).buffer
        try:
            return pa.py_buffer(self._store().read(name, shard.bytes))
        except FileNotFoundError:
            path = self._store().shown(name)
            raise SnapshotCorruptError(path, "is missing", remedy=_REMEDY) from None

    def fail(self, b: int, problem: Any) -> NoReturn:
        """Raise the error of a batch that is not what was written."""
        store = self._store()
        text = problem if isinstance(problem, str) else f"cannot be read: {problem!r}"
        if not 0 <= b < len(self.entries):
            raise SnapshotCorruptError(store.shown(), f"there is no batch {b}", remedy=_REMEDY)
        entry = self.entries[b]
        self._close(int(entry["shard"]))  # who restores the file and asks again sees the new one
        path = store.shown(self._files[int(entry["shard"])][0])
        raise SnapshotCorruptError(path, text, int(entry["start"]), _REMEDY) from None


def _frame_problem(data: Any, head: bytes, batches: int, size: int) -> str:
    """What any reader of Arrow would trip over in a file, beside its batches; "" for nothing."""
    if data.size != size:
        return f"has {data.size:,} bytes, {size:,} were written"
    try:
        file = pa.ipc.open_file(data)
        found, schema = file.num_record_batches, file.schema.serialize().to_pybytes()
    except _DAMAGE as problem:
        return f"its footer cannot be read: {problem!r}"
    if data.slice(0, len(head)).to_pybytes() != head or schema != head[len(_MAGIC) :]:
        return "its schema is not the one that was written"
    return "" if found == batches else f"its footer has {found} batches, {batches} were written"


def _decompressed(data: Any, head: bytes) -> Any:
    """A compressed batch; `pyarrow.ipc.read_record_batch` would start threads for it."""
    stream = pa.py_buffer(b"".join((head[len(_MAGIC) :], data)))
    options = pa.ipc.IpcReadOptions(use_threads=False)
    return pa.ipc.open_stream(stream, options=options).read_next_batch()
