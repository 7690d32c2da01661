"""Asking a pipeline for one element after another, until it ends or there is a reason to leave."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tundish.cli.snapshot.exits import BAD_RECORDS, DONE, Refusal, told
from tundish.cli.snapshot.leaving import Leaving, Told
from tundish.cli.snapshot.log import Log, Pace
from tundish.errors import SnapshotError

if TYPE_CHECKING:
    from tundish.cli.snapshot.badrecords import BadRecords
    from tundish.cli.snapshot.room import Room
    from tundish.loader.run.iterator import Iterator
    from tundish.loader.watch.stats import SnapshotStats

__all__ = ["Pull"]


@dataclass
class Pull:
    """Who asks, and what is told on the way.

    Parameters
    ----------
    elements : Iterator
        Of a plan with a snapshot on top that is being written.
    log : Log
        Who is told.
    bad : BadRecords
        The elements that failed.
    max_errors : int
        How many may.
    room : Room
        Whether all will fit.
    at : int
        The index of the next element.
    of : int or None
        How many there will be.
    """

    elements: Iterator
    log: Log
    bad: BadRecords
    max_errors: int
    room: Room
    at: int
    of: int | None
    _commits: int = 0
    _pace: Pace = field(init=False)
    _begun_at: int = field(init=False)

    def __post_init__(self) -> None:
        self._begun_at = self.at
        self._pace = Pace(self.of, self.at)

    @property
    def seen(self) -> SnapshotStats:
        """How far the snapshot is."""
        return self.elements.stats.snapshots[-1]

    def run(self, leaving: Leaving) -> int:
        """Ask until the end; what has passed then is durable. The exit status.

        Raises
        ------
        SnapshotError
            It cannot be written any further.
        Refusal
            There will not be room for the rest.
        """
        try:
            status = self._ask(leaving)
        except Refusal:
            if self.seen.nbytes:
                self._commit()
            else:
                self._give_up()
            raise
        if status == BAD_RECORDS:
            self._give_up()
        elif status != DONE:
            self._commit()
        self._look()
        return status

    def _ask(self, leaving: Leaving) -> int:
        elements, bad, room = self.elements, self.bad, self.room
        next_look = time.monotonic() + self.log.every_s
        while leaving.signal is None:
            try:
                with leaving.waiting():
                    element = next(elements)
            except StopIteration:
                return DONE
            except Told:
                break
            except SnapshotError:
                raise
            except Exception as error:  # noqa: BLE001 - the element's error, whatever it is
                self.log.bad_record(bad.add(self.at, error))
                if bad.count > self.max_errors:
                    return BAD_RECORDS
            else:
                if room.asking:
                    room.look(element)
                del element  # its memory is wanted for the next ones
            self.at += 1
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + self.log.every_s
                self._look()
                room.written(self.at - self._begun_at, self.seen.nbytes)
        assert leaving.signal is not None
        return told(leaving.signal)

    def _look(self) -> None:
        """Tell how far it is."""
        seen = self.seen
        self.log.progress(self._pace.reached(self.at, seen.nbytes, self.bad.count))
        if seen.commits != self._commits:
            self._commits = seen.commits
            self.log.committed(seen.durable, seen.nbytes)

    def _commit(self) -> None:
        """Make durable what has passed."""
        with tempfile.TemporaryDirectory() as folder:
            self.elements.save(Path(folder, "state.json"))  # which commits first

    def _give_up(self) -> None:
        """Make nothing durable any more: an element that failed is to be tried again."""
        for recorder in self.elements._engine.context.recorders:  # noqa: SLF001 - a face of the same library
            recorder.give_up(InterruptedError("too many elements failed"))
