"""Where the consumer's time goes: waiting, our own work, and the caller's own code."""

from __future__ import annotations

from time import perf_counter, process_time

from tundish.loader.watch.histogram import Durations


class Ledger:
    """An account of one iterator's wall time, in seconds.

    Attributes
    ----------
    began : float
        When the iterator was made, by ``perf_counter``.
    waited_s, own_s, outside_s : float
        Time in waits for workers, in the rest of ``next``, and between calls.
    waits : Durations
        The durations of the waits.
    waits_since : float or None
        When the current wait began; set by the code that waits.
    """

    __slots__ = (
        "_at", "_cpu_s", "_ended", "_inside", "_waited_s", "began", "outside_s", "own_s", "waited_s",
        "waits", "waits_since",
    )  # fmt: skip

    def __init__(self) -> None:
        self._cpu_s = process_time()
        self.began = self._at = perf_counter()  # `_at`: when a call last began or ended
        self.waited_s = self.own_s = self.outside_s = self._waited_s = 0.0
        self.waits = Durations()
        self._inside = False
        self.waits_since: float | None = None
        self._ended: tuple[float, float] | None = None

    def begin(self) -> None:
        """Reset the account; called within a call of ``next``."""
        self._at = perf_counter()
        self._waited_s, self._inside = 0.0, True

    def enter(self) -> None:
        """Note the start of a call; nested calls are ignored."""
        if self._inside:
            return
        now = perf_counter()
        self.outside_s += now - self._at
        self._at, self._inside = now, True

    def waited(self, seconds: float) -> None:
        """Add a wait for workers that has ended."""
        self.waits_since = None
        self._waited_s += seconds

    def leave(self, now: float) -> float:
        """Note the end of a call, at `now`; return its duration."""
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
        """Close the account: no more calls will come."""
        if self._ended is None:
            self._ended = perf_counter(), process_time()

    def so_far(self) -> tuple[float, float, float, float]:
        """Return the seconds of waiting, own work and outside, up to now or the end, and their total."""
        now = self._ended[0] if self._ended else perf_counter()
        wall_s = now - self.began
        if not self._inside:
            # Not less than 0 if another thread calls at this very moment.
            outside_s = max(0.0, self.outside_s + now - self._at)
            return self.waited_s, self.own_s, outside_s, wall_s
        # Within a call: another thread or a signal's handler asks.
        since, waited = self.waits_since, self._waited_s
        if since is not None:
            waited += now - since
        own_s = self.own_s + now - self._at - waited
        return self.waited_s + waited, own_s, self.outside_s, wall_s

    @property
    def cpu_s(self) -> float:
        """Return the processor seconds this process has used since the ledger was made."""
        return (self._ended[1] if self._ended else process_time()) - self._cpu_s
