"""`set_log_device_placement`: a log of the process and thread in which each operator runs."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tundish.calls import check_is
from tundish.loader.protocols import probes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tundish.loader.protocols.context import Context


@dataclass(frozen=True)
class PlacementProbe:
    """Logs the first element of each operator in each process and thread.

    Parameters
    ----------
    consumer : int
        The process of the iterator.
    ordering, joining, making : tuple of str
        The operators of its plan: those whose order the consumer decides, those that it puts together from what
        others have made, and those that make elements.
    inner : bool
        True if the plan is that of a dataset which a function returned.
    told : set
        The operators that have been logged, with the process and thread.
    """

    consumer: int = 0
    ordering: tuple[str, ...] = ()
    joining: tuple[str, ...] = ()
    making: tuple[str, ...] = ()
    inner: bool = False
    told: set[Any] = field(default_factory=set, compare=False)

    def bound(self, context: Context) -> PlacementProbe:
        """Return the probe for one iterator; for an inner dataset, that of the iterator that reads it."""
        kinds: dict[str, list[str]] = {"ordering": [], "joining": [], "making": []}
        for node in context.nodes:
            if not node.transparent:
                makes = node.elementwise or not (node.running or node.replays)
                kind = "making" if makes else "joining" if node.joins else "ordering"
                kinds[kind].append(context.label(node))
        return PlacementProbe(
            self.consumer or os.getpid(),
            inner=bool(context.prefix),
            told=self.told if context.prefix else set(),
            **{kind: tuple(labels) for kind, labels in kinds.items()},
        )

    def see(self, label: str, element: Any, origin: tuple[int, Any] | None = None) -> None:
        """Log where an operator runs, once."""
        here = self._here()
        if origin is not None:
            self._tell([label] if label in self.making else [], here)
        elif not self.inner:  # delivered: the consumer's own are logged after the others
            self._tell(self.ordering, here)
            alone = not self.making or any((label, here) in self.told for label in self.making)
            self._tell(self.joining, here if alone else "the workers that make its elements")

    def _here(self) -> str:
        thread = threading.current_thread().name
        if os.getpid() != self.consumer:
            return f"worker process {os.getpid()}"
        return f"worker thread {thread}" if thread.startswith("tundish-worker") else "the consumer"

    def _tell(self, labels: Iterable[str], where: str) -> None:
        for label in labels:
            name = f"{label} of an inner dataset" if self.inner else label
            if (name, where) not in self.told:
                self.told.add((name, where))
                sys.stderr.write(f"tundish: {name} runs in {where}\n")


_PROBE = PlacementProbe()


def set_log_device_placement(enabled: bool) -> None:
    """Log where each operator of a pipeline runs, on stderr.

    It applies to iterators that are made after this call. For each operator there is one line for every process and
    thread that makes its elements: ``tundish: map#1 runs in worker process 4711``.

    Parameters
    ----------
    enabled : bool
        True to log, False to stop.

    Raises
    ------
    TypeError
        `enabled` is not a bool.

    See Also
    --------
    get_log_device_placement : Return True if it is on.

    Notes
    -----
    TensorFlow logs the device of each operation. Here a place is the consumer (the process that calls
    ``next``), a worker process, or a worker thread (``Options(executor="thread")``). Operators that decide the order
    of elements (`shuffle`, `take`, `scan` and others) always run in the consumer. While it is on, operators compute
    one element at a time, so cheap functions are slower.

    Examples
    --------
    >>> import contextlib, io
    >>> import tundish as td
    >>> td.debugging.set_log_device_placement(True)
    >>> with contextlib.redirect_stderr(io.StringIO()) as told:
    ...     elements = list(td.Dataset.range(3).map(lambda x: x + 1))
    >>> td.debugging.set_log_device_placement(False)
    >>> print(told.getvalue(), end="")
    tundish: range#0 runs in the consumer
    tundish: map#1 runs in the consumer
    """
    check_is(enabled, bool, "enabled must be a bool")
    if enabled:
        probes.activate(_PROBE)
    else:
        probes.deactivate(_PROBE)


def get_log_device_placement() -> bool:
    """Return True if `set_log_device_placement` is on.

    Returns
    -------
    bool

    Examples
    --------
    >>> get_log_device_placement()
    False
    """
    return _PROBE in probes.active()
