"""Complete snapshots as sources: with random access, or in the order of a `reader_func`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from tundish.errors import IncompatibleCheckpointError
from tundish.loader.operators.snapshot import Snapshot
from tundish.loader.plan.checks import check_count
from tundish.loader.plan.node import AUTOTUNE, walk
from tundish.loader.protocols.items import End, Failure, Made
from tundish.loader.protocols.raised import element_error, raise_from
from tundish.loader.protocols.refs import array_of, run_of
from tundish.loader.protocols.state_parsing import count, load_part
from tundish.loader.watch.stats import SnapshotStats

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import (
        Builder,
        Gather,
        Machine,
        Maker,
        Mark,
        Resolver,
        Value,
    )
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.protocols.refs import Positions, Refs
    from tundish.snapshot.reading.reader import Reader
    from tundish.source import Source


_READERS: WeakKeyDictionary[Found, Reader] = WeakKeyDictionary()


@dataclass(frozen=True)
class Found:
    """The data that a process needs to open a complete snapshot.

    Parameters
    ----------
    path, key : str
        The folder, and the snapshot's key in it.
    runs : tuple of str
        Its runs, in order.
    upto : tuple of int
        The number of journal records of each run.
    rows : int
        The number of elements.
    mapped : bool
        True if elements are views of local files, which are read in the consumer's process.
    uniform : bool
        True if all elements have one structure, and each leaf one dtype and shape.
    safe : bool
        True if no element is an error.
    verify : {"batch", "size", "full"}
        What is checked when files are read.
    content : str or None
        The fingerprint of what the pipeline drew beyond what its plan says.
    """

    path: str
    key: str
    runs: tuple[str, ...]
    upto: tuple[int, ...]
    rows: int
    mapped: bool
    uniform: bool
    safe: bool
    verify: str = "batch"
    content: str | None = None

    @property
    def reader(self) -> Reader:
        """The open reader of the elements, shared for the life of a plan.

        Mapping a file anew for each epoch would cost as much as reading it.
        """
        reader = _READERS.get(self)
        if reader is None:
            # pyarrow takes a while to load, and few iterators need it.
            from tundish.snapshot.reading.reader import open_reader  # noqa: PLC0415 - see above

            reader = _READERS[self] = open_reader(
                self.path, self.key, runs=self.runs, upto=self.upto, verify=self.verify
            )
        return reader

    def stacks(self) -> Gather:
        """Return a function from indices to a batch, which is a slice of the files, or gathered with one copy."""
        reader: Reader | None = None

        def stack(refs: Any, _: int) -> Any:
            nonlocal reader
            if reader is None:
                reader = self.reader
            run = run_of(refs)
            return (
                reader.take(array_of(refs)) if run is None else reader.stacked(run[0], run[-1] + 1)
            )

        return stack

    def look_again(self) -> None:
        """Check whether the files of an open reader have changed, at the start of a pass."""
        reader = _READERS.get(self)
        if reader is not None:
            reader.look_again()

    def stats(self) -> SnapshotStats:
        """Return statistics that say it is being read."""
        return SnapshotStats(self.path, self.key, "", "read", self.rows, self.rows)


@dataclass(frozen=True, eq=False)
class Stored(Snapshot):
    """A complete snapshot: a source with random access; its input is not run."""

    found: Found = None  # type: ignore[assignment]  # always given; fields before it have defaults

    op = "snapshot"
    positional = ours = True
    computing = replays = False

    @property
    def dynamic(self) -> bool:
        return False

    @property
    def safe(self) -> bool:
        return self.found.safe

    @property
    def uniform(self) -> bool:
        return self.found.uniform

    @property
    def cardinality(self) -> int:
        return self.found.rows

    @property
    def numbers(self) -> int:
        return self.found.rows

    @property
    def uncomputed(self) -> bool:
        return self.found.mapped

    @property
    def stored(self) -> Found:
        return self.found

    @property
    def unit_sizes(self) -> np.ndarray:
        # Batches of several user shards interleave: the records from one start to the next are in a few batches.
        starts = self.found.reader.batches.entries["start"]
        ends = np.unique(starts[starts > 0])
        return np.diff(ends, prepend=0, append=self.found.rows)

    def random_access(self) -> Callable[[int], Any]:
        return rows_of(self.found.reader, self.found.rows)

    def stats(self, context: Context) -> SnapshotStats:
        return self.found.stats()

    def resolved(self, resolver: Resolver) -> Operator:
        self.found.look_again()
        return self

    def refs_at(self, where: Positions, pass_: int, context: Context) -> Refs:
        return where

    def nested(self, at: int) -> Any:
        return stored_position(at, self.found.content)

    def position(self, state: dict[str, Any]) -> int:
        return read_position(state, self.found.content)

    def gather(self, maker: Maker) -> Gather:
        return self.found.stacks()

    @property
    def running(self) -> tuple[Operator, ...]:
        return ()

    @property
    def parallel(self) -> int | None:
        """The number of workers that read compressed batches: as many as its input asked for."""
        asked = [getattr(node, "parallel", None) for node in walk(self.up)]
        counts = [count for count in asked if count is not None]
        if self.found.mapped or not counts:
            return None
        return AUTOTUNE if AUTOTUNE in counts else max(counts)

    def evaluator(self, maker: Maker) -> Value:
        label = maker.context.label(self)
        reader: Reader | None = None

        def value(item: Any, _: int) -> Any:
            nonlocal reader
            try:
                if reader is None:
                    reader = self.found.reader
                return reader.following(item)
            except BaseException as error:  # noqa: BLE001 - the element's, or its file's
                raise_from(error, label)

        return value


@dataclass(frozen=True, eq=False)
class Reread(Snapshot):
    """A complete snapshot, in the order of its `reader_func`."""

    found: Found = None  # type: ignore[assignment]  # always given, as below
    order: Operator = None  # type: ignore[assignment]

    op = "snapshot"

    @property
    def running(self) -> tuple[Operator, ...]:
        return ()

    def needs_replay(self, ref: Any) -> bool:
        return bool(ref >= self.found.rows)  # else it is an index

    def stats(self, context: Context) -> SnapshotStats:
        return self.found.stats()

    def machine(self, builder: Builder, pass_: int) -> Machine:
        return Rereading(lambda: builder.beside(self.order, pass_), self.found)

    def evaluator(self, maker: Maker) -> Value:
        label, rows = maker.context.label(self), self.found.rows
        again = maker.replayed(self)

        def value(item: Any, pass_: int) -> Any:
            if item >= rows:
                return again(item, pass_)
            try:
                return self.found.reader[item]
            except BaseException as error:  # noqa: BLE001 - the element's, or its file's
                raise_from(error, label)

        return value


class Rereading:
    """Elements in the order of `reader_func`, or in the order of writing where a state names them so.

    A state that was taken while the snapshot was being written names elements by their index; in the order of
    `reader_func`, an element's ref is its number plus the number of elements.

    Parameters
    ----------
    build : callable
        Makes the machine of the other order, which gives computed items.
    found : Found
        The snapshot.
    """

    def __init__(self, build: Callable[[], Machine], found: Found) -> None:
        self._build, self._rows = build, found.rows
        self._given = 0
        self._up: Machine | None = None
        self._written = False
        self._found = found

    def next(self) -> Any:
        if self._written:
            return self._as_written()
        if self._up is None:
            self._up = self._build()
        item = self._up.next()
        item.ref = self._rows + self._given
        self._given += 1
        return item

    def _as_written(self) -> Any:
        at = self._given
        if at >= self._rows:
            raise End
        self._given = at + 1
        try:
            return Made(at, self._found.reader[at])
        except BaseException as error:  # noqa: BLE001 - the element's error
            return Failure(at, element_error(error))

    def mark(self) -> Mark:
        return self._given, None if self._up is None else self._up.mark()

    def dump(self, mark: Mark) -> Any:
        given, below = mark
        if not given or self._written:
            return {"n": given}
        assert self._up is not None
        return {"n": given, "up": self._up.dump(below)}

    def load(self, state: Any) -> None:
        self._given = count(state, "n")
        if "up" in state:
            self._up = self._build()
            load_part(self._up, state)
        elif self._given:
            self._written = True


def stored_position(at: int, content: str | None) -> dict[str, Any]:
    """Convert a position in a snapshot to JSON: an index, and the content's name unless the plan says it."""
    return {"n": at} if content is None else {"n": at, "content": content}


