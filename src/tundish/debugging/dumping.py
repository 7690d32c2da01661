"""`enable_dump_debug_info`: records what every node gives in files as it runs."""

from __future__ import annotations

import operator
import threading
from typing import TYPE_CHECKING

from tundish.debugging.info import (
    DebugInfo,
    check_dtypes,
    check_mode,
    check_regex,
    check_root,
)
from tundish.debugging.probe import DumpProbe
from tundish.loader.protocols import probes

if TYPE_CHECKING:
    import os

    from tundish.debugging.info import Dtypes

_SWITCHING = threading.RLock()


def enable_dump_debug_info(
    dump_root: str | os.PathLike[str],
    tensor_debug_mode: str = "NO_TENSOR",
    circular_buffer_size: int = 1000,
    op_regex: str | None = None,
    tensor_dtypes: Dtypes | None = None,
) -> DebugInfo:
    """Note every element that any operator gives in files, of which the newest are kept.

    It is for iterators that are made from now on, in this process and in the workers that they
    start. `read_dump`, or ``tundish debug --dump DIR``, reads what is there, also while it is
    written, and after any process was killed.

    Parameters
    ----------
    dump_root : path
        A folder, made if it is not there. Each process writes files of its own into it.
    tensor_debug_mode : str
        What is noted of each leaf, beside its dtype and shape:

        - ``"NO_TENSOR"``, ``"SHAPE"``: nothing;
        - ``"CURT_HEALTH"``: whether all is finite, of a floating leaf;
        - ``"CONCISE_HEALTH"``: how many values it has, how many are nan, infinity and minus infinity;
        - ``"FULL_HEALTH"``: that, and the least, the largest and the mean of the finite values, of
          any leaf of real numbers;
        - ``"FULL_TENSOR"``: that, and the values, of leaves up to 1 MiB.
    circular_buffer_size : int
        How many elements are kept of each process, all operators together: the newest (fewer where
        they take more than 64 MiB). 0 or less: everything is kept, and the files grow.
    op_regex : str, optional
        Only of operators whose name it matches from the start (`re.match`): ``"^(map|batch)$"``. If it
        has a ``#``, their names in the plan: ``"map#2$"``.
    tensor_dtypes : iterable of dtypes, or callable, optional
        Only leaves of these dtypes (or their names; ``str`` and ``bytes`` too); or those for whose
        dtype it returns true. An element without any is not noted.

    Returns
    -------
    DebugInfo
        What is in force; its two methods to flush do nothing, since all is written at once.

    Raises
    ------
    ValueError
        `dump_root` is empty, the mode is another word, `op_regex` is no regular expression; or a dump
        is enabled with another mode or another `circular_buffer_size`.
    TypeError
        An argument is of another type, or a dtype is none.
    NotADirectoryError
        `dump_root` is there, and no folder.

    See Also
    --------
    disable_dump_debug_info : Switch it off.
    read_dump : What is in a folder.

    Notes
    -----
    Calling it again with another `dump_root`, `op_regex` or `tensor_dtypes` replaces them, and with
    another mode or size is an error, as in tensorflow (disable it first). Kept values of bfloat16 and its kin
    are noted as float32. tensorflow notes the operations of its graphs and their stack traces; here
    it is what passes between a pipeline's operators. Its other modes (for the tools that read its
    files) are not here.

    An element costs some 20 us for each operator that is dumped, more with its values, and operators
    compute one element at a time meanwhile. No fsync and no thread: what is written survives the
    process, not the machine.

    Examples
    --------
    >>> import tempfile
    >>> import tundish as td
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = td.debugging.enable_dump_debug_info(folder, "FULL_HEALTH")
    ...     elements = list(td.Dataset.range(3).map(lambda x: x / 2))
    ...     td.debugging.disable_dump_debug_info()
    ...     dump = td.debugging.read_dump(folder)
    >>> [(each.node, each.origin) for each in dump.records if each.node == "map#1"][:2]
    [('map#1', 'element 0'), ('map#1', None)]
    >>> dump.records[-1].leaves[0].dtype, dump.records[-1].leaves[0].largest
    ('float64', 1.0)
    """
    info = DebugInfo(
        check_root(dump_root),
        check_mode(tensor_debug_mode),
        max(0, operator.index(circular_buffer_size)),
        check_regex(op_regex),
        check_dtypes(tensor_dtypes),
    )
    with _SWITCHING:
        for probe in probes.active():
            if isinstance(probe, DumpProbe):
                if probe.info == info:
                    return probe.info
                _check_same(probe.info, info)
        disable_dump_debug_info()
        probes.activate(DumpProbe(info), first=True)  # what a check refuses is noted, too
    return info


def disable_dump_debug_info() -> None:
    """Note nothing of iterators that are made from now on; those that are there go on as they are.

    Calling it again, or without `enable_dump_debug_info`, does nothing.
    """
    with _SWITCHING:
        for probe in probes.active():
            if isinstance(probe, DumpProbe):
                probes.deactivate(probe)
                probe.opened.close()


def _check_same(old: DebugInfo, new: DebugInfo) -> None:
    for name in ("tensor_debug_mode", "circular_buffer_size"):
        before, now = getattr(old, name), getattr(new, name)
        if before != now:
            raise ValueError(
                f"a dump into {old.dump_root} is enabled with {name}={before!r}, so {now!r} cannot be: "
                "call disable_dump_debug_info() first"
            )
