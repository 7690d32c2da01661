"""A batch made of samples that come one at a time, each written into its row at once.

Keeping the samples of a batch and stacking them in the end touches all their memory twice, and
fresh pages for each. Here an array goes to its place while it is in the processor's cache, and
the block it came in is free for the next sample.

The first sample makes the plan (`writers.py`). When a later one does not fit, the earlier ones
are made again out of their rows, and the ordinary collate has the word.

An object's ``__iter__`` may begin anew each time that it is called, and an iterator may begin anew
once it has ended, have no ``__iter__``, or go on after an error. So `begun` calls ``iter()`` once,
and nothing calls it again of what that gave: `pulled` only calls ``next()``, until the first
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

__all__ = ["General", "StreamedCollate", "begun", "pulled", "raising"]


class StreamedCollate:
    """One batch in the making; samples need not be kept.

    Parameters
    ----------
    size : int
        The number of samples.
    allocate : callable
        ``allocate(shape, dtype)`` gives writable memory for a column of arrays; `shape` begins
        with `size`. It is called when the first sample is seen, and what it raises passes through:
        then the batch is begun again, with a new object.
    leaf : callable
        ``leaf(array, torch_dtype)`` is what stands in the batch for an array that torch makes a
        tensor. For bfloat16 `torch_dtype` is ``"bfloat16"``, and the array int16 with the same
        bits.
    general : callable
        The ordinary collate, of the same leaves: it takes what does not fit.
    torch_rules : bool, default True
        Whether arrays that cannot be tensors (with negative strides) are left to `general`. A
        numpy loader takes them.

    Notes
    -----
    The result is what ``general([all samples])`` gives, or raises. No sample is changed, nor kept
    for longer than it is needed; not even the storage of a tensor is marked, as by ``numpy()``.

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
        """Take the next sample.

        Raises
        ------
        Exception
            What `allocate` raises.
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
        """Make the earlier samples again, and write no more: from now on they are kept."""
        assert self._plan is not None
        self._samples = [self._plan.value(row) for row in range(self._count)]
        self._plan = self._write = None  # the columns' memory is no longer held

    def result(self) -> Any:
        """The batch; to be asked for once.

        Raises
        ------
        Exception
            What `general` raises for these samples.
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
    """Call ``iter()``, the one time in a pass.

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
    """Call ``next()`` until the first StopIteration; an error is raised, and what follows it comes.

    All of it is C: `chain` forgets what has ended, and keeps what has raised.

    Examples
    --------
    >>> list(pulled(iter("ab")))
    ['a', 'b']
    """
    return iterator if type(iterator) in _STEADY else chain(map(next, repeat(iterator)))


def raising(error: BaseException) -> Iterator[Any]:
    """Give an error in place of one item.

    Examples
    --------
    >>> list(raising(ValueError("no")))
    Traceback (most recent call last):
    ValueError: no
    """
    return map(_raise, [error])


def _raise(error: BaseException) -> Any:
    raise error
