"""One process's part of every round of elements, or of every batch, dealt before anything is computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tundish.errors import SpecError
from tundish.loader.operators.order import ShardByProcess
from tundish.loader.operators.sharing import BatchShare, NoRows
from tundish.loader.protocols.items import End, Failure, ref_of
from tundish.loader.protocols.positional import Positions
from tundish.loader.protocols.stated import load_part, own

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Builder, Machine, Mark, Operator
    from tundish.loader.run.machines import MakeMachine


class ProcessShare:
    """shard_by_process: one item of each round over all processes; its state is between rounds."""

    def __init__(self, node: ShardByProcess, up: Machine) -> None:
        self._up = up
        self._count = node.context.num_input_pipelines
        self._index = node.context.input_pipeline_id
        self._round: list[Any] = []
        self._ended = False

    def next(self) -> Any:
        if self._ended:
            raise End
        while len(self._round) < self._count:
            try:
                self._round.append(self._up.next())
            except End:
                self._ended = True
                break
        mine = self._round[self._index : self._index + 1]
        self._round = []
        if not mine:
            raise End
        return mine[0]

    def mark(self) -> Mark:
        return self._up.mark()

    def dump(self, mark: Mark) -> Any:
        below = self._up.dump(mark)
        # Not at the top: a stage above tells its own counts from a state without any there.
        counted = isinstance(below, dict) and "counts" in below
        return {"share": below} if counted else below

    def load(self, state: Any) -> None:
        if own(state, "share"):
            load_part(self._up, state, "share")
        else:
            self._up.load(state)


class PartsOfBatches:
    """Of each round of items those of this process; its state is between rounds.

    Behind an element that failed the batch above begins within a round. A state that is taken there
    says that the round is over: whoever wants to stay in step with other processes goes there.

    Parameters
    ----------
    node : BatchShare
        How many items a round has, and which are whose.
    up : Machine
        All items.
    """

    def __init__(self, node: BatchShare, up: Machine) -> None:
        self._node, self._up = node, up
        self._round: list[Any] = []
        self._mine: Iterator[Any] = iter(())
        self._ended = False
        self._reached: Mark = up.mark()

    def next(self) -> Any:
        for item in self._mine:
            return item
        if not self._ended:
            self._gather()
        found, self._round = self._round, []
        rows, node = len(found), self._node
        if not rows or (rows < node.rows and node.short == "drop"):
            raise End
        if rows < node.rows and node.short == "error":
            return Failure(ref_of(found[-1]), _not_whole(rows, node.rows))
        first, stop = node.mine(rows)
        if first == stop:
            return Failure(ref_of(found[0]), NoRows())
        self._mine = iter(found[first:stop])
        return next(self._mine)

    def _gather(self) -> None:
        """Go on to the end of a round; what has come is kept where an item is not ready."""
        found, up, rows = self._round, self._up, self._node.rows
        try:
            while len(found) < rows:
                if isinstance(up, Positions):
                    found += up.run(rows - len(found))
                else:
                    found.append(up.next())
        except End:
            self._ended = True
        self._reached = up.mark()

    def mark(self) -> Mark:
        return self._reached

    def dump(self, mark: Mark) -> Any:
        below = self._up.dump(mark)
        # Not at the top: a stage above tells its own counts from a state without any there.
        counted = isinstance(below, dict) and "counts" in below
        return {"share": below} if counted else below

    def load(self, state: Any) -> None:
        if own(state, "share"):
            load_part(self._up, state, "share")
        else:
            self._up.load(state)
        self._reached = self._up.mark()


def _not_whole(rows: int, whole: int) -> SpecError:
    return SpecError(
        f"the last global batch has {rows} of {whole} elements, and uneven='error': 'drop' leaves it "
        "out, 'pad' fills it up and says by a mask which rows are real"
    )


def _shares(builder: Builder, node: BatchShare, pass_: int) -> Machine:
    return PartsOfBatches(node, builder.build(node.up, pass_))


def _process_share(builder: Builder, node: ShardByProcess, pass_: int) -> Machine:
    return ProcessShare(node, builder.build(node.up, pass_))


MACHINES: dict[type[Operator], MakeMachine] = {ShardByProcess: _process_share, BatchShare: _shares}
