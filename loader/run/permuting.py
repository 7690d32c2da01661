"""What ``shuffle(None)`` needs, looked at when an iterator is made: only then it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tundish.errors import SpecError
from tundish.loader.operators.files import ReadFiles
from tundish.loader.operators.shuffle import Shuffle, no_permutation
from tundish.loader.operators.snapshot import Snapshot
from tundish.loader.plan.node import walk

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator

__all__ = ["check_permutations"]


def check_permutations(root: Operator) -> None:
    """Refuse ``shuffle(None)`` over what has no random access, or not yet."""
    for node in walk(root, running=True):
        if (
            isinstance(node, Shuffle)
            and node.window is None
            and not (node.positional and node.cardinality >= 0)
        ):
            waiting = [n for n in walk(node) if isinstance(n, Snapshot) and not n.positional]
            if waiting:
                raise SpecError(
                    "shuffle(None) permutes positions; the snapshot below it has random access once "
                    f"it is complete, and {waiting[0].path} is not: run the pipeline up to the "
                    "snapshot first, or use shuffle(buffer_size)"
                )
            left = [n for n in walk(node) if isinstance(n, ReadFiles) and n.on_error == "skip"]
            if left:
                raise SpecError(
                    f"shuffle(None) permutes positions, and {left[0].label} leaves out records that "
                    "cannot be read, which have none: let it raise, and put ignore_errors() behind the shuffle"
                )
            raise no_permutation(node.up)
