"""Batching in this process."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from tundish.errors import SpecError
from tundish.loader.protocols.collate import Collator
from tundish.loader.protocols.items import End, Failure, Made
from tundish.loader.protocols.ownership import lend
from tundish.loader.protocols.raised import add_note, give_up
from tundish.loader.protocols.refs import BatchRefs, ints
from tundish.loader.protocols.state_parsing import count, load_part

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.operators.batching import Batch
    from tundish.loader.protocols.chunk import Chunk
    from tundish.loader.protocols.contracts import Machine, Mark
    from tundish.loader.protocols.items import Ref
    from tundish.loader.watch.watch import StageMeter, Watch


def clocked(function: Callable[..., Any], inside: list[float]) -> Callable[..., Any]:
    """Wrap a function so that the seconds it takes are added to `inside`."""

    def call(*args: Any) -> Any:
        began = perf_counter()
        try:
            return function(*args)
        finally:
            inside[0] += perf_counter() - began

    return call


class InlineBatches:
    """Stack computed items into batches; a failed element fails its batch.

    Parameters
    ----------
    node : Batch
        The operator, with the batch size.
    up : Machine
        The machine that gives computed items.
    label : str
        The node's name, for notes on errors.
    watch : Watch
        The iterator's watch.
    meter : StageMeter
        Counts the batches.
    """

    def __init__(
        self, node: Batch, up: Machine, label: str, *, watch: Watch, meter: StageMeter
    ) -> None:
        self._up, self._size, self._drop = up, node.size, node.drop_remainder
        self._take: Callable[[int], Any] | None = getattr(up, "take", None)
        lend(up)
        self._label = label
        self._count = 0
        self._rest: Chunk | None = None  # the elements after one that failed its batch
        # A batch that waits for workers: its elements so far, the refs of its chunks, and of the single items after them.
        self._begun: tuple[Collator, list[Any], list[Ref]] | None = None
        self._watch, self._meter = watch, meter
        self._own: list[float] | None = None

    def time(self, *, on: bool) -> None:
        """Start or stop timing the stacking."""
        own = self._watch.sample(self._label).own
        self._own = own.setdefault(self._label, []) if on else None

    def next(self) -> Any:
        if self._own is None:
            made = self._next()
        else:
            inside = [0.0]
            began = perf_counter()
            made = self._next(inside)
            self._own.append(perf_counter() - began - inside[0])
        if type(made) is Failure:
            self._meter.fail(self._label)
        else:
            self._meter.elements += 1
        return made

    def _next(self, inside: list[float] | None = None) -> Any:
        """Return the next batch; the seconds that its items took are added to `inside`."""
        size, pull, take = self._size, self._up.next, self._take
        if inside is not None:
            pull, take = clocked(pull, inside), None if take is None else clocked(take, inside)
        if self._begun is None:
            if take is not None:
                self._rest = self._rest or take(size)
                if self._rest is None:
                    take = None  # usually what follows comes one by one as well
                elif self._rest.ours and len(self._rest) == size:
                    whole = self._rest.columns
                    if whole is not None:
                        refs, self._rest = self._rest.refs, None
                        return self._made(whole, [refs])
            self._begun = (Collator(size), [], [])
        elif take is not None and self._begun[2]:
            take = None
        batch, parts, single = self._begun
        add, note = batch.add, single.append
        try:
            while batch.count < size:
                if take is not None:
                    chunk = self._rest or take(size - batch.count)
                    self._rest = None
                    if chunk is None:
                        take = None
                        continue
                    failed = self._add(batch, parts, chunk)
                    if failed is not None:
                        return failed
                    continue
                item = pull()
                if type(item) is Failure:
                    return self._given_up([*parts, single], item.error, item.ref)
                try:
                    add(item.value)
                except SpecError as error:
                    return self._misfitting([*parts, single], error, item.ref)
                note(item.ref)
        except End:
            if not batch.count or (self._drop and batch.count < size):
                raise
        return self._made(batch.finish(), [*parts, single] if single else parts)

    def _made(self, value: Any, parts: list[Any]) -> Made:
        n, self._begun = self._count, None
        self._count += 1
        return Made((n, BatchRefs(parts)), value)

    def _add(self, batch: Collator, parts: list[Any], chunk: Chunk) -> Failure | None:
        """Append a chunk to a batch; return the failure that takes the batch's place, if there is one."""
        count, columns = batch.count, chunk.columns
        try:
            if columns is not None:
                batch.add_columns(columns, len(chunk))
            else:
                for value in chunk.values:
                    batch.add(value)
        except SpecError as error:
            fit = batch.count - count
            self._rest = chunk.after(fit + 1)
            (ref,) = ints(chunk.refs[fit : fit + 1])
            return self._misfitting([*parts, chunk.refs[:fit]], error, ref)
        parts.append(chunk.refs)
        return None

    def _misfitting(self, parts: list[Any], error: SpecError, ref: Ref) -> Failure:
        add_note(error, f"tundish: in {self._label}, at element {ref}")
        return self._given_up(parts, error, ref)

    def _given_up(self, parts: list[Any], error: BaseException, ref: Ref) -> Failure:
        refs, self._begun = BatchRefs(parts).ref, None
        give_up(error, list(refs))
        return Failure((self._count, (*refs, ref)), error)

    def mark(self) -> Mark:
        left = 0 if self._rest is None else len(self._rest)
        up: Any = self._up
        return (self._count, up.mark(left) if left else up.mark())

    def dump(self, mark: Mark) -> Any:
        return {"n": mark[0], "up": self._up.dump(mark[1])}

    def load(self, state: Any) -> None:
        self._count, self._rest, self._begun = count(state, "n"), None, None
        load_part(self._up, state)
