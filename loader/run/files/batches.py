"""Batches of the records of files: whole runs at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.errors import SpecError
from tundish.formats.format import Columns
from tundish.formats.tables.files import joined
from tundish.loader.protocols.blame import give_up
from tundish.loader.protocols.collate import Collator
from tundish.loader.protocols.items import End, Failure, Made, Ref
from tundish.loader.protocols.refs import BatchRefs, Stretch
from tundish.loader.run.inlinebatches import InlineBatches, clocked

if TYPE_CHECKING:
    from tundish.formats.format import Run
    from tundish.loader.operators.batching import Batch
    from tundish.loader.run.files.sequence import FileSequence
    from tundish.loader.watch.watch import StageMeter, Watch

Piece = tuple[Any, int, int]
"""Some records of a run."""


class FileBatches(InlineBatches):
    """As `InlineBatches`, over files that are read in this process.

    Text is put into an array of objects at once; columns are sliced. Anything else, and what does not
    fit what stands in the batch already, is put together one record at a time.

    Parameters
    ----------
    node : Batch
        How many records.
    up : FileSequence
        The files.
    label : str
        Of the node.
    watch, meter
        As for `InlineBatches`.
    """

    def __init__(
        self,
        node: Batch,
        up: FileSequence,
        label: str,
        *,
        watch: Watch,
        meter: StageMeter,
    ) -> None:
        super().__init__(node, up, label, watch=watch, meter=meter)
        self._files, self._leaf = up, up.form.leaf

    def _next(self, inside: list[float] | None = None) -> Any:
        some = self._files.some if inside is None else clocked(self._files.some, inside)
        pieces: list[Piece] = []
        parts: list[Stretch] = []
        batch: Collator | None = None
        have = 0
        try:
            while have < self._size:
                found = some(self._size - have)
                if isinstance(found, Failure):
                    return self._given_up(parts, found.error, found.ref)
                refs, run, first, stop = found
                parts.append(refs)
                have += stop - first
                if batch is None and self._goes_on(pieces, run):
                    pieces.append((run, first, stop))
                    continue
                batch = batch or self._one_by_one(pieces)
                for k in range(first, stop):
                    try:
                        batch.add(run[k])
                    except SpecError as error:
                        self._files.back(stop - k - 1)
                        refs.stop -= stop - k
                        ref = next(iter(Stretch(refs.outer, refs.places, refs.stop, refs.stop + 1)))
                        error.add_note(f"tundish: in {self._label}, at element {ref}")
                        return self._given_up(parts, error, ref)
        except End:
            if not have or (self._drop and have < self._size):
                raise
        n = self._count
        self._count += 1
        value = self._stacked(pieces) if batch is None else batch.finish()
        return Made((n, BatchRefs(parts)), value)

    def _given_up(self, parts: list[Stretch], error: BaseException, ref: Ref) -> Failure:
        refs = [x for part in parts for x in part]
        give_up(error, refs)
        return Failure((self._count, (*refs, ref)), error)

    def _goes_on(self, pieces: list[Piece], run: Run) -> bool:
        """Whether records of another run may be put behind those that are there all at once."""
        if self._leaf is not None:
            return True
        if not isinstance(run, Columns) or not run.stackable:
            return False
        if not pieces:
            return True
        leaves, tree = pieces[0][0].flat
        others, other = run.flat
        return tree == other and all(
            a.dtype == b.dtype and a.shape[1:] == b.shape[1:]
            for a, b in zip(leaves, others, strict=True)
        )

    def _stacked(self, pieces: list[Piece]) -> Any:
        if self._leaf is None:
            return joined([run.stacked(first, stop) for run, first, stop in pieces])
        values: list[Any] = []
        for run, first, stop in pieces:
            values += run.part(first, stop)
        return np.array(values, object)

    def _one_by_one(self, pieces: list[Piece]) -> Collator:
        batch = Collator(self._size)
        for run, first, stop in pieces:
            for k in range(first, stop):
                batch.add(run[k])
        return batch
