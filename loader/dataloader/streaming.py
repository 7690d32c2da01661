"""Collating of samples that arrive one by one, each written into its row at once.

Keeping the samples of a batch and stacking them at the end touches all their memory twice, and
fresh pages for each. Here an array is copied to its row while it is in the processor's cache, and
its own memory is free for the next sample.

The first sample determines the plan (`writers.py`). If a later one does not fit, the earlier ones
are rebuilt from their rows, and the ordinary collate function is called.

An object's ``__iter__`` may restart it each time that it is called, and an iterator may restart
after its end, have no ``__iter__``, or continue after an error. So `begun` calls ``iter()`` once,
and nothing calls it again on the result: `pulled` only calls ``next()``, until the first
`StopIteration`.
"""

from __future__ import annotations

from itertools import chain, repeat
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from tundish.loader.dataloader.writers import General, Making, Writer, writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tundish.loader.dataloader.dtypes import Leaf
    from tundish.loader.protocols.plain import Allocate


class StreamedCollate:
    """A batch that is being collated, without keeping its samples.

    Parameters
    ----------
    size : int
        The number of samples.
    allocate : callable
        ``allocate(shape, dtype)`` returns writable memory for a column of arrays; `shape` begins
        with `size`. It is called when the first sample is seen, and its errors propagate:
        then the batch is begun again, with a new object.
    leaf : callable
        ``leaf(array, torch_dtype)`` returns what the batch contains for an array that torch makes a
        tensor. For bfloat16 `torch_dtype` is ``"bfloat16"``, and the array int16 with the same
        bits.
    general : callable
        The ordinary collate function with the same leaves, for batches that do not fit the plan.
    torch_rules : bool, default True
        True if arrays that cannot be tensors (with negative strides) are left to `general`. A
        numpy loader accepts them.

    Notes
    -----
    The result is that of ``general([all samples])``, or its error. No sample is changed, or kept
    longer than necessary; not even the storage of a tensor is marked, as by ``numpy()``.

    Examples
    --------
    >>> import numpy as np
    >>> from tundish.loader.dataloader.collate import NUMPY, default_collate
    >>> batch = StreamedCollate(2, np.empty, NUMPY.leaf, default_collate, torch_rules=False)
    >>> batch.add((np.array([1, 2]), "a"))
    >>> batch.add((np.array([3, 4]), "b"))
    >>> batch.result()
    [array([[1, 2],
           [3, 4]]), ('a', 'b')]
    """

    __slots__ = ("_count", "_making", "_plan", "_samples", "_write")

    def __init__(
        self,
        size: int,
        allocate: Allocate,
        leaf: Leaf,
        general: General,
        *,
        torch_rules: bool = True,
    ) -> None:
        self._making = Making(size, allocate, leaf, general, torch_rules)
        self._count = 0
        self._plan: Writer | None = None
        self._write: Callable[[Any, int], bool] | None = None
        self._samples: list[Any] = []  # used when streaming was given up

    def add(self, sample: Any) -> None:
        """Append the next sample.

        Raises
        ------
        Exception
            The error of `allocate`.
        """
        row, size = self._count, self._making.size
        if row == 0 < size:
            self._plan = writer(sample, self._making, list)
            self._write = self._plan.write
        if self._write is None:
            self._samples.append(sample)
        elif row >= size or not self._write(sample, row):
            self._make_samples()
            self._samples.append(sample)
        self._count = row + 1

    def _make_samples(self) -> None:
        """Rebuild the earlier samples and stop writing rows: samples are kept from now on."""
        assert self._plan is not None
        self._samples = [self._plan.value(row) for row in range(self._count)]
        self._plan = self._write = None  # the columns' memory is no longer held

    def result(self) -> Any:
        """Return the batch; call it once.

        Raises
        ------
        Exception
            The error of `general` for these samples.
        """
        if self._plan is not None:
            if self._count == self._making.size:
                try:
                    batch = self._plan.finish()
                except Exception:  # noqa: BLE001, S110 - `general` raises it, and says where
                    pass
                else:
                    self._plan = self._write = None  # the columns' memory is the batch's alone
                    return batch
            self._make_samples()
        return self._making.general(self._samples)


# Iterators that are ended for good once they have ended: nothing need stand between.
_STEADY = {GeneratorType, type(iter(())), type(iter([])), type(iter(range(0)))}


def begun(iterable: Any) -> Any:
    """Call ``iter()``, once in a pass.

    Raises
    ------
    RuntimeError
        ``__iter__`` raised StopIteration, which would end the pass silently.
    """
    try:
        return iter(iterable)
    except StopIteration as error:
        raise RuntimeError(f"iter() of a {type(iterable).__name__} raised StopIteration") from error


def pulled(iterator: Any) -> Iterator[Any]:
    """Yield items by ``next()`` until the first StopIteration; items after an error follow it.

    It is implemented in C: `chain` drops what has ended, and keeps what has raised.

    Examples
    --------
    >>> list(pulled(iter("ab")))
    ['a', 'b']
    """
    return iterator if type(iterator) in _STEADY else chain(map(next, repeat(iterator)))


def raising(error: BaseException) -> Iterator[Any]:
    """Return an iterator that raises an error in place of one item.

    Examples
    --------
    >>> list(raising(ValueError("no")))
    Traceback (most recent call last):
    ValueError: no
    """
    return map(_raise, [error])


def _raise(error: BaseException) -> Any:
    raise error
