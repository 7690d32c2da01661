"""A plan as it is run: the decisions on its snapshots and files, made when an iterator is made."""

from __future__ import annotations

from collections.abc import Callable

from tundish.loader.operators.files import ByNumber, ReadFiles, by_number, reads
from tundish.loader.operators.snapshot import snapshots
from tundish.loader.operators.sources import FromSource
from tundish.loader.plan.node import UNKNOWN_CARDINALITY, walk
from tundish.loader.plan.rebuilding import changed, exchanging
from tundish.loader.protocols.operator import Operator
from tundish.loader.run.storing.live import Setup


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
    """Return the plan of a dataset within a function: complete snapshots are read, none is written."""
    return resolve(root, 0, None, fresh=False, write=False).root


# -- files -----------------------------------------------------------------------------------------

Exchange = Callable[[Operator], Operator]
"""Gives a node of a plan as it is run."""

_STAND_IN = FromSource((), 0)
"""What has random access: to see what a plan would be."""


def indexed(root: Operator) -> Exchange:
    """Return the plan as it is run: files of which it asks where record i stands are looked at, and read by number.

    What is asked is a matter of the plan alone, so that a state means the same everywhere: operators
    that choose by position (`shuffle(None)`, `shard`, `skip` of many) ask where all below them could answer;
    ``index=True`` asks, and where a format tells it for nothing the answer is always taken.
    """
    return _exchanging(_asked(root))


def foreseen(root: Operator) -> Operator:
    """Return the same without looking at any file, to show a plan."""
    shown = {id(node): ByNumber(node.up, node.format) for node in _asked(root)}
    plan: Operator = exchanging(shown)(root)
    return plan


def _asked(root: Operator) -> list[ReadFiles]:
    """Return the files of which a plan asks where record i stands."""
    able = [node for node in reads(root) if node.indexable]
    wanted = {id(node) for node in able if node.index or node.format.cheap}
    for node in walk(root, running=True):
        if node.asks_numbers:
            below = [up for up in walk(node, running=True) if up in able]
            if below and _with_stand_ins(node, below).positional:
                wanted |= {id(up) for up in below}
    return [node for node in able if id(node) in wanted]


def indexed_for_access(root: Operator) -> Operator:
    """Return a plan for ``len(ds)`` and ``ds[i]``: all files are looked at, where that answers."""
    able = [node for node in reads(root) if node.indexable]
    if _with_stand_ins(root, able).cardinality == UNKNOWN_CARDINALITY:
        return root  # nothing is looked at in vain
    return _exchanging(able)(root)


def _with_stand_ins(node: Operator, files: list[ReadFiles]) -> Operator:
    plan: Operator = exchanging({id(each): _STAND_IN for each in files})(node)
    return plan


def _exchanging(files: list[ReadFiles]) -> Exchange:
    """Exchange files for their records by number; the same nodes for all iterators, since caches are shared."""
    return exchanging({id(node): by_number(node) for node in files}, changed)
