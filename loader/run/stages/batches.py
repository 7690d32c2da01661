"""The stage that batches rows computed by workers.

A batch whose rows are one run of one block is delivered as it lies in the slot. Where rows were
dropped, failed or moved, it is several runs, which a worker gathers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.errors import SpecError
from tundish.loader.operators.flat_map import FlatMapped
from tundish.loader.protocols.collate import Collator, misfit, unstackable
from tundish.loader.protocols.items import End, Failure, Made, Ref
from tundish.loader.protocols.raised import add_note, give_up
from tundish.loader.protocols.rows import Row, Rows, form_of_value, refs_of
from tundish.loader.protocols.state_parsing import count, load_part
from tundish.loader.run.stages.parallel import ParallelStage
from tundish.loader.run.stages.recorded import SnapshotTee

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.operators.batching import Batch
    from tundish.loader.protocols.block import Block
    from tundish.loader.protocols.contracts import Machine, Mark
    from tundish.loader.protocols.pieces import RowChunk


class RowBatches:
    """Batch computed rows, as runs of consecutive rows; a failed element fails its batch.

    Parameters
    ----------
    node : Batch
        The operator, with the batch size.
    up : Machine
        The machine that gives the computed rows.
    label : str
        The node's name, for notes on errors.
    """

    def __init__(self, node: Batch, up: Machine, label: str) -> None:
        self._up, self._size, self._drop = up, node.size, node.drop_remainder
        self._label = label
        self._take: Callable[[int], RowChunk | None] | None = None
        if isinstance(up, (FlatMapped, ParallelStage, SnapshotTee)):
            self._take = up.take
        self._rest: RowChunk | None = None  # the rows after one that failed its batch
        self._count = 0
        self._fits: Any = None  # the last key whose rows can be stacked
        self._begin()

    def _begin(self) -> None:
        self._runs: list[Any] = []  # runs of rows, or `Made`
        self._values = False  # whether `_runs` has a `Made`
        self._have = 0
        self._key: Any = None

    def next(self) -> Any:
        take, pull, size = self._take, self._up.next, self._size
        try:
            while self._have < size:
                chunk = self._rest
                if chunk is None and take is not None:
                    chunk = take(size - self._have)
                if chunk is None:
                    failed = self._add(pull())
                else:
                    failed = self._add_run(chunk.source, chunk.first, chunk.stop, chunk.own_refs)
                    self._rest = None if failed is None else chunk.after(1)
                if failed is not None:
                    return failed
        except End:
            if not self._have or self._drop:
                raise
        runs, n = self._runs, self._count
        whole = self._stacked(n) if self._values else Rows(n, runs)
        self._begin()
        self._count += 1
        return whole

    def _add(self, got: Any) -> Failure | None:
        kind = type(got)
        if kind is Failure:
            return self._fail(got.ref, got.error)
        if kind is Row:
            return self._add_run(got.block, got.row, got.row + 1, [got.ref])
        return self._add_value(got)

    def _add_run(self, block: Block, first: int, stop: int, refs: Any) -> Failure | None:
        """Append rows of a block; if they do not fit the batch, return a failure at the first of them."""
        key = block.key_of(first) or form_of_value(block.elements[first])
        problem = self._misfit(key)
        if problem is not None:
            return self._misfitting(refs_of((block, first, first + 1, refs))[0], problem)
        runs = self._runs
        last = runs[-1] if runs else None
        if type(last) is tuple and last[0] is block and last[2] == first:
            joined = None if refs is None else [*refs_of(last), *refs]
            runs[-1] = (block, last[1], stop, joined)
        else:
            runs.append((block, first, stop, refs))
        self._have += stop - first
        return None

    def _add_value(self, item: Any) -> Failure | None:
        """Append an item whose value is in this process, or a batch of rows that is itself an element."""
        value = item.value
        problem = self._misfit(form_of_value(value))
        if problem is not None:
            return self._misfitting(item.ref, problem)
        self._runs.append(Made(item.ref, value))
        self._values = True
        self._have += 1
        return None

    def _misfit(self, key: Any) -> str | None:
        (tree, keys) = key
        if self._key is None:
            problem = None if key == self._fits else unstackable(keys, tree)
            if problem is None:
                self._key = self._fits = key
            return problem
        if key is self._key or key == self._key:
            return None
        first_tree, first_keys = self._key
        return misfit(self._have, list(keys), tree, list(first_keys), first_tree)

    def _misfitting(self, ref: Ref, problem: str) -> Failure:
        error = SpecError(problem)
        add_note(error, f"tundish: in {self._label}, at element {ref}")
        return self._fail(ref, error)

    def _refs(self) -> list[Ref]:
        refs: list[Ref] = []
        for run in self._runs:
            refs += [run.ref] if isinstance(run, Made) else refs_of(run)
        return refs

    def _fail(self, ref: Ref, error: BaseException) -> Failure:
        refs = self._refs()
        give_up(error, refs)
        self._begin()
        return Failure((self._count, (*refs, ref)), error)

    def _stacked(self, n: int) -> Made:
        """Stack a batch in this process: some of its rows are plain values here."""
        refs = self._refs()
        batch = Collator(len(refs))
        for run in self._runs:
            if isinstance(run, Made):
                batch.add(run.value)
            else:
                block, first, stop, _ = run
                for row in range(first, stop):
                    batch.add(block.element(row))
        return Made((n, tuple(refs)), batch.finish())

    def mark(self) -> Mark:
        up: Any = self._up
        left = 0 if self._rest is None else len(self._rest)
        return (self._count, up.mark(left) if left else up.mark())

    def dump(self, mark: Mark) -> Any:
        return {"n": mark[0], "up": self._up.dump(mark[1])}

    def load(self, state: Any) -> None:
        self._count = count(state, "n")
        load_part(self._up, state)
