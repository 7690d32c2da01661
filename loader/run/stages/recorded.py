"""The stream of an incomplete snapshot: the elements that are on disk, then new ones from its input."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tundish.loader.protocols.failure import PASSING
from tundish.loader.protocols.items import End, Failure, Made, NotReady
from tundish.loader.protocols.pieces import RowChunk
from tundish.loader.protocols.raised import element_error
from tundish.loader.protocols.rows import Row, Rows
from tundish.loader.run.stages.parallel import ParallelStage
from tundish.loader.run.storing.live import nothing_served
from tundish.spec import flatten, is_nest, unflatten

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.protocols.block import Block
    from tundish.loader.protocols.contracts import Builder, Machine, Mark
    from tundish.loader.protocols.operator import Unary
    from tundish.loader.run.storing.recorder import Recorder
    from tundish.spec import Tree


class SnapshotTee:
    """Serve the durable prefix, then run the input from the state after it, and record what it gives.

    An element is named by its index. A restored machine reads files as far as they go, and computes the rest from
    its input.

    Parameters
    ----------
    build : callable
        Makes the input's machine, which gives computed items.
    prefix : callable
        ``prefix()`` returns a `Reader` of the elements on disk (or None), their number, and the
        state of the input after them.
    recorder : Recorder or None
        Writes the elements of this pass.
    pass_ : int
        The number of the pass; a later pass takes over the recorder.
    lazy : bool
        True if a pass is only read after the passes before it have ended.
    """

    def __init__(
        self,
        build: Callable[[], Machine],
        prefix: Callable[[], tuple[Any, int, Any]],
        recorder: Recorder | None,
        pass_: int,
        *,
        lazy: bool,
    ) -> None:
        self._build, self._prefix, self._recorder = build, prefix, recorder
        self._pass, self._lazy = pass_, lazy
        self._given = 0  # elements delivered, here or before a state was taken
        self._at = 0  # the index of the input's next element
        self._up: Machine | None = None
        self.group = 1
        """The number of rows that the reader takes at once; set before anything is handed out."""
        self._begun = self._ended = self._whole = False
        self._source: tuple[Any, int, Any] = (None, 0, None)
        self.content: str | None = None
        """Names the random draws of operators before the snapshot, which the plan does not say."""

    def next(self) -> Any:
        if not self._begun:
            self._begin()
        reader, durable, _ = self._source
        if self._given < durable:
            at = self._given
            self._given = at + 1
            return _stored(reader, at)
        while True:
            item = self._live()
            if self._at > self._given:
                self._given = self._at
                item.ref = self._at - 1
                return item

    def take(self, most: int) -> RowChunk | None:
        """Take up to `most` rows of a block; None if the next item is not such a row."""
        up = self._up
        if not isinstance(up, ParallelStage) or self._given != self._at:
            return None
        self._check_over()
        chunk: RowChunk | None = self._pulled(lambda: up.take(most))
        if chunk is not None:
            at = self._given = self._at
            chunk.refs = range(at - len(chunk), at)
        return chunk

    def _begin(self) -> None:
        recorder = self._recorder
        if recorder is not None and not self._owns(recorder):
            recorder = self._recorder = None
        if recorder is not None:
            if recorder.owner is not self:
                if recorder.owner is not None:
                    recorder.owner.release()
                recorder.settled()
                recorder.owner = self
            if recorder.complete:
                self._recorder, self._whole = None, True
        self._source = self._prefix()
        self._at = self._source[1]
        self._begun = True

    def _owns(self, recorder: Recorder) -> bool:
        """Return True if this stream is being recorded; of two streams of one pass only one is."""
        owner = recorder.owner
        if owner is None or owner is self:
            return True
        if owner.pass_number >= self._pass:
            return False
        if not self._lazy and not owner.over:
            raise NotReady  # the pass before this one is still running
        return True

    @property
    def pass_number(self) -> int:
        """Number of this pass."""
        return self._pass

    @property
    def over(self) -> bool:
        """True if the stream was ended by `forget`."""
        return self._ended

    def forget(self) -> None:
        """End the stream: nothing more will be read from it."""
        self._ended = True

    def release(self) -> None:
        """Make durable what this stream delivered, before another stream takes over the recorder."""
        if self._recorder is not None and self._up is not None:
            self._recorder.commit(self._state())
        self._recorder, self._ended = None, True

    def _live(self) -> Any:
        """Return the input's next item, and record it."""
        self._check_over()
        return self._pulled((self._up or self._opened()).next)

    def _check_over(self) -> None:
        """Raise End if all elements are on disk."""
        recorder = self._recorder
        if self._whole or (recorder is not None and recorder.complete):
            raise End
        if recorder is not None and recorder.whole:
            recorder.end(None)
            self._ended = True
            raise End

    def _pulled(self, ask: Callable[[], Any]) -> Any:
        """Call `ask` for an item, rows of a block, or None; record the result and return it."""
        recorder = self._recorder
        if recorder is None:
            return self._counted(ask())
        recorder.room()
        try:
            got = ask()
        except End:
            recorder.end(self._state())
            self._ended = True
            raise
        if got is not None:
            at = self._at
            self._counted(got)
            self._record(recorder, got, at)
        return got

    def _counted(self, got: Any) -> Any:
        if type(got) is RowChunk:
            relaid(got.source)
            self._at += len(got)
            return got
        if got is None:
            return None
        self._at += 1
        return as_stored(got)

    def _record(self, recorder: Recorder, got: Any, at: int) -> None:
        """Record an item or rows whose first index is `at`, unless they have been recorded before."""
        if self._at <= recorder.at and recorder.error is None:
            return
        assert self._up is not None
        if type(got) is Failure and isinstance(got.error, PASSING):
            # The error is this run's, not the element's: it is not stored.
            if recorder.error is None:
                recorder.commit(self._state())
                recorder.give_up(got.error)
            return
        mark = self._up.mark()  # not later: a machine that is not ready may have moved in part
        if type(got) is RowChunk:
            recorder.take_rows(got.source, got.first + max(0, recorder.at - at), got.stop, mark)
        else:
            recorder.take(got, mark)
        if recorder.due():
            recorder.commit(self._state())

    def _opened(self) -> Machine:
        """Return the input's machine, restored to the state at the end of the elements on disk."""
        up = self._build()
        if isinstance(up, ParallelStage):
            up.group = self.group
        _, durable, state = self._source
        if state is not None:
            up.load(state)
        elif durable:  # the input runs again from the start; nothing is recorded twice
            self._at = 0
        if self._recorder is not None:
            self._recorder.mark = up.mark()
        self._up = up
        return up

    def _state(self) -> Any:
        """Return the input's state after the last recorded element."""
        assert self._up is not None
        assert self._recorder is not None
        return self._up.dump(self._recorder.mark)

    def save(self) -> None:
        """Make all that was delivered so far durable."""
        if self._recorder is not None and self._up is not None:
            self._recorder.commit(self._state())

    def state(self) -> Any:
        """Return the input's state after the last delivered element; None before the first request."""
        return None if self._up is None else self._state()

    def mark(self, left: int = 0) -> Mark:
        return self._given - left

    def dump(self, mark: Mark) -> Any:
        from tundish.loader.operators.stored import stored_position  # noqa: PLC0415 - for snapshots

        return stored_position(mark, self.content)

    def load(self, state: Any) -> None:
        from tundish.loader.operators.stored import read_position  # noqa: PLC0415 - as above

        self._given = read_position(state, self.content)


