"""The record batches of a snapshot, decoded on first access and cached.

Local files are mapped, up to a number of mappings: each uses one of the process's mappings, and a descriptor. A batch of
a mapped file is compared with its checksum once, by the first process that accesses it; a fetched one each time. Before
anything is handed out, the file is checked to be what was mapped: an access beyond its end would be a SIGBUS.
"""

from __future__ import annotations

import math
import mmap
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import psutil
import pyarrow as pa

from tundish.errors import SnapshotCorruptError
from tundish.snapshot.encoding.forms import INDEX, Decoded, Form, decode
from tundish.snapshot.encoding.kinds import Fixed
from tundish.snapshot.files.checksum import crc32
from tundish.snapshot.reading.taking import ALIGNED, items_of
from tundish.snapshot.reading.verified import mark_of, verified

if TYPE_CHECKING:
    from tundish.snapshot.files.mapping import Mapping
    from tundish.snapshot.files.store import Store
    from tundish.snapshot.records import ShardRecord
    from tundish.snapshot.run import Prefix

VERIFY = ("size", "batch", "full")
CACHE_BYTES = 256 << 20
LOOK_S = 0.01
"""Seconds for which a file is assumed to be unchanged when one of its elements is requested."""

_MOST_ITEM = 2**31  # bytes, from which numpy has no dtype

_MAGIC = b"ARROW1\0\0"
_REMEDY = "restore the file, or remove the snapshot's folder so that it is written again"
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
"""The errors of pyarrow and numpy about bytes that are no batch."""


