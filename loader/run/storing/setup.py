"""Preparation of a plan for running: decisions on its snapshots and indexed files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tundish.loader.plan.node import walk
from tundish.loader.run.storing.live import Setup

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator


def resolve(
    root: Operator, seed: int, graph_seed: int | None, *, fresh: bool, write: bool
) -> Setup:
    """Prepare a plan: decide for each of its snapshots and files, by what is on disk, how it is used.

    Parameters
    ----------
    root : Operator
        The plan.
    seed, graph_seed : int
        The iterator's seeds.
    fresh : bool
        True if the iterator starts at the beginning; it may then adopt the seeds of a run that it continues.
    write : bool
        False if nothing may be written.

    Raises
    ------
    IncompleteSnapshotError
        ``mode="read"``, and the snapshot is not complete.
    IncompatibleSnapshotError
        ``on_mismatch="error"``, and only snapshots of other pipelines exist.
    SpecError
        ``shuffle(None)`` follows an operator without random access.
    """
    setup = Setup(root, seed, graph_seed)
    stores = any(node.recorded for node in walk(root))
    if not stores and not any(node.consecutive for node in walk(root, running=True)):
        return setup
    from tundish.loader.run.storing.indexing import look_at_files  # noqa: PLC0415 - for files alone

    try:
        if stores:
            # pyarrow takes a while to load, and only snapshots need it.
            from tundish.loader.run.storing.resolve import Resolving  # noqa: PLC0415 - see above

            setup.root = Resolving(setup, fresh=fresh, write=write).rebuilt(root)
        look_at_files(setup)
        for node in walk(setup.root, running=True):
            node.check()
    except BaseException:
        setup.leave()  # those that were to be written
        raise
    return setup


def resolved_inner(root: Operator) -> Operator:
    """Return the plan of a dataset inside a function: complete snapshots are read, none is written."""
    setup = resolve(root, 0, None, fresh=False, write=False)
    if setup.live:
        from tundish.loader.run.storing.telling import say_not_written  # noqa: PLC0415 - as above

        say_not_written(root)
    return setup.root
