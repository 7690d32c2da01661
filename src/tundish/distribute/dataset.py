"""Distributed datasets: one process's part of a dataset."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.distribute.iterator import DistributedIterator
    from tundish.distribute.options import InputOptions
    from tundish.distribute.values import Specs
    from tundish.loader.dataset import Dataset
    from tundish.loader.plan.inputs import InputContext
    from tundish.loader.run.iterator import Iterator


class DistributedDataset:
    """One process's part of a dataset, in steps that all processes have.

    Made by `distribute_dataset` and `distribute_datasets_from_function`. ``iter`` gives a
    `DistributedIterator`; as of a `Dataset`, the second one is iteration 1.

    Examples
    --------
    >>> import tundish as td
    >>> context = td.InputContext(num_input_pipelines=2, input_pipeline_id=1, num_replicas_in_sync=2)
    >>> ds = td.distribute.distribute_dataset(td.Dataset.range(7).batch(4), context=context)
    >>> [x.tolist() for x in ds], ds.cardinality
    ([[2, 3], [6]], 2)
    """

    _datasets: tuple[Dataset, ...]
    _open: Callable[[tuple[Iterator, ...]], DistributedIterator]
    _specs: Specs

    def __init__(self) -> None:
        raise TypeError("make one with distribute_dataset or distribute_datasets_from_function")

    def _begin(  # a constructor
        self,
        datasets: tuple[Dataset, ...],
        open_: Callable[[tuple[Iterator, ...]], DistributedIterator],
        specs: Specs,
        *,
        context: InputContext,
        options: InputOptions,
        cardinality: int,
        seed: Callable[[], int] | None,
    ) -> Self:
        self._datasets, self._open, self._specs = datasets, open_, specs
        self._context, self._options, self._cardinality = context, options, cardinality
        self._seed = seed
        self._lock = threading.Lock()
        self._iterations = 0
        return self

    def __iter__(self) -> DistributedIterator:
        with self._lock:
            iteration = self._iterations
            self._iterations += 1
        return self.iterator(iteration=iteration)

    def iterator(self, *, iteration: int = 0, workers: int | None = None) -> DistributedIterator:
        """Make an iterator of a given iteration, without counting it.

        Parameters
        ----------
        iteration : int
            Which one: the first ``iter`` is 0.
        workers : int, optional
            In place of what the dataset's options say.
        """
        if self._seed is not None:
            with self._lock:
                if self._seed is not None:
                    for each in self._datasets:
                        each._seed = self._seed()  # noqa: SLF001 - ours: drawn before its first iterator
                    self._seed = None
        made: list[Iterator] = []
        try:
            for each in self._datasets:
                made.append(each.iterator(iteration=iteration, workers=workers))  # noqa: PERF401 - those made are closed if one fails
            return self._open(tuple(made))
        except BaseException:
            for iterator in made:
                iterator.close()
            raise

    @property
    def element_spec(self) -> Any:
        """The nest of `ArraySpec` of an element, as the iterator gives it.

        For several replicas each leaf is `DistributedValues` of specs. A first dimension is None
        where steps may differ.
        """
        return self._specs.element()

    @property
    def cardinality(self) -> int:
        """The number of steps, if the plan determines it; else INFINITE or UNKNOWN."""
        return self._cardinality

    @property
    def options(self) -> InputOptions:
        """The options with which it was distributed."""
        return self._options

    @property
    def context(self) -> InputContext:
        """The number of this process, and the number of processes."""
        return self._context

    def reduce(self, initial_state: Any, reduce_fn: Callable[[Any, Any], Any]) -> Any:
        """Fold this process's elements into one value.

        Parameters
        ----------
        initial_state : nest
            The state before the first element.
        reduce_fn : callable
            Called as ``reduce_fn(state, element)``; returns the next state.
        """
        state = initial_state
        with iter(self) as elements:
            for element in elements:
                state = reduce_fn(state, element)
        return state

    def __repr__(self) -> str:
        count, index = self._context.num_input_pipelines, self._context.input_pipeline_id
        inner = ", ".join(map(repr, self._datasets))
        return f"<DistributedDataset, process {index} of {count}: {inner}>"
