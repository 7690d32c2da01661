"""One process's part of every batch: what `tundish.distribute` puts below the last `batch`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tundish.loader.operators.order import ShardByProcess

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Short

__all__ = ["BatchShare", "NoRows", "part_of"]


class NoRows(Exception):  # noqa: N818 - no error: it stands for a step
    """In the place of a batch of which this process has no rows: the others have one."""


def part_of(rows: int, index: int, count: int) -> tuple[int, int]:
    """Where a part of a batch begins and ends; sizes differ by at most one, the first are larger.

    Examples
    --------
    >>> [part_of(7, index, 4) for index in range(4)]
    [(0, 2), (2, 4), (4, 6), (6, 7)]
    """
    size, rest = divmod(rows, count)
    return size * index + min(index, rest), size * (index + 1) + min(index + 1, rest)


@dataclass(frozen=True, eq=False)
class BatchShare(ShardByProcess):
    """Of each `rows` elements those of this process's replicas; positions stay global.

    Elements are dealt in runs, so that the parts of a batch side by side are the batch.
    """

    rows: int
    short: Short = "keep"

    fails = True

    @property
    def local(self) -> tuple[int, int]:
        """The numbers of this process's replicas: the first, and the one behind the last."""
        context = self.context
        each = context.num_replicas_in_sync // context.num_input_pipelines
        return each * context.input_pipeline_id, each * (context.input_pipeline_id + 1)

    def mine(self, rows: int) -> tuple[int, int]:
        """Which of so many rows are this process's."""
        first, stop = self.local
        replicas = self.context.num_replicas_in_sync
        return part_of(rows, first, replicas)[0], part_of(rows, stop - 1, replicas)[1]

    def count_of(self, rows: int) -> int:
        """How many of so many rows are this process's."""
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