def recorded(builder: Builder, node: Unary, pass_: int) -> SnapshotTee:
    """Return the stream of an incomplete snapshot; like a `cache`, it runs its input as pass 0."""
    live = builder.context.live.get(id(node))

    def build() -> Machine:
        return builder.noted(node, 0) if node.noting else builder.computed(node.up, 0)

    if live is None:
        return SnapshotTee(build, nothing_served, None, pass_, lazy=True)
    machine = SnapshotTee(build, live.served, live.recorder, pass_, lazy=not builder.ahead)
    machine.content = live.content
    builder.keeps(machine)
    return machine


def as_stored(item: Any) -> Any:
    """Return an item as reading it back would give it: namedtuple classes are made from their name and fields."""
    kind = type(item)
    if kind is Row:
        block, row = item.block, item.row
        if row in block.elements:
            block.elements[row] = _rebuilt(block.elements[row])
        else:
            relaid(block)
    elif kind is Rows:
        for run in item.runs:
            relaid(run[0])
    elif kind is Made and _holds_class(item.value):
        item.value = _rebuilt(item.value)
    return item


def _holds_class(value: Any) -> bool:
    """Return True if a nest contains a namedtuple."""
    kind = type(value)
    if not is_nest(value):
        return False
    if kind is not dict and kind is not tuple:
        return True
    return any(map(_holds_class, value.values() if kind is dict else value))


def relaid(block: Block) -> None:
    """Change a block's layout so that its rows look as they would when read back."""
    layout = block.layout
    if layout is not None and _has_class(layout.tree):
        block.layout = replace(layout, tree=_stored_tree(layout.tree))


def _rebuilt(value: Any) -> Any:
    leaves, tree = flatten(value)
    return unflatten(_stored_tree(tree), leaves) if _has_class(tree) else value


def _stored_tree(tree: Tree) -> Tree:
    from tundish.snapshot.encoding.structure import stored_tree  # noqa: PLC0415 - as above

    return stored_tree(tree)


@functools.lru_cache(256)  # it keeps the classes that it has seen
def _has_class(tree: Tree) -> bool:
    if tree is None:
        return False
    return tree[0] not in ("d", "t") or any(map(_has_class, tree[2]))


def _stored(reader: Any, at: int) -> Made | Failure:
    """Return an element from a file, or a failure if it cannot be read."""
    try:
        return Made(at, reader[at])
    except BaseException as error:  # noqa: BLE001 - the element's error
        return Failure(at, element_error(error))
