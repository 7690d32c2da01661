"""`save_on_signal`: a job that gets a signal to end saves its position in the data, and ends."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from types import FrameType, TracebackType
from typing import Any, Self

from tundish.loader.run.checkpoints import local_file, write_state
from tundish.prefetching import Prefetcher

__all__ = ["SavedOnSignal", "save_on_signal"]


def save_on_signal(
    it: Iterable[Any],
    path: str | os.PathLike[str],
    signals: Iterable[signal.Signals] = (signal.SIGTERM,),
    *,
    save: Callable[[dict[str, Any]], object] | None = None,
    agree: Callable[[bool], bool] | None = None,
) -> SavedOnSignal:
    """Iterate; on a signal save the state between two steps, then let the signal take effect.

    Slurm and Kubernetes send SIGTERM to a job that must end, and kill it after a grace period.

    Parameters
    ----------
    it : iterator, or an iterable with a state
        An iterator of a `Dataset`, one of `to_device`, or a DataLoader (then iterate over the result once
        per epoch).
    path : path
        The file for the state, which is written completely or not at all. ``it.restore(path, missing_ok=True)``
        reads it.
    signals : iterable of signal.Signals
        The signals. With Slurm's ``--signal=USR1@120`` add ``signal.SIGUSR1``.
    save : callable, optional
        A function that saves the model, called with the state before the state is written. It may also save both
        in one checkpoint.
    agree : callable, optional
        For several processes, which must save at the same step. It is called before every step with True if this
        process has got a signal, and returns True if all are to save: an all-reduce of the maximum.

    Returns
    -------
    SavedOnSignal
        A context manager, and the iterator to loop over.

    Raises
    ------
    RuntimeError
        This is not the main thread, which alone may handle signals.
    TypeError
        `it` has no state, or its state is not JSON.
    ValueError
        `path` is a URL.

    Notes
    -----
    The state covers the batches whose steps are done. A signal during a step takes effect when the loop asks for
    the next batch. A signal while the loop waits for a batch takes effect at once (with ``agree``, before the next
    step). Then the previous handler is called, or the default action taken: the process ends by that signal. If the
    handler returns, or the signal was ignored, iteration continues. Leaving the ``with`` block restores the
    handlers. If an exception leaves it after a signal has come, the signal takes effect, and nothing is saved.

    Restore the iterator before this call. A state is taken at every step (`state_dict`).

    Examples
    --------
    >>> import signal, tempfile, tundish as td
    >>> file = tempfile.mkdtemp() + "/data.json"
    >>> ds = td.Dataset.range(6)
    >>> seen = []
    >>> previous = signal.signal(signal.SIGTERM, lambda *_: seen.append("told"))
    >>> with ds.iterator() as it, td.save_on_signal(it, file) as elements:
    ...     for x in elements:
    ...         if x == 2:
    ...             signal.raise_signal(signal.SIGTERM)  # as Slurm does
    ...         seen.append(int(x))
    >>> seen
    [0, 1, 2, 'told', 3, 4, 5]
    >>> with ds.iterator() as it:
    ...     it.restore(file), [int(x) for x in it]
    (True, [3, 4, 5])
    >>> _ = signal.signal(signal.SIGTERM, previous)
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("save_on_signal is for the main thread: only that one handles signals")
    return SavedOnSignal(it, path, tuple(signals), save, agree)


class _Interrupted(BaseException):
    """The signal came while the loop was waiting; never seen outside."""


class SavedOnSignal:
    """An iterator whose state is saved when a signal comes; made by `save_on_signal`."""

    def __init__(
        self,
        it: Iterable[Any],
        path: str | os.PathLike[str],
        signals: tuple[signal.Signals, ...],
        save: Callable[[dict[str, Any]], object] | None,
        agree: Callable[[bool], bool] | None,
    ) -> None:
        self._source = it
        # One element at a time, each with its state, so that a call can be taken back.
        self._elements = Prefetcher(it, 0) if hasattr(it, "__next__") else None
        self._path, self._signals, self._save, self._agree = path, signals, save, agree
        self._came: tuple[int, FrameType | None] | None = None
        self._waiting = False
        self._previous: dict[int, Any] = {}
        local_file(path)  # better now than in the grace period; and so below
        json.dumps(self._state())

    def _state(self) -> dict[str, Any]:
        source: Any = self._elements or self._source
        if not hasattr(source, "state_dict"):
            raise TypeError(f"{type(source).__name__} has no state_dict")
        state: dict[str, Any] = source.state_dict()
        return state

    # -- elements ------------------------------------------------------------------------------

    def __iter__(self) -> Self:
        if not hasattr(self._source, "__next__"):
            self._elements = Prefetcher(self._source, 0)
        return self

    def __next__(self) -> Any:
        if self._elements is None:
            iter(self)
        assert self._elements is not None
        before = self._state()
        told = self._came is not None
        if told if self._agree is None else self._agree(told):
            self._act(before)
        while True:
            try:
                return self._wait()
            except _Interrupted:
                self._act(before)
                self._elements.load_state_dict(before)  # still here: the signal was not the end

    def _wait(self) -> Any:
        self._waiting = self._agree is None
        try:
            return next(self._elements)  # type: ignore[arg-type]  # there is one by now
        finally:
            self._waiting = False

    # -- signals -------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        for number in self._signals:
            # None is a handler that is not Python's: it cannot be put back.
            self._previous[number] = signal.signal(number, self._handle) or signal.SIG_DFL
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._came is None:
            self._came = (number, frame)
        # Not while workers are being started or ended, which holds Ctrl-C back too.
        if self._waiting and signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ()):
            self._waiting = False
            raise _Interrupted

    def _act(self, state: dict[str, Any]) -> None:
        """Save, and let the signal take effect."""
        told, self._came = self._came, None  # if saving fails, its error is what there is to tell
        if self._save is not None:
            self._save(state)
        write_state(self._path, state)
        self._pass_on(*(told or (self._signals[0], None)))  # the signal went to another process

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        """Do what the signal would have done without us."""
        previous = self._previous[number]
        if callable(previous):
            previous(number, frame)
        elif previous == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self._came is None or (kind is not None and issubclass(kind, SystemExit)):
            return
        if kind is None:
            self._act(self._state())
            return
        # A step failed, so there is no state to save. The job must end all the same, and the error be seen.
        if self._previous[self._came[0]] == signal.SIG_DFL:
            assert error is not None
            sys.excepthook(kind, error, frames)
            sys.stderr.flush()
        self._pass_on(*self._came)
