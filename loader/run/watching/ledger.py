"""The time of the consumer: waiting, our own work, and what it does itself."""

from __future__ import annotations

from time import perf_counter, process_time

from tundish.loader.watch.histogram import Durations


class Ledger:
    """The time of one iterator, divided; all of it in seconds.

    Attributes
    ----------
    began : float
        When it was made, by ``perf_counter``.
    waited_s, own_s, outside_s : float
        Spent in waits for workers, in the rest of ``next``, and between its calls.
    waits : Durations
        The waits.
    waits_since : float or None
        When the wait that is going on began; who waits sets it.
    """

    __slots__ = (
        "_at", "_cpu_s", "_ended", "_inside", "_waited_s", "began", "outside_s", "own_s", "waited_s",
        "waits", "waits_since",
    )  # fmt: skip

    def __init__(self) -> None:
        self._cpu_s = process_time()
        self.began = self._at = perf_counter()  # the caller asked last, or was answered, then
        self.waited_s = self.own_s = self.outside_s = self._waited_s = 0.0
        self.waits = Durations()
        self._inside = False
        self.waits_since: float | None = None
        self._ended: tuple[float, float] | None = None

    def begin(self) -> None:
        """Measure again from here on, which is within a call."""
        self._at = perf_counter()
        self._waited_s, self._inside = 0.0, True

    def enter(self) -> None:
        """Note that the caller asks; within a call nothing happens."""
        if self._inside:
            return
        now = perf_counter()
        self.outside_s += now - self._at
        self._at, self._inside = now, True

    def waited(self, seconds: float) -> None:
        """Count a wait for workers, which is over."""
        self.waits_since = None
        self._waited_s += seconds

    def leave(self, now: float) -> float:
        """Note that the caller is answered; return how long the call took."""
        took = now - self._at
        self._at, self._inside = now, False
        self.own_s += took
        waited = self._waited_s
        if waited:
            self._waited_s = 0.0
            self.own_s -= waited
            self.waited_s += waited
            self.waits.add(waited)
        return took

    def end(self) -> None:
        """Note that nothing will be asked for any more."""
        if self._ended is None:
            self._ended = perf_counter(), process_time()

    def so_far(self) -> tuple[float, float, float, float]:
        """Waiting, own work, and outside, up to this moment or the end; and all since it was made."""
        now = self._ended[0] if self._ended else perf_counter()
        wall_s = now - self.began
        if not self._inside:
            # Not below 0 where the caller asks at this very moment, in another thread.
            outside_s = max(0.0, self.outside_s + now - self._at)
            return self.waited_s, self.own_s, outside_s, wall_s
        # Within a call: another thread asks, or a signal's handler.
        since, waited = self.waits_since, self._waited_s
        if since is not None:
            waited += now - since
        own_s = self.own_s + now - self._at - waited
        return self.waited_s + waited, own_s, self.outside_s, wall_s

    @property
    def cpu_s(self) -> float:
        """The processor time that this process has used while the ledger was kept, in seconds."""
        return (self._ended[1] if self._ended else process_time()) - self._cpu_s
