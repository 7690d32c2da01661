"""A workload as data: what every peer is given, and what it must deliver."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Work:
    """One row of the suite.

    Attributes
    ----------
    name, title : str
        The key of results and pages, and what a reader sees.
    kind : {"map", "lines", "arrays"}
        "map": `function` of the indices ``0 .. count``. "lines": `function` of lists of lines, whose tokens are packed.
        "arrays": rows of `arrays`, without a function.
    count : int
        Samples of an epoch: elements, rows or lines.
    bound : str
        What `bound_rate` measures, in words.
    share : float, optional
        The share of the bound that tundish must reach.
    nearer : str, optional
        What `nearer_rate` measures, in words: a bound that does more of the work than `bound` does.
    function : callable, optional
        Imported by every peer from the same file.
    arrays : callable, optional
        Returns a dict of arrays.
    parquet : str, optional
        The file that `arrays` reads, for peers that read Parquet themselves.
    batch : int, optional
        Elements of a batch; None for elements as they are.
    shuffle, ordered : bool
        A true permutation of the whole; and if the delivered order is part of the output.
    epochs : int, optional
        Passes that are measured as a whole; None for as many as fit into `seconds`.
    processes : bool
        Only settings with worker processes are run: in one process an array that exists is handed over as it is.
    step : float
        Seconds that the consumer sleeps after each batch.
    seconds : float
        A measurement without `epochs` ends after so many.
    bound_rate, nearer_rate : callable
        ``bound_rate(index, seconds)`` runs in `bound_processes` processes and returns samples/s of one.
    """

    name: str
    title: str
    kind: str
    count: int
    bound: str
    bound_rate: Callable[[int, float], float]
    share: float | None = None
    function: Callable[[Any], Any] | None = None
    arrays: Callable[[], dict[str, Any]] | None = None
    parquet: str | None = None
    batch: int | None = None
    shuffle: bool = False
    ordered: bool = False
    epochs: int | None = None
    processes: bool = False
    step: float = 0.0
    seconds: float = 1.2
    bound_processes: int = 2
    nearer: str | None = None
    nearer_rate: Callable[[int, float], float] | None = None

    @functools.cached_property
    def expected(self) -> tuple[int, int]:
        """(samples, multiset hash) of one epoch, computed without any loader."""
        from hashing import multiset

        return multiset(self.elements())

    def elements(self) -> Any:
        """Batches of one epoch, in order, made in this process by plain Python."""
        import numpy as np

        if self.kind == "arrays":
            assert self.arrays
            columns = self.arrays()
            yield columns if len(columns) > 1 else next(iter(columns.values()))
        elif self.kind == "lines":
            from packing import lines, pack

            assert self.function
            yield from pack(map(self.function, lines(self.count)))
        else:
            assert self.function
            for index in range(self.count):
                yield np.asarray(self.function(index))[None]
