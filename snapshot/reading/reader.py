"""Reading a snapshot, or the durable prefix of one, by index, as views if possible."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, WeakValueDictionary

import numpy as np

from tundish.errors import IncompleteSnapshotError, SnapshotCorruptError, SnapshotError
from tundish.snapshot.catalog import Catalog
from tundish.snapshot.encoding.arrow import join_rows
from tundish.snapshot.encoding.columns import is_simple
from tundish.snapshot.encoding.kinds import Fixed, Text
from tundish.snapshot.finished import read_finished
from tundish.snapshot.index import order_blocks
from tundish.snapshot.reading.batches import CACHE_BYTES, FETCHED, LOOK_S, VERIFY, Batches
from tundish.snapshot.reading.places import Chained, Places, Spans, UserShardPlaces
from tundish.snapshot.reading.taking import Handed, taken
from tundish.snapshot.reading.verified import mark_of, verified
from tundish.snapshot.run import read_run
from tundish.spec import unflatten

if TYPE_CHECKING:
    from tundish.snapshot.encoding.forms import Form
    from tundish.snapshot.files.mapping import Mapping as MappedFile
    from tundish.snapshot.files.store import Store
    from tundish.snapshot.manifest import Manifest, ManifestRun
    from tundish.snapshot.records import CheckedFile, StoredError
    from tundish.snapshot.run import Prefix


@dataclass(frozen=True)
class ReaderSource:
    """The identity of a reader, as which it is pickled.

    Parameters
    ----------
    path, key : str
        The snapshot's folder and key.
    runs : tuple of str
        Its runs, in order.
    upto : tuple of int
        The number of journal records of each run.
    verify : {"size", "batch", "full"}
        When bytes are compared with their checksums.
    options : mapping, optional
        Options of a remote filesystem.
    """

    path: str
    key: str
    runs: tuple[str, ...]
    upto: tuple[int, ...]
    verify: str
    options: Mapping[str, Any] | None

    def reopened(self) -> Reader:
        """Return the reader with this identity."""
        return open_reader(
            self.path,
            self.key,
            runs=self.runs,
            upto=self.upto,
            verify="batch" if self.verify == "full" else self.verify,  # that has been done
            storage_options=self.options,
        )


@dataclass(frozen=True)
class UserShard:
    """The elements of one user shard, or of one file if there was no ``shard_func``.

    Attributes
    ----------
    number : int
        The number from ``shard_func``, or that of the file.
    """

    number: int
    _source: Batches
    _batches: tuple[int, ...]

    @cached_property
    def indices(self) -> np.ndarray:
        """The elements' global indices (int64), in their order."""
        found = [self._source.numbers(b) for b in self._batches]
        return np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)

    def __len__(self) -> int:
        return int(self._source.entries["rows"][list(self._batches)].sum(dtype=np.int64))


class _Files:
    """Opens the store of the key's folder; a remote one again in a forked child."""

    def __init__(self, source: ReaderSource, store: Store) -> None:
        self._source, self._store, self._pid = source, store, os.getpid()

    def __call__(self) -> Store:
        if self._pid != os.getpid():
            if not self._store.local:
                source = self._source
                self._store = Catalog(source.path, source.options).at(source.key)
            self._pid = os.getpid()
        return self._store