def read_position(state: Any, content: str | None) -> int:
    """Return the index in a dumped position in a snapshot.

    Raises
    ------
    IncompatibleCheckpointError
        It was taken with other draws than those of the snapshot.
    """
    at = count(state, "n")
    there = state.get("content", content)
    if at and there != content:
        difference = (
            f"snapshot: random operators before it drew {content} here, {there} in the state; "
            "give them seeds"
        )
        raise IncompatibleCheckpointError((difference,))
    return at


def rows_of(source: Source, count: int) -> Callable[[int], Any]:
    """Return a function ``rows(index)`` for a source with random access; negative indices count from the end."""
    get = source.__getitem__

    def rows(index: int) -> Any:
        if type(index) is int and 0 <= index < count:
            return get(index)
        at = check_count("index", index)
        if not -count <= at < count:
            allowed = f"from {-count} to {count - 1}" if count else "of some other dataset"
            raise IndexError(f"index must be {allowed} in a dataset of {count} elements, not {at}")
        return get(at + count if at < 0 else at)

    return rows


_INDICES: WeakKeyDictionary[Reader, tuple[np.ndarray, ...]] = WeakKeyDictionary()


def shard_indices(found: Found) -> tuple[np.ndarray, ...]:
    """Return the indices of each user shard's elements, ascending; without `shard_func`, of each file's.

    An element that failed was not assigned: it is placed after the element before it.
    """
    reader = found.reader
    if reader not in _INDICES:
        shards = [shard.indices for shard in reader.shards] or [np.empty(0, np.int64)]
        if reader.errors:
            shards = _with_errors(shards, np.array(sorted(reader.errors), np.int64))
        _INDICES[reader] = tuple(shards)
    return _INDICES[reader]


def _with_errors(shards: list[np.ndarray], errors: np.ndarray) -> list[np.ndarray]:
    owner = np.concatenate([np.full(len(indices), k) for k, indices in enumerate(shards)])
    order = np.argsort(indices := np.concatenate(shards))
    before = np.searchsorted(indices[order], errors) - 1
    owners = owner[order][np.maximum(before, 0)] if len(owner) else np.zeros(len(errors), np.int64)
    return [np.sort(np.append(shard, errors[owners == k])) for k, shard in enumerate(shards)]
