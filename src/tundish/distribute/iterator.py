"""The steps of one process: `DistributedIterator`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tundish.distribute.feeds import filled, no_rows, rows_in, with_mask
from tundish.distribute.state import DistributedPlace, from_state, to_state
from tundish.distribute.values import mirrored
from tundish.errors import OutOfRangeError, SpecError
from tundish.loader.plan.checks import check_count
from tundish.loader.protocols.raised import element_error
from tundish.loader.run.checkpoints import (
    holds_state,
    restore_state,
    write_next_state,
    write_state,
)
from tundish.loader.run.optional import Optional

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from tundish.distribute.feeds import Feed, ProcessStep
    from tundish.distribute.state import StateKind
    from tundish.distribute.values import Specs
    from tundish.loader.run.iterator import Iterator
    from tundish.loader.watch.stats import Stats
    from tundish.loader.watch.verdict import Verdict


@dataclass(frozen=True)
class Ending:
    """The agreement of processes on a number of steps.

    Attributes
    ----------
    uneven : str or None
        "drop", "pad", "error", "ignore"; None: as it comes.
    limit : int or None
        The number of steps, where it is known.
    all_min : callable or None
        Makes the least of one int of each process.
    mask_key : str
        The key under which "pad" says which rows are real.
    """

    uneven: str | None
    limit: int | None
    all_min: Callable[[int], int] | None
    mask_key: str


class DistributedIterator:
    """The elements of a distributed dataset for this process, step by step.

    Made by ``iter(distributed_dataset)``. A step is one element if this process has one
    replica; else a nest of `DistributedValues`, which `local_results` splits into elements.

    Notes
    -----
    `state_dict` belongs to the last delivered step. If rows are divided (DATA), it is
    the same in every process and fits any number of processes: together they continue with exactly the
    remaining elements. If each process has its own files or pipeline, the state belongs to this process. It
    is refused in another process, and with another number of processes.

    The error of a failed element is raised at its step, in the process that has its row. The other processes
    get that step, and all are in step again at the next one.

    Examples
    --------
    >>> import tundish as td
    >>> ds = td.distribute.distribute_dataset(td.Dataset.range(6).batch(4), replicas=2)
    >>> with iter(ds) as it:
    ...     for step in it:
    ...         print([part.tolist() for part in td.distribute.local_results(step)])
    [[0, 1], [2, 3]]
    [[4], [5]]
    """

    def __init__(
        self,
        iterators: Sequence[Iterator],
        feed: Feed,
        ending: Ending,
        kind: StateKind,
        specs: Specs,
    ) -> None:
        self._iterators, self._feed, self._ending = iterators, feed, ending
        self._kind, self._specs = kind, specs
        self._lock = threading.RLock()
        self._steps = 0
        self._ended = self._closed = False
        self._last: Any = None  # a piece that was delivered: what one without rows looks like
        self._waiting: ProcessStep | None = None  # taken, while processes had not agreed on it

    # -- elements ------------------------------------------------------------------------------

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        with self._lock:
            if self._ended or self._closed:
                raise StopIteration
            try:
                step = self._take()
            except BaseException as error:
                element_error(error)
                # Divided rows: the other processes have this step, and it is over for this one too.
                self._steps += self._kind.form in ("share", "whole")
                raise
            if step is None:
                self._ended = True
                raise StopIteration
            elements = self._elements(step)
            self._steps += 1
            return mirrored(elements)

    def next(self) -> Any:
        """The next element; the same as ``next(iterator)``."""
        return next(self)

    def get_next(self) -> Any:
        """The next element.

        Raises
        ------
        OutOfRangeError
            There are no more elements.
        """
        try:
            return next(self)
        except StopIteration:
            raise OutOfRangeError("the distributed dataset has no more elements") from None

    def get_next_as_optional(self) -> Optional:
        """Return the next element as an `Optional`, which has no value at the end."""
        try:
            value = next(self)
        except StopIteration:
            return Optional.empty(lambda: self.element_spec)
        made = Optional()
        made._value = value  # noqa: SLF001 - ours; from_value takes no DistributedValues
        return made

    def _take(self) -> ProcessStep | None:
        """Return the next step that all processes have; None at the end."""
        ending = self._ending
        if ending.limit is not None and self._steps >= ending.limit:
            return None
        step = self._waiting
        if step is None:
            try:
                step = self._feed.take(self._steps)
            except StopIteration:
                step = self._feed.nothing(self._steps)
                if ending.all_min is None:
                    return step if ending.limit is not None and ending.uneven == "pad" else None
        if ending.all_min is None or ending.uneven == "ignore":
            if ending.uneven == "drop" and not step.whole:
                return None
            return step if any(step.rows) or ending.all_min is None else None
        self._waiting = step
        go_on = self._agreed(step, ending.all_min)
        self._waiting = None
        return step if go_on else None

    def _agreed(self, step: ProcessStep, all_min: Callable[[int], int]) -> bool:
        """Return True if all processes have this step, or some have it and the others pad it."""
        if self._ending.uneven == "drop":
            return bool(all_min(int(step.whole)))
        rows = sum(step.rows)
        have = rows if self._ending.uneven == "error" else int(rows > 0)
        least, most = all_min(have), -all_min(-have)
        if self._ending.uneven == "error" and least != most:
            # They have agreed: on an error in each of them, and the end.
            self._waiting, self._ended = None, True
            raise SpecError(
                f"at step {self._steps} one process has {most} rows and another {least}: set uneven='drop' "
                "or 'pad'"
            )
        return most > 0

    def _elements(self, step: ProcessStep) -> list[Any]:
        """Return each replica's element: its rows, none, or padded and masked rows."""
        known = [piece for piece in step.pieces if piece is not None]
        if known:
            self._last = no_rows(known[0])
        made = []
        for piece, full in zip(step.pieces, step.full, strict=True):
            element = piece
            if piece is None:
                element = no_rows(self._specs.piece() if self._last is None else self._last)
            if self._ending.uneven == "pad":
                rows = rows_in(element)
                wanted = rows if full is None else max(full, rows)
                like = element if not known else known[0]
                element = with_mask(
                    filled(element, wanted, like), rows, wanted, self._ending.mask_key
                )
            made.append(element)
        return made

    @property
    def element_spec(self) -> Any:
        """The nest of `ArraySpec` of an element; of `DistributedValues` of them for several replicas."""
        return self._specs.element()

    # -- state ---------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return where the last step left this process, as JSON; taking it changes nothing.

        Raises
        ------
        RuntimeError
            `all_min` failed in the last call, when a step had been taken and not delivered.
        """
        with self._lock:
            if self._waiting is not None:
                raise RuntimeError(
                    f"all_min failed at step {self._steps}: there is no state until processes have agreed "
                    "on it; call next again, or go back to the last state you saved"
                )
            states = [each.state_dict() for each in self._iterators]
            return to_state(self._kind, states, DistributedPlace(self._steps, self._ended))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the position of a state.

        Parameters
        ----------
        state : dict
            What `state_dict` gave, here or elsewhere.

        Raises
        ------
        IncompatibleCheckpointError
            The state is of another dataset, or of another process, where processes have their own files.
        """
        states, place = from_state(self._kind, state)
        with self._lock:
            for each, its in zip(self._iterators, states, strict=True):
                each.load_state_dict(its)
            self._steps, self._ended, self._waiting = place.steps, place.ended, None
            self._closed = False
            self._feed.restored()

    def save(self, path: str | os.PathLike[str], *, keep: int | None = None) -> None:
        """Write the state to a file, as `Iterator.save` does.

        Parameters
        ----------
        path : path
            A file; with `keep` the folder of a series. Where processes have states of their own, each
            needs a path of its own; else one process saves for all.
        keep : int, optional
            How many states of the series to keep.
        """
        if keep is not None:
            check_count("keep", keep, least=1)
        with self._lock:
            for each in self._iterators:
                each._engine.save()  # noqa: SLF001 - what has passed a snapshot is made durable
            state = self.state_dict()
        if keep is None:
            write_state(path, state)
        else:
            write_next_state(path, state, keep)

    def restore(self, path: str | os.PathLike[str], *, missing_ok: bool = False) -> bool:
        """Go to where a saved state was taken, as `Iterator.restore` does.

        Parameters
        ----------
        path : path
            What `save` wrote.
        missing_ok : bool
            Do nothing where there is none.

        Returns
        -------
        bool
            Whether a state was restored.
        """
        if missing_ok and not holds_state(path):
            return False
        restore_state(path, self.load_state_dict)
        return True

    # -- around --------------------------------------------------------------------------------

    @property
    def stats(self) -> Stats | tuple[Stats, ...]:
        """The counts and times so far of this process's pipeline; with PER_REPLICA of each of them."""
        found = tuple(each.stats for each in self._iterators)
        return found[0] if len(found) == 1 else found

    def explain(
        self, since: Stats | tuple[Stats, ...] | None = None
    ) -> Verdict | tuple[Verdict, ...]:
        """Say what this process's pipeline is waiting for; with PER_REPLICA each of them.

        Parameters
        ----------
        since : Stats, optional
            Earlier `stats`, as `Iterator.explain` takes them.
        """
        looks = since if isinstance(since, tuple) else (since,) * len(self._iterators)
        found = tuple(each.explain(look) for each, look in zip(self._iterators, looks, strict=True))
        return found[0] if len(found) == 1 else found

    def close(self) -> None:
        """End the workers at once; what you hold stays yours."""
        self._closed = True  # it has not ended: a state that is taken now goes on from here
        for each in self._iterators:
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