class Reader:
    """A complete snapshot, or the durable prefix of one run; made by `open_reader`.

    Safe to use from several threads, and in a forked child. Arrays are read-only; if `mapped`, they
    are views of the files.

    Attributes
    ----------
    mapped : bool
        True if the files are uncompressed and on a disk of this machine.
    batches : Batches
        Its record batches.
    """

    def __init__(
        self,
        source: ReaderSource,
        store: Store,
        prefixes: Sequence[Prefix],
        orders: Sequence[CheckedFile | None],
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self.source = source
        self._files = _Files(source, store)
        self._rows = sum(prefix.next for prefix in prefixes)
        mappable = store.local and store.mappable
        self.mapped = mappable and all(p.header.compression is None for p in prefixes)
        self.batches = Batches(
            self._files, prefixes, source.verify, mapped=mappable, cache_bytes=cache_bytes
        )
        self._ready = self.batches.ready
        self._errors, first = dict[int, "StoredError"](), 0
        for prefix in prefixes:
            self._errors.update((first + n, error) for n, error in prefix.errors.items())
            first += prefix.next
        self._prefixes, self._orders = list(prefixes), list(orders)
        self._mapped_orders: list[MappedFile] = []
        self._places = self._make_places()
        self._width = self._places.width if isinstance(self._places, Spans) else 0
        self._last, self._begun = 0, 0.0  # the last element of a stream, and when it began again
        _READERS.add(self)
        if source.verify == "full":
            self.check()

    def __reduce__(self) -> tuple[Any, ...]:
        return ReaderSource.reopened, (self.source,)

    def __len__(self) -> int:
        return self._rows

    def __repr__(self) -> str:
        return f"<Reader of {self._rows:,} elements in {self._files().root}>"

    # -- elements ------------------------------------------------------------------------------

    def __getitem__(self, n: int) -> Any:
        if not 0 <= n < self._rows:
            raise IndexError(f"there are {self._rows} elements, not one with the index {n}")
        width = self._width
        b, k = divmod(n, width) if width else self._places.find(n)
        try:
            element, shard = self._ready[b]
            asked = shard.asked
            if shard.size() == shard.whole and asked > self._begun and monotonic() - asked < LOOK_S:
                return element(k)
        except KeyError:
            pass
        except (UnicodeDecodeError, IndexError) as problem:
            self.batches.fail(b, problem)
        if b < 0:
            raise self._error(n)
        try:
            return self.batches[b].element(k)
        except (UnicodeDecodeError, IndexError) as problem:
            self.batches.fail(b, problem)

    def following(self, n: int) -> Any:
        """Return ``reader[n]``, for a sequential read.

        When it starts from 0 again, each file is checked for changes before more of it is returned.
        """
        if n <= self._last:
            self._begun = monotonic()
        self._last = n
        return self[n]

    def _error(self, n: int) -> BaseException:
        stored = self._errors.get(n)
        if stored is None:
            return SnapshotCorruptError(self._files().shown(), "has no such element", n)
        return stored.exception()

    def elements(self, start: int, stop: int) -> list[Any]:
        """Return the elements of a range; a failed one as its exception.

        Parameters
        ----------
        start, stop : int
            ``0 <= start <= stop <= len(self)``.
        """
        found: list[Any] = []
        for b, first, end in self._places.spans(start, stop):
            if b < 0:
                found.append(self._error(first))
                continue
            try:
                found += self.batches[b].elements(first, end)
            except (UnicodeDecodeError, IndexError) as problem:
                self.batches.fail(b, problem)
        return found

    def handed(self, indices: Sequence[int]) -> Sequence[Any]:
        """Return elements by index, to be handed out one by one.

        The sizes of their files are checked once for all of them, and again before each view is handed out.
        """
        first, count = indices[0], len(indices)
        places: list[Any] = []
        if [*indices] == [*range(first, first + count)]:
            found = self.elements(first, first + count)
            for b, start, stop in self._places.spans(first, first + count):
                if b >= 0 and self.batches[b].views(start, stop):
                    places += [(b, self._ready[b][1])] * (stop - start)
                else:
                    places += [_NOWHERE] * max(1, stop - start)
        else:
            found, places = self._apart(indices)
            if self._copies:
                return found
        return Handed(found, places, self.batches.fail) if any(b >= 0 for b, _ in places) else found

    def _apart(self, indices: Sequence[int]) -> tuple[list[Any], list[Any]]:
        """Return elements that are not adjacent; with each, its batch and open shard."""
        batches, rows = self._places.find_all(np.asarray(indices, np.int64))
        ready, fail = self._ready, self.batches.fail
        found: list[Any] = []
        places: list[Any] = []
        known: dict[int, Any] = {}
        for n, b, k in zip(indices, batches.tolist(), rows.tolist(), strict=True):
            place = known.get(b)
            if place is None:  # the first of its batch: it is verified
                found.append(self[n])
                known[b] = place = (b, ready[b][1])
            else:
                try:
                    found.append(ready[b][0](k))
                except (UnicodeDecodeError, IndexError) as problem:
                    fail(b, problem)
                except KeyError:  # it was dropped, to make room
                    found.append(self[n])
            places.append(place)
        return found, places

    @property
    def at_once(self) -> int:
        """The number of elements that may be made at once: a batch, as long as batches have to be verified."""
        return len(self) if len(self._ready) == len(self.batches) else self._most_rows

    @cached_property
    def _most_rows(self) -> int:
        return int(self.batches.entries["rows"].max())

    @cached_property
    def _copies(self) -> bool:
        """True if elements consist of numbers and texts alone, which are not views."""
        return all(
            isinstance(kind, Text)
            or (isinstance(kind, Fixed) and not kind.shape and is_simple(kind.dtype))
            for form in self.batches.forms
            for kind in form.kinds
        )

    # -- batches -------------------------------------------------------------------------------

    def stacked(self, start: int, stop: int) -> Any | None:
        """Return a range of elements as one batch, equal to the loader's.

        Returns
        -------
        nest of numpy.ndarray or None
            Views if the rows lie in one stored batch, else new arrays that are filled with one copy.
            None: an element failed, or shapes differ.
        """
        if not isinstance(self._places, Spans):  # few rows lie side by side
            return self.take(np.arange(start, stop))
        spans = list(self._places.spans(start, stop))
        if not spans or any(b < 0 for b, _, _ in spans):
            return None
        if len(spans) == 1:
            ((b, first, end),) = spans
            return self.batches[b].stacked(first, end)
        touched = self.batches.some([b for b, _, _ in spans])
        parts = [(found, *span[1:]) for found, span in zip(touched, spans, strict=True)]
        tree = parts[0][0].tree
        if any(decoded.tree != tree for decoded, _, _ in parts):
            return None
        arrays = []
        for leaf in range(parts[0][0].width):
            pieces = [decoded.leaf(leaf).stacked(first, end) for decoded, first, end in parts]
            joined = _joined(pieces)
            if joined is None:
                return None
            arrays.append(joined)
        return unflatten(tree, arrays)

    def take(self, indices: np.ndarray) -> Any | None:
        """Return elements by index as one batch.

        Returns
        -------
        nest of numpy.ndarray or None
            New arrays. None: an element failed, or shapes differ.
        """
        indices = np.asarray(indices, np.int64)
        if not len(indices):
            return None
        if indices.min() < 0 or indices.max() >= self._rows:
            raise IndexError(f"there are {self._rows} elements, not all that were asked for")
        batches, rows = self._places.find_all(indices)
        if batches.min() < 0:
            return None
        return taken(self.batches, batches, rows)

    # -- the rest ------------------------------------------------------------------------------

    @cached_property
    def shards(self) -> tuple[UserShard, ...]:
        """The user shards in numeric order; without a ``shard_func``, the files in order."""
        entries = self.batches.entries
        groups: dict[tuple[int, int], list[int]] = {}
        for b in range(len(entries)):
            user = self.batches.user_shard(b)
            group = (0, int(entries[b]["shard"])) if user is None else (1, user)
            groups.setdefault(group, []).append(b)
        ordered = sorted(groups.items(), key=lambda item: (*item[0], item[1]))
        files = sorted((members[0], members) for (kind, _), members in ordered if kind == 0)
        found = [(k, members) for k, (_, members) in enumerate(files)]
        found += [(number, members) for (kind, number), members in ordered if kind == 1]
        return tuple(UserShard(number, self.batches, tuple(members)) for number, members in found)

    @property
    def errors(self) -> Mapping[int, StoredError]:
        """The elements that failed, by index."""
        return self._errors

    @cached_property
    def forms(self) -> tuple[Form, ...]:
        """The forms in which elements are stored."""
        return tuple(dict.fromkeys(self.batches.forms))

    @cached_property
    def uniform(self) -> bool:
        """True if all elements have one structure, and leaves of one dtype and shape, or texts, so that they stack."""
        kinds = self.forms[0].kinds if len(self.forms) == 1 else (None,)
        return all(isinstance(kind, (Fixed, Text)) for kind in kinds)

    def prefetch(self, start: int, stop: int) -> None:
        """Advise the system to read the elements of a range ahead."""
        for b in dict.fromkeys(b for b, _, _ in self._places.spans(start, stop) if b >= 0):
            self.batches.advise(b)

    def look_again(self) -> None:
        """Check the files for changes; changed ones are verified again on next access."""
        changed = self.batches.look_again()
        if any(mapping.changed() for mapping in self._mapped_orders):
            changed = True
            self._places = self._make_places()
        if changed and self.source.verify == "full":
            self.check()

    def check(self) -> None:
        """Compare every byte with its checksum.

        Raises
        ------
        SnapshotCorruptError
            Names the file, and the batch.
        """
        self.batches.check()
        for prefix, checked in zip(self._prefixes, self._orders, strict=True):
            if checked is not None:
                name = f"runs/{prefix.run}/{checked.file}"
                checked.check(self._files().read(name, checked.bytes), self._files().shown(name))

    def _make_places(self) -> Places:
        entries = self.batches.entries
        if not any(prefix.user_shards for prefix in self._prefixes):
            return Spans(entries["start"], entries["rows"], self._rows)
        self._mapped_orders = []
        parts: list[Places] = []
        firsts, bases, first, base = [], [], 0, 0
        for prefix, checked in zip(self._prefixes, self._orders, strict=True):
            firsts.append(first)
            bases.append(base)
            if prefix.user_shards:
                parts.append(self._order(prefix, checked, first, base))
            else:
                own = prefix.entries
                parts.append(Spans(own["start"], own["rows"], prefix.next))
            first, base = first + prefix.next, base + len(prefix.entries)
        return parts[0] if len(parts) == 1 else Chained(parts, firsts, bases, first)

    def _order(
        self, prefix: Prefix, checked: CheckedFile | None, first: int, base: int
    ) -> UserShardPlaces:
        """Return the locations in a run with user shards: from its file, or computed from the batches."""
        if checked is None:
            numbers = (self.batches.numbers(base + b) - first for b in range(len(prefix.entries)))
            blocks = list(order_blocks(prefix.entries, lambda _: next(numbers), prefix.next))
            return UserShardPlaces(np.concatenate(blocks))
        name = f"runs/{prefix.run}/{checked.file}"
        path = self._files().shown(name)
        mapped = self._files().local and self._files().mappable
        data: Any = self._files().map(name) if mapped else self._files().read(name, checked.bytes)
        size = 16 * prefix.next
        if len(data) != checked.bytes or len(data) < size:
            raise SnapshotCorruptError(
                path, f"has {len(data):,} bytes, {checked.bytes:,} were written"
            )
        if mapped:
            self._mapped_orders.append(data)
        if self.source.verify != "size":
            self._check_order(data, path, checked, mapped=mapped)
        order = np.frombuffer(data, "<i8", offset=len(data) - size).reshape(-1, 2)
        return UserShardPlaces(order, data if mapped else None)

    def _check_order(self, data: Any, path: str, checked: CheckedFile, *, mapped: bool) -> None:
        """Compare an order with its checksum, unless some process has done so for the mapped file."""
        if not mapped:
            checked.check(data, path)
            return
        mark = mark_of(data.identity, 0, checked.bytes, checked.crc32)
        if mark not in verified():
            checked.check(data, path)
            verified().add(mark)


def _joined(pieces: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Concatenate rows in a new array; None if they do not fit each other."""
    first = pieces[0]
    assert first is None or isinstance(first, np.ndarray)
    if first is None:
        return None
    for piece in pieces:
        if piece is None or piece.dtype != first.dtype or piece.shape[1:] != first.shape[1:]:
            return None
    return join_rows([piece for piece in pieces if piece is not None], first.dtype, first.shape[1:])


_NOWHERE = (-1, FETCHED)

_OPEN: WeakValueDictionary[tuple[Any, ...], Reader] = WeakValueDictionary()
_READERS: WeakSet[Reader] = WeakSet()


def _after_fork() -> None:
    for reader in _READERS:
        reader.batches.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def open_reader(
    path: str | os.PathLike[str],
    key: str,
    *,
    runs: tuple[str, ...] | None = None,
    upto: tuple[int, ...] | None = None,
    verify: str = "batch",
    storage_options: Mapping[str, Any] | None = None,
) -> Reader:
    """Open a snapshot; while its reader is in use, the same one is returned.

    Parameters
    ----------
    path : str or os.PathLike
        The path given to ``snapshot``.
    key : str
        The fingerprint's key.
    runs : tuple of str, optional
        Names of runs, in order. Default: those of the manifest, which must exist.
    upto : tuple of int, optional
        The number of journal records of each run. Default: all that are durable.
    verify : {"batch", "size", "full"}
        What is compared with what was written: "batch" the checksum of each batch on first access; "size" only
        the sizes of files; "full" every byte at once.
    storage_options : mapping, optional
        Options of a remote filesystem.

    Raises
    ------
    IncompleteSnapshotError
        There is no manifest.
    SnapshotError
        The files are damaged, or were written by a later version.
    """
    if verify not in VERIFY:
        raise ValueError(f"verify must be one of {', '.join(VERIFY)}, not {verify!r}")
    path = os.fspath(path)
    catalog = Catalog(path, storage_options)
    store = catalog.at(key)
    try:
        manifest = catalog.manifest(key)
    except SnapshotError:
        if runs is None:
            raise
        manifest = None  # a run that is pinned has its own journal
    if runs is None and manifest is None:
        raise IncompleteSnapshotError(
            f"{store.shown()} has no manifest: no complete snapshot was written there; run the pipeline with "
            "its snapshot to the end first"
        )
    finished = None if manifest is None else _finished(manifest, runs, upto)
    if finished is not None:
        runs = tuple(run.run for run in finished)
        upto = tuple(run.journal + 1 for run in finished)
    assert runs is not None
    options = None if storage_options is None else dict(storage_options)
    if upto is not None:
        found = _OPEN.get((path, key, runs, upto, verify, repr(options)))
        if found is not None:
            found.look_again()
            return found
    orders: list[CheckedFile | None]
    if finished is not None:
        prefixes = [read_finished(store, run) for run in finished]
        orders = [run.order for run in finished]
    else:
        limits: Sequence[int | None] = [None] * len(runs) if upto is None else upto
        prefixes = [read_run(store, run, n) for run, n in zip(runs, limits, strict=True)]
        orders = [None] * len(runs)
        upto = tuple(prefix.records for prefix in prefixes)
    assert upto is not None
    source = ReaderSource(path, key, runs, upto, verify, options)
    reader = Reader(source, store, prefixes, orders)
    return _OPEN.setdefault((path, key, runs, upto, verify, repr(options)), reader)


def _finished(
    manifest: Manifest, runs: tuple[str, ...] | None, upto: tuple[int, ...] | None
) -> tuple[ManifestRun, ...] | None:
    """Return the runs of a manifest, if they are the requested ones."""
    found = manifest.runs
    if runs is not None and runs != tuple(run.run for run in found):
        return None
    if upto is not None and upto != tuple(run.journal + 1 for run in found):
        return None
    return found