def open_limit() -> int:
    """Return how many shards are mapped at a time, each with a descriptor."""
    soft = psutil.Process().rlimit(psutil.RLIMIT_NOFILE)[0] if psutil.LINUX else 1024
    return 1024 if soft < 0 else max(16, min(1024, soft // 4))  # less than 0: unlimited


class _Open:
    """A mapped shard, and its decoded batches.

    Attributes
    ----------
    size : callable
        Returns the file's present size; None for data without a file.
    whole : int
        The expected size.
    asked : float
        When (`time.monotonic`) the file was last checked for changes.
    items : list of ndarray
        For each leaf an array of all possible rows in the file; made on first use.
    """

    __slots__ = ("asked", "batches", "buffer", "items", "mapping", "size", "whole")

    def __init__(self, mapping: Mapping) -> None:
        self.mapping, self.size, self.whole = mapping, mapping.size, len(mapping)
        self.asked = monotonic()
        self.buffer = pa.py_buffer(mapping)
        self.batches: set[int] = set()
        self.items: list[np.ndarray] = []

    def changed(self) -> bool:
        """Return True if the file has been replaced or changed since it was mapped."""
        if self.mapping.changed():
            return True
        self.asked = monotonic()
        return False


class _Fetched:
    """Stands for a mapped shard if the bytes of batches are in memory, where they never change."""

    size = int
    whole = 0
    asked = math.inf

    def changed(self) -> bool:
        """Return False: they never change."""
        return False


FETCHED = _Fetched()
"""The one instance."""


class Batches:
    """All batches of several runs, in order.

    Parameters
    ----------
    store : callable
        Returns the store of the key's folder.
    prefixes : sequence of Prefix
        The runs.
    verify : {"size", "batch", "full"}
        Unless it is "size", every batch's crc32 is compared on first access.
    mapped : bool
        True to map shards; False to read their bytes.
    cache_bytes : int
        The limit for decoded batches, in addition to what is mapped.

    Attributes
    ----------
    ready : dict of int to pair
        By batch number, the `Decoded.element` of a decoded batch and its open shard, whose size must be checked.
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
        self._files: list[tuple[str, ShardRecord, int]] = []
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
        self._verified = verified() if verify != "size" else None
        self._open: OrderedDict[int, _Open] = OrderedDict()
        self._decoded: dict[int, tuple[Decoded, int, _Open | _Fetched]] = {}
        self._cost = 0
        self._lock = threading.RLock()
        self.ready: dict[int, tuple[Callable[[int], Any], _Open | _Fetched]] = {}
        self.laid = self._rows_in_files()  # the bytes of a row, by leaf
        self._begins = np.full((len(self.laid), len(self.entries)), -1)  # -1: not known

    def _add_forms(self, forms: Sequence[bytes]) -> None:
        for serialized in forms:
            schema = pa.ipc.read_schema(pa.py_buffer(serialized))
            self._heads.append(_MAGIC + serialized)
            self._schemas.append(schema)
            self.forms.append(Form.from_schema(schema))

    def _rows_in_files(self) -> tuple[np.dtype, ...]:
        """The number of bytes of a row, by leaf, if rows lie in mapped files uncompressed; else empty."""
        kinds: Any = self.forms[0].kinds if len(set(self.forms)) == 1 else ()
        if not self._mapped or any(self._compressed):
            return ()
        if not all(isinstance(kind, Fixed) and 0 < kind.nbytes < _MOST_ITEM for kind in kinds):
            return ()
        return tuple([np.dtype((kind.dtype, kind.shape)) for kind in kinds])

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, b: int) -> Decoded:
        """Return a batch, verified; its file is checked to be unchanged."""
        found = self._decoded.get(b)
        if found is not None:
            if not found[2].changed():
                return found[0]
            self._close(int(self.entries[b]["shard"]))
        return self._load(b)

    def some(self, numbers: Sequence[int]) -> list[Decoded]:
        """Return several batches, verified; each of their files is checked once."""
        asked: set[Any] = set()
        found = []
        for b in numbers:
            known = self._decoded.get(b)
            if known is None or known[2] not in asked:
                found.append(self[b])
                known = self._decoded.get(b)
                if known is not None:
                    asked.add(known[2])
            else:
                found.append(known[0])
        return found

    def begins(
        self, number: int, batches: np.ndarray
    ) -> tuple[list[np.ndarray], np.ndarray] | None:
        """Return where the leaves of some batches of a shard begin; all batches are verified, and the file is checked.

        Returns
        -------
        list of ndarray
            For each leaf, all possible rows in the file, as from `items_of`.
        (leaves, batches) int64 ndarray
            Indices of items. Instead of both, None, if a foreign writer aligned leaves otherwise.
        """
        with self._lock:
            while True:
                opened = self._opened(number)
                begins: np.ndarray = self._begins.take(batches, axis=1)
                if opened.items and begins.min() >= 0:
                    return opened.items, begins
                for b in np.unique(batches[begins[0] < 0]).tolist():
                    decoded, opened = self._load(b), self._open[number]
                    places = np.array(decoded.addresses) - opened.buffer.address
                    if (
                        places % ALIGNED
                    ).any() or not 0 <= places.min() <= places.max() < opened.whole:
                        self.laid = ()
                        return None
                    opened.items = opened.items or [
                        items_of(opened.mapping, row) for row in self.laid
                    ]
                    self._begins[:, b] = places // [items.strides[0] for items in opened.items]

    def look_again(self) -> bool:
        """Check all open files for changes; changed ones are mapped and verified anew; return True if there were any."""
        with self._lock:
            changed = [number for number, opened in self._open.items() if opened.changed()]
            for number in changed:
                self._close(number)
        return bool(changed)

    def renew(self) -> None:
        """Repair it in a forked child: the lock may have been held by a thread that does not exist here."""
        self._lock = threading.RLock()

    # -- decoding ------------------------------------------------------------------------------

    def _load(self, b: int) -> Decoded:
        with self._lock:
            found = self._decoded.get(b)
            if found is not None:  # by another thread
                return found[0]
            number = int(self.entries[b]["shard"])
            batch, opened = self._record_batch(b)
            viewed = opened is not None and not self._compressed[number]
            try:
                mapping = None if opened is None else opened.mapping
                decoded = decode(batch, self.forms[self._files[number][2]], mapping)
            except _DAMAGE as problem:
                self.fail(b, problem)
            cost = decoded.cost + (0 if viewed else batch.nbytes)
            where = opened if opened is not None and viewed else FETCHED
            self._decoded[b] = decoded, cost, where
            self.ready[b] = decoded.element, where
            self._cost += cost
            if opened is not None:
                opened.batches.add(b)
            self._make_room(b)
            return decoded

    def _record_batch(self, b: int) -> tuple[Any, _Open | None]:
        entry = self.entries[b]
        number, first, length = int(entry["shard"]), int(entry["offset"]), int(entry["length"])
        form = self._files[number][2]
        opened = self._opened(number, b) if self._mapped else None
        if opened is None:
            data = self._bytes(b)
            if self._verified is not None:
                self._compare(b, crc32(data))
        else:
            data = opened.buffer.slice(first, length)
            if self._verified is not None:
                self._verify(b, opened.mapping)
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

    def _verify(self, b: int, mapping: Mapping, *, again: bool = False) -> None:
        """Compare a batch of a mapped file with its checksum, unless some process has done so, or if `again`."""
        entry = self.entries[b]
        first, length, crc = (int(entry[name]) for name in ("offset", "length", "crc32"))
        known = self._verified or verified()
        mark = mark_of(mapping.identity, first, length, crc)
        if mark in known and not again:
            return
        found = 0
        try:
            for piece in mapping.pieces(first, length):
                found = crc32(piece, found)
        except OSError as problem:
            self.fail(b, str(problem.strerror))
        self._compare(b, found)
        known.add(mark)

    def _compare(self, b: int, found: int) -> None:
        written = int(self.entries[b]["crc32"])
        if found != written:
            self.fail(b, f"its bytes have crc32 {found}, {written} was written")

    def _opened(self, number: int, b: int | None = None) -> _Open:
        """Return an open shard, mapped and up to date; problems are reported for batch `b`."""
        opened = self._open.get(number)
        if opened is not None:
            if not opened.changed():
                self._open.move_to_end(number)
                return opened
            self._close(number)
        name, shard, form = self._files[number]
        store = self._store()
        try:
            mapping = store.map(name)
        except FileNotFoundError:
            self._fail_shard(number, "is missing", b)
        except SnapshotCorruptError as problem:
            self._fail_shard(number, problem.problem, b)
        if len(mapping) != shard.bytes:
            self._fail_shard(number, f"has {len(mapping):,} bytes, {shard.bytes:,} were written", b)
        head = self._heads[form]
        if mapping[: len(head)] != head:
            self._fail_shard(number, "does not begin with the schema that it was written with", b)
        while len(self._open) >= self._open_limit:
            self._close(next(iter(self._open)))
        self._open[number] = opened = _Open(mapping)
        return opened

    def _fail_shard(self, number: int, problem: str, b: int | None = None) -> NoReturn:
        first = None if b is None else int(self.entries[b]["start"])
        path = self._store().shown(self._files[number][0])
        raise SnapshotCorruptError(path, problem, first, _REMEDY) from None

    def _close(self, number: int) -> None:
        with self._lock:
            opened = self._open.pop(number, None)
            for b in () if opened is None else opened.batches:
                self._drop(b)
            if self.laid:
                self._begins[:, self.entries["shard"] == number] = -1

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
        _, cost, _ = self._decoded.pop(b)
        del self.ready[b]
        self._cost -= cost

    # -- around ----------------------------------------------------------------------------------

    def numbers(self, b: int) -> np.ndarray:
        """Return the element numbers of a batch's rows, counted from the start of the first run."""
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
        """Return the user shard of a batch's elements; None without a ``shard_func``."""
        return self._files[int(self.entries[b]["shard"])][1].user_shard

    def advise(self, b: int) -> None:
        """Advise the system to read a batch ahead."""
        if not self._mapped or not hasattr(mmap, "MADV_WILLNEED"):
            return
        entry = self.entries[b]
        first = int(entry["offset"]) // mmap.PAGESIZE * mmap.PAGESIZE
        length = int(entry["offset"]) + int(entry["length"]) - first
        with self._lock:
            mapping = self._opened(int(entry["shard"]), b).mapping
            mapping.madvise(mmap.MADV_WILLNEED, first, length)

    def check(self) -> None:
        """Compare every batch's crc32, and the bytes around the batches.

        Raises
        ------
        SnapshotCorruptError
            Raised for the first damage.
        """
        for number, (_, shard, form) in enumerate(self._files):
            data, opened = self._file(number)
            own = np.flatnonzero(self.entries["shard"] == number)
            first = last = len(self._heads[form])
            for b in own[np.argsort(self.entries["offset"][own])].tolist():
                offset, length = (int(self.entries[b][name]) for name in ("offset", "length"))
                if opened is None:
                    self._compare(b, crc32(data.slice(offset, length)))
                else:
                    self._verify(b, opened.mapping, again=True)
                last = offset + length
            problem = _frame_problem(data, self._heads[form], len(own), shard.bytes)
            frame = crc32(data.slice(last), crc32(data.slice(0, first)))
            if not problem and shard.frame not in (None, frame):
                problem = f"its footer has crc32 {frame}, {shard.frame} was written"
            if problem:
                self._fail_shard(number, problem)

    def _file(self, number: int) -> tuple[Any, _Open | None]:
        name, shard, _ = self._files[number]
        if self._mapped:
            with self._lock:
                opened = self._opened(number)
                return opened.buffer, opened
        try:
            return pa.py_buffer(self._store().read(name, shard.bytes)), None
        except FileNotFoundError:
            self._fail_shard(number, "is missing")

    def fail(self, b: int, problem: Any) -> NoReturn:
        """Raise the error of a damaged batch."""
        text = problem if isinstance(problem, str) else f"cannot be read: {problem!r}"
        if not 0 <= b < len(self.entries):
            raise SnapshotCorruptError(
                self._store().shown(), f"there is no batch {b}", remedy=_REMEDY
            )
        number = int(self.entries[b]["shard"])
        self._close(number)  # if the file is restored, the next request sees it
        self._fail_shard(number, text, b)


def _frame_problem(data: Any, head: bytes, batches: int, size: int) -> str:
    """Describe damage outside of a file's batches that would break an Arrow reader; "" if there is none."""
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
    """Decompress a batch without the threads of `pyarrow.ipc.read_record_batch`."""
    stream = pa.py_buffer(b"".join((head[len(_MAGIC) :], data)))
    options = pa.ipc.IpcReadOptions(use_threads=False)
    return pa.ipc.open_stream(stream, options=options).read_next_batch()
