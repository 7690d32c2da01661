"""Estimates from a sample of elements: a snapshot's size, its time, and whether there is enough space."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tundish.cli.snapshot import NO_SPACE, Refusal
from tundish.cli.snapshot.log import amount, duration
from tundish.errors import RangeError
from tundish.loader.operators.choosing import Take
from tundish.loader.operators.shuffle import Shuffle
from tundish.loader.run.evaluating.ranges import base_of, over
from tundish.loader.run.iterator import Iterator
from tundish.snapshot.encoding.forms import Columns, Form, columns_of, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.protocols.operator import Operator

FIRST = 8
"""The number of elements from which the time of one is estimated."""
SECONDS = 5.0
MOST_BYTES = 256 << 20
MOST_ELEMENTS = 100_000


@dataclass(frozen=True)
class SizeSample:
    """Measurements of a sample of elements.

    Parameters
    ----------
    inputs : int or None
        The number of source elements it was made from; None: unknown.
    elements, errors, bytes : int
        The number of elements, how many of them failed, and their size in a file.
    seconds : float
        The time it took.
    """

    inputs: int | None
    elements: int
    errors: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Estimate:
    """The estimate for all elements.

    Parameters
    ----------
    sample : SizeSample
        The sample that it is based on.
    elements : int or None
        The total number of elements; None: unknown.
    exact : bool
        True if that number follows from the plan, not from the sample.
    shard_bytes : int
        The size of a file.
    workers : int
        The number of workers for the sample.
    """

    sample: SizeSample
    elements: int | None
    exact: bool
    shard_bytes: int
    workers: int

    @property
    def bytes_each(self) -> float:
        """The bytes of one element."""
        return self.sample.bytes / max(1, self.sample.elements)

    @property
    def bytes(self) -> int | None:
        """The bytes of all elements."""
        return None if self.elements is None else round(self.elements * self.bytes_each)

    @property
    def files(self) -> int | None:
        """The number of files."""
        return None if self.bytes is None else -(-self.bytes // self.shard_bytes)

    @property
    def seconds(self) -> float | None:
        """The seconds for all elements."""
        rate = self.sample.elements / max(self.sample.seconds, 1e-9)
        return None if self.elements is None else self.elements / max(rate, 1e-9)

    def to_json(self) -> dict[str, Any]:
        """Return it as an object of a JSON line."""
        return {
            "sampled": self.sample.elements,
            "sample_errors": self.sample.errors,
            "sample_seconds": round(self.sample.seconds, 3),
            "workers": self.workers,
            "elements": self.elements,
            "exact": self.exact,
            "bytes": self.bytes,
            "bytes_each": round(self.bytes_each),
            "files": self.files,
            "seconds": None if self.seconds is None else round(self.seconds, 1),
            "hours": None if self.seconds is None else round(self.seconds / 3600, 3),
        }

    def rows(self) -> list[list[str]]:
        """Return the estimate as rows of text."""
        sample, workers = self.sample, self.workers
        who = f"{workers} worker{'s' * (workers != 1)}" if workers else "no workers"
        failed = f", {sample.errors:,} failed" if sample.errors else ""
        about = "" if self.exact else "about "
        if self.elements is None:
            count = size = files = hours = "unknown, because the number of elements is unknown"
        else:
            assert self.bytes is not None
            assert self.files is not None
            assert self.seconds is not None
            count, size = f"{about}{self.elements:,}", amount(self.bytes)
            files = f"{self.files:,} of {amount(self.shard_bytes)}"
            hours = f"{duration(self.seconds)} with {who}"
        each = f"{amount(self.bytes_each)} an element"
        return [
            ["sample", f"{sample.elements:,} elements in {sample.seconds:.1f} s, {each}{failed}"],
            ["elements", count],
            ["bytes", size],
            ["files", files],
            ["time", hours],
        ]


def take_sample(
    node: Operator,
    *,
    workers: int,
    base_seed: int,
    compression: str | None,
) -> tuple[SizeSample, int | None, bool]:
    """Compute some elements of a plan, from all over the source if it has random access.

    Parameters
    ----------
    node : Operator
        The plan whose elements would be kept.
    workers, base_seed : int
        As it would be made.
    compression : {None, "lz4", "zstd"}
        The compression of its batches.

    Returns
    -------
    SizeSample
    int or None
        How many elements the whole plan has.
    bool
        Whether that number is exact.

    Raises
    ------
    SpecError
        The elements cannot be stored together.
    """
    base = _random_access(node)

    def once(count: int) -> SizeSample:
        limited = node
        if base is not None:
            spread = Shuffle(base, None, seed=0, reshuffle=False)
            limited = over(node, base, Take(spread, count))
        return _measured(limited, None if base is None else count, workers, base_seed, compression)

    total = node.cardinality
    if base is None:
        return once(0), total if total >= 0 else None, total >= 0
    available = min(base.cardinality, MOST_ELEMENTS)
    sample = once(min(available, max(FIRST, 2 * workers)))
    while sample.inputs is not None and sample.seconds < SECONDS / 2:
        more = min(available, round(sample.inputs * SECONDS / max(sample.seconds, 1e-2)))
        if more < 2 * max(1, sample.inputs):
            break
        sample = once(more)
    if total >= 0:
        return sample, total, True
    if not sample.inputs:
        return sample, None, False
    return sample, round(sample.elements * base.cardinality / sample.inputs), False


def _random_access(node: Operator) -> Operator | None:
    try:
        return base_of(node)
    except RangeError:
        return None


def _measured(
    node: Operator, inputs: int | None, workers: int, base_seed: int, compression: str | None
) -> SizeSample:
    """Run a plan to its end, or until enough time or memory is spent."""
    values: list[Any] = []
    counted = errors = nbytes = held = 0
    form: Form | None = None
    whole = False
    start = time.monotonic()

    def measure() -> int:
        nonlocal form
        if not values:
            return 0
        columns = columns_of(values)
        form = Form.of([columns]) if form is None else form.widened([columns])
        values.clear()
        return stored_bytes(form, columns, compression)

    with Iterator(node, workers=workers, base_seed=base_seed) as made:
        while time.monotonic() - start < 2 * SECONDS and nbytes + held < MOST_BYTES:
            try:
                value = next(made)
            except StopIteration:
                whole = True
                break
            except Exception:  # noqa: BLE001 - an element's error; `write` tells it
                errors += 1
            else:
                values.append(value)
                held += 1 << 10
                if len(values) >= 64:
                    nbytes += measure()
                    held = 0
            counted += 1
        seconds = time.monotonic() - start
    nbytes += measure()
    return SizeSample(inputs if whole else None, counted, errors, nbytes, seconds)


def stored_bytes(form: Form, columns: Columns, compression: str | None) -> int:
    """Return the bytes of elements in a file, without a batch's overhead."""
    batch = encode(form, [columns])
    if compression is None:
        return int(batch.nbytes)
    sink = pa.MockOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, form.schema, options=options) as writer:
        before = sink.size()
        writer.write_batch(batch)
        return int(sink.size() - before)


