"""shard_by_process: one process's part of the elements, or of every batch; positions stay global."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tundish.errors import SpecError
from tundish.loader.plan.inputs import InputContext
from tundish.loader.protocols.chunk import taken
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.items import End, Failure, ref_of
from tundish.loader.protocols.operator import Unary
from tundish.loader.protocols.positional import Positions
from tundish.loader.protocols.refs import ints
from tundish.loader.protocols.state_parsing import load_part, own

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import Builder, Machine, Mark, Short


class NoRows(Exception):  # noqa: N818 - no error: it stands for a step
    """Stands for a batch in which this process has no rows, though others have."""


@dataclass(frozen=True, eq=False)
class ShardByProcess(Unary):
    """One process's share of the elements; positions stay global."""

    context: InputContext

    op = "shard_by_process"
    positional = False
    passes = relays = choosing = asks_numbers = True
    undivided = "already divides the elements: leave it out, or put it after the snapshot"

    @property
    def share(self) -> InputContext:
        return self.context

    @property
    def cardinality(self) -> int:
        below, count = self.up.cardinality, self.context.num_input_pipelines
        return (
            max(0, -(-(below - self.context.input_pipeline_id) // count)) if below >= 0 else below
        )

    def params(self) -> dict[str, Any]:
        return {}  # one fingerprint on every host and for every number of hosts

    def machine(self, builder: Builder, pass_: int) -> Machine:
        return ProcessShare(self, builder.build(self.up, pass_))


@dataclass(frozen=True, eq=False)
class BatchShare(ShardByProcess):
    """The elements of this process's replicas: a part of every `rows` consecutive elements.

    Elements are dealt in runs, so that the processes' parts in order are the batch.
    """

    rows: int
    short: Short = "keep"

    fails = True

    @property
    def local(self) -> tuple[int, int]:
        """The numbers of this process's replicas: the first, and the one after the last."""
        context = self.context
        each = context.num_replicas_in_sync // context.num_input_pipelines
        return each * context.input_pipeline_id, each * (context.input_pipeline_id + 1)

    def mine(self, rows: int) -> tuple[int, int]:
        """Return the bounds of this process's rows in a batch of `rows`."""
        first, stop = self.local
        replicas = self.context.num_replicas_in_sync
        return part_of(rows, first, replicas)[0], part_of(rows, stop - 1, replicas)[1]

    def count_of(self, rows: int) -> int:
        """Return the number of this process's rows in a batch of `rows`."""
        first, stop = self.mine(rows)
        return stop - first

    @property
    def cardinality(self) -> int:
        below = self.up.cardinality
        if below < 0:
            return below
        whole, rest = divmod(below, self.rows)
        last = self.count_of(rest) if self.short == "keep" else 0
        return whole * self.count_of(self.rows) + last

    def params(self) -> dict[str, Any]:
        return {"rows": self.rows}  # one fingerprint for every number of processes

    def machine(self, builder: Builder, pass_: int) -> Machine:
        return PartsOfBatches(self, builder.build(self.up, pass_))


def part_of(rows: int, index: int, count: int) -> tuple[int, int]:
    """Return the bounds of one of several parts of a batch; sizes differ by at most one, larger parts first.

    Examples
    --------
    >>> [part_of(7, index, 4) for index in range(4)]
    [(0, 2), (2, 4), (4, 6), (6, 7)]
    """
    size, rest = divmod(rows, count)
    return size * index + min(index, rest), size * (index + 1) + min(index + 1, rest)


class OfRounds:
    """The base of machines that take a part of each round of items; their states are between rounds."""

    def __init__(self, up: Machine) -> None:
        self._up = up

    def mark(self) -> Mark:
        return self._up.mark()

    def dump(self, mark: Mark) -> Any:
        below = self._up.dump(mark)
        # Not at the top: a stage downstream tells its own counts from a state without any there.
        counted = isinstance(below, dict) and "counts" in below
        return {"share": below} if counted else below

    def load(self, state: Any) -> None:
        if own(state, "share"):
            load_part(self._up, state, "share")
        else:
            self._up.load(state)


class ProcessShare(OfRounds):
    """One item of each round over all processes, as a stream."""

    def __init__(self, node: ShardByProcess, up: Machine) -> None:
        super().__init__(up)
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


class PartsOfBatches(OfRounds):
    """The items of each round that belong to this process, as a stream.

    After an element that failed, the batch downstream begins within a round. A state that is taken
    there counts the round as complete, so that processes that restore it are in step.

    Parameters
    ----------
    node : BatchShare
        The operator, with the items of a round and the part of this process.
    up : Machine
        The machine that gives all items.
    """

    def __init__(self, node: BatchShare, up: Machine) -> None:
        super().__init__(up)
        self._node = node
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
        """Read to the end of a round; the items read so far are kept if one is not ready."""
        found, up, rows = self._round, self._up, self._node.rows
        try:
            while len(found) < rows:
                if isinstance(up, Positions):
                    found += ints(taken(up, rows - len(found)))
                else:
                    found.append(up.next())
        except End:
            self._ended = True
        self._reached = up.mark()

    def mark(self) -> Mark:
        return self._reached

    def load(self, state: Any) -> None:
        super().load(state)
        self._reached = self._up.mark()


def _not_whole(rows: int, whole: int) -> SpecError:
    return SpecError(
        f"the last global batch has {rows} of {whole} elements, and uneven='error': 'drop' drops it, 'pad' "
        "fills it up and marks the real rows in a mask"
    )


class SharingMethods(Fluent):
    """The method of `Dataset` that divides it among processes."""

    def shard_by_process(self, context: InputContext | None = None) -> Self:
        """Keep this process's share, with one plan and one state on every process.

        Process i of n takes the elements whose *global* position modulo n is i. The state counts
        global positions: saved by n processes at the same step, it is restored by any other
        number of them, and together they deliver the rest, each element once.

        Parameters
        ----------
        context : InputContext, optional
            Default: from the environment, as torchrun, Slurm, MPI and others set it.

        Raises
        ------
        TypeError
            `context` is something else.

        Notes
        -----
        tf.data has only `shard`. Put `shuffle` before it, not after: a window filled with one
        process's share cannot be continued by another number of processes (such a state is
        refused).

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(7).shard_by_process(td.InputContext(3, 1))]
        [1, 4]
        """
        if context is None:
            context = InputContext.from_environment()
        if not isinstance(context, InputContext):
            raise TypeError(f"context must be an InputContext, not {type(context).__name__}")
        return self._then(ShardByProcess, context)
