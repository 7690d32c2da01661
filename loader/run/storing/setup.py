"""A plan as it is run: what becomes of its snapshots and files, decided when an iterator is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tundish.loader.operators.files import reads
from tundish.loader.operators.snapshot import snapshots
from tundish.loader.plan.node import walk
from tundish.loader.run.files.indexing import indexed
from tundish.loader.run.storing.live import Setup

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator


def resolve(
    root: Operator, seed: int, graph_seed: int | None, *, fresh: bool, write: bool
) -> Setup:
    """Look at what stands on disk, and say what is to be done with each snapshot of a plan, and its files.

    Parameters
    ----------
    root : Operator
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
    SpecError
        ``shuffle(None)`` stands above what has no random access.
    """
    setup = Setup(root, seed, graph_seed)
    stores = bool(snapshots(root))
    if not stores and not reads(root):
        return setup
    try:
        if stores:
            # pyarrow takes a while to load, and is needed by nobody else.
            from tundish.loader.run.storing.resolve import Resolving  # noqa: PLC0415 - see above

            setup.root = Resolving(setup, fresh=fresh, write=write).rebuilt(root)
        _look_at_files(setup)
        for node in walk(setup.root, running=True):
            node.check()
    except BaseException:
        setup.leave()  # those that were to be written
        raise
    return setup


def _look_at_files(setup: Setup) -> None:
    as_run = indexed(setup.root)
    waiting = [node for node in walk(setup.root) if id(node) in setup.live]
    setup.live = {id(as_run(node)): setup.live[id(node)] for node in waiting}
    setup.root = as_run(setup.root)


def resolved_inner(root: Operator) -> Operator:
    """The plan of a dataset within a function: complete snapshots are read, none is written."""
    return resolve(root, 0, None, fresh=False, write=False).root
