"""The iterator of a job, which makes elements as the job orders them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tundish.loader.run.iterator import Iterator
from tundish.loader.service.jobs.elements import written, written_error

if TYPE_CHECKING:
    from tundish.loader.dataset import Dataset
    from tundish.loader.service.jobs.production import MakeOrder

_STATE_SHARE = 0.02
"""States of the iterator are taken as often as they cost at most so much of the time."""


class ElementMaker:
    """The iterator of a job, as orders want it.

    Parameters
    ----------
    dataset : Dataset
        The dataset to iterate over.
    iteration : int
        The number of the iteration.
    workers : int, optional
        The number of workers, as for an iterator.
    """

    def __init__(self, dataset: Dataset, iteration: int, workers: int | None) -> None:
        self._node, self._iteration, self._workers = dataset._node, iteration, workers  # noqa: SLF001
        self._iterator: Iterator | None = None
        self._state_at = 0.0

    def do(self, order: MakeOrder) -> Callable[[Any], None]:
        """Carry out an order; return a function that reports the result to the job."""
        if order.begin:
            return self._begin(order)
        assert self._iterator is not None
        try:
            blobs, nbytes = written(next(self._iterator))
        except StopIteration:
            return lambda job: job.end(order.turn)
        except BaseException as error:  # noqa: BLE001 - it is the element's, which may not be one to send
            blobs, nbytes = written_error(error)
        state = self._state()
        return lambda job: job.made(order.turn, blobs, nbytes, state)

    def _begin(self, order: MakeOrder) -> Callable[[Any], None]:
        if self._iterator is None:
            self._iterator = Iterator(self._node, iteration=self._iteration, workers=self._workers)
            self._start = self._iterator.state_dict()
        self._iterator.load_state_dict(dict(order.state or self._start))
        state = order.state or self._start
        return lambda job: job.began(order.turn, state)

    def _state(self) -> dict[str, Any] | None:
        """Return the iterator's state now and then, so that it costs little."""
        began = time.perf_counter()
        if began < self._state_at:
            return None
        assert self._iterator is not None
        state = self._iterator.state_dict()
        now = time.perf_counter()
        self._state_at = now + (now - began) / _STATE_SHARE
        return state

    def close(self) -> None:
        """End its workers."""
        if self._iterator is not None:
            self._iterator.close()
