"""A plan as it is run: what becomes of its snapshots, decided when an iterator is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tundish.loader.plan.node import walk
from tundish.loader.plan.storing import Snapshot
from tundish.loader.run.storing.live import Setup

if TYPE_CHECKING:
    from tundish.loader.plan.node import Node


def resolve(root: Node, seed: int, graph_seed: int | None, *, fresh: bool, write: bool) -> Setup:
    """Look at what stands on disk, and say what is to be done with each snapshot of a plan.

    Parameters
    ----------
    root : Node
        The plan.
    seed, graph_seed : int
        Of the iterator that is made.
    fresh : bool
        Whether it begins at the start: then it may take over the seed of a run that it continues.
    write : bool
        Whether anything may be written.

    Raises
    ------
    IncompleteSnapshotError
        ``mode="read"``, and it is not complete.
    IncompatibleSnapshotError
        ``on_mismatch="error"``, and there are only snapshots of other pipelines.
    """
    setup = Setup(root, seed, graph_seed)
    if any(isinstance(node, Snapshot) for node in walk(root)):
        # pyarrow takes a while to load, and is needed by nobody else.
        from tundish.loader.run.storing.resolve import Resolving  # noqa: PLC0415 - see above
        from tundish.loader.run.storing.telling import check_permutations  # noqa: PLC0415 - see above

        try:
            setup.root = Resolving(setup, fresh=fresh, write=write).rebuilt(root)
            check_permutations(setup.root)
        except BaseException:
            setup.leave()  # those that were to be written
            raise
    return setup


def resolved_inner(root: Node) -> Node:
    """The plan of a dataset within a function: complete snapshots are read, none is written."""
    return resolve(root, 0, None, fresh=False, write=False).root