_ENOUGH = 64 << 20
"""The number of written bytes from which the total is estimated."""


def check_space(where: str, need: int, free: int | None, from_what: str) -> None:
    """Raise if there is not enough space.

    Raises
    ------
    Refusal
        There is less room than is needed, with both numbers.
    """
    if free is not None and need > free:
        raise Refusal(
            NO_SPACE,
            f"{where} has {amount(free)} free, and about {amount(need)} more are needed "
            f"({from_what}): free some, choose another path, or --compression lz4 or zstd",
        )


class Room:
    """The free space for all elements, checked before the first byte and during the run.

    Parameters
    ----------
    path : str
        For messages.
    free : callable
        A function that returns the number of bytes that may still be written; None: unknown.
    left : int or None
        The number of elements to come; None: unknown, and nothing is checked.
    compression : {None, "lz4", "zstd"}
        The compression of batches.
    """

    def __init__(
        self,
        path: str,
        free: Callable[[], int | None],
        left: int | None,
        compression: str | None,
    ) -> None:
        self._path, self._free, self._left = path, free, left
        self._compression = compression
        self._seen = self._bytes = 0
        self.asking = left is not None

    def look(self, element: Any) -> None:
        """Add one of the first elements to the estimate; raise Refusal if not all will fit."""
        assert self._left is not None
        columns = columns_of([element])
        self._bytes += stored_bytes(Form.of([columns]), columns, self._compression)
        self._seen += 1
        if self._seen >= min(FIRST, self._left):
            self.asking = False
            need = self._bytes * self._left // self._seen
            check_space(self._path, need, self._free(), f"as the first {self._seen} say")

    def written(self, elements: int, nbytes: int) -> None:
        """Check again after writing; raise Refusal if the rest will not fit."""
        if self._left is None or nbytes < _ENOUGH:
            return
        rest = nbytes * max(0, self._left - elements) // max(1, elements)
        check_space(self._path, rest, self._free(), f"{elements:,} took {amount(nbytes)}")
