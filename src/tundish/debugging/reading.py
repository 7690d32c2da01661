"""`read_dump`: reads the files of a dump."""

from __future__ import annotations

import base64
import errno
import io
import os
from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from tundish.debugging.ring import SUFFIX, VERSION, parse_line
from tundish.errors import TundishError
from tundish.formats.bytes.regular import open_regular, read_all
from tundish.loader.protocols.lineage import describe_origin

_MOST_BYTES = 1 << 32  # the largest file of a dump that is read
_LOOKS = 5


@dataclass(frozen=True)
class DumpedLeaf:
    """The record of one leaf; what the mode leaves out is None.

    Attributes
    ----------
    path : str
        The leaf, such as ``"['image']"``; "" if the element is a single leaf.
    dtype : str
        Its dtype, or ``"str"``, ``"bytes"``, ``"object"``.
    shape : tuple of int
        Its shape.
    finite : bool or None
        True if all values of a floating leaf are finite.
    size, nan, pos_inf, neg_inf : int or None
        The number of values of a floating leaf, and how many of them are not finite.
    least, largest, mean : int, float or None
        The least, largest and mean of the finite values of a leaf of real numbers.
    value : numpy.ndarray, numpy scalar, str, bytes or None
        The values.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    finite: bool | None = None
    size: int | None = None
    nan: int | None = None
    pos_inf: int | None = None
    neg_inf: int | None = None
    least: float | None = None
    largest: float | None = None
    mean: float | None = None
    value: Any = None

    @property
    def spec(self) -> str:
        """Dtype and shape as text: ``float32 [3, 4]``."""
        return f"{self.dtype} {list(self.shape)}" if self.shape else self.dtype


@dataclass(frozen=True)
class DumpedProcess:
    """A process that has written to the folder.

    Attributes
    ----------
    host : str
        The machine's name.
    pid : int
        The process id.
    started : float
        The time when it began to write, in seconds since 1970.
    role : str
        "consumer" or "worker".
    mode : str
        The `tensor_debug_mode`, which says what it records.
    """

    host: str
    pid: int
    started: float
    role: str
    mode: str


@dataclass(frozen=True)
class DumpRecord:
    """One element that a node gave.

    Attributes
    ----------
    number : int
        Its number among the records of its process, from 0.
    time : float
        The time, in seconds since 1970.
    node : str
        The node's name, such as ``"map#2"``.
    origin : str or None
        The element in words, such as ``"element 17 of pass 2"``; None for one that was delivered.
    iterator, plan : str
        The iterator's name, and its operators.
    process : DumpedProcess
        The process that computed it.
    leaves : tuple of DumpedLeaf
        The element.
    """

    number: int
    time: float
    node: str
    origin: str | None
    iterator: str
    plan: str
    process: DumpedProcess
    leaves: tuple[DumpedLeaf, ...]

    @property
    def delivered(self) -> bool:
        """True if it is an element as delivered to the consumer."""
        return self.origin is None

    @property
    def finite(self) -> bool:
        """True if no recorded value is nan or infinite."""
        return all(leaf.finite is not False for leaf in self.leaves)


@dataclass(frozen=True)
class DumpedNode:
    """A summary of one node's records.

    Attributes
    ----------
    node, plan : str
        The node's name, and its plan.
    delivered : bool
        True if these are elements as the consumer received them.
    elements : int
        The number of elements recorded and kept.
    specs : tuple of str
        The dtypes and shapes that occurred, once for each leaf.
    nan, pos_inf, neg_inf : int
        The numbers of values that are not finite.
    bad : int
        The number of elements with such values.
    first_bad : DumpRecord or None
        The first of these elements.
    """

    node: str
    plan: str
    delivered: bool
    elements: int
    specs: tuple[str, ...]
    nan: int
    pos_inf: int
    neg_inf: int
    bad: int
    first_bad: DumpRecord | None


@dataclass(frozen=True)
class Dump:
    """The contents of a folder with a dump.

    Attributes
    ----------
    records : tuple of DumpRecord
        In order of time.
    processes : tuple of DumpedProcess
        The processes that have written.
    torn : int
        The number of lines that were truncated or changed, and are left out.
    """

    records: tuple[DumpRecord, ...]
    processes: tuple[DumpedProcess, ...]
    torn: int = 0

    def of(self, node: str | None = None, pid: int | None = None) -> Dump:
        """Return the dump of one node, or of one process.

        Parameters
        ----------
        node : str, optional
            ``"map"``, for all maps, or ``"map#2"``.
        pid : int, optional
            The process.
        """
        found = [
            each
            for each in self.records
            if (node is None or node in (each.node, each.node.partition("#")[0]))
            and (pid is None or pid == each.process.pid)
        ]
        return Dump(tuple(found), _processes(found), self.torn)

    @property
    def nodes(self) -> tuple[DumpedNode, ...]:
        """A summary of each node, by plan and then from the source on."""
        by: dict[tuple[str, bool, int, str], list[DumpRecord]] = {}
        for each in self.records:
            at = int(each.node.rpartition("#")[2])
            by.setdefault((each.plan, each.delivered, at, each.node), []).append(each)
        return tuple(_summary(by[key]) for key in sorted(by))


def read_dump(dump_root: str | os.PathLike[str]) -> Dump:
    """Read the records of `enable_dump_debug_info` in a folder, also while it is written.

    Parameters
    ----------
    dump_root : path
        The folder.

    Returns
    -------
    Dump
        The newest elements of each process, as many as `circular_buffer_size` says, together in order
        of time (by the clocks of their machines).

    Raises
    ------
    FileNotFoundError
        The folder does not exist, or contains no dump.
    TundishError
        A file was written by a later version of this library.

    Examples
    --------
    >>> import tempfile
    >>> import tundish as td
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = td.debugging.enable_dump_debug_info(folder, "CONCISE_HEALTH", op_regex="map")
    ...     elements = list(td.Dataset.from_list([1.0, float("inf")]).map(lambda x: -x))
    ...     td.debugging.disable_dump_debug_info()
    ...     dump = td.debugging.read_dump(folder)
    >>> for node in dump.nodes:
    ...     node.node, node.delivered, node.elements, node.neg_inf, node.first_bad.origin
    ('map#1', False, 2, 1, 'element 1')
    ('map#1', True, 2, 1, None)
    """
    root = Path(dump_root)
    files = sorted(root.glob(f"*{SUFFIX}"))
    if not files:
        what = "no dump is in this folder" if root.is_dir() else "there is no such folder"
        raise FileNotFoundError(errno.ENOENT, what, str(root))
    names = dict.fromkeys(path.name.removesuffix(SUFFIX).rpartition(".")[0] for path in files)
    found: list[DumpRecord] = []
    processes: list[DumpedProcess] = []
    torn = 0
    for name in names:  # the second file of a pair may have come since
        kept, cut = _newest([root / f"{name}.{turn}{SUFFIX}" for turn in (0, 1)])
        torn += cut
        if kept:
            processes.append(_process(kept[-1][0]))
            size = kept[-1][0]["size"]
            found += [_record(each, processes[-1]) for _, each in (kept[-size:] if size else kept)]
    found.sort(key=lambda each: (each.time, each.process.pid, each.number))
    return Dump(tuple(found), tuple(processes), torn)


def _newest(paths: list[Path]) -> tuple[list[tuple[dict[str, Any], dict[str, Any]]], int]:
    """Return one writer's newest records with their headers, in order, and the number of skipped lines.

    Both files are opened before one is read: a newer one may take the place of either meanwhile. Who
    writes may be so fast that their turns are far apart: records are missing between them, and both are
    opened again. At the last look those of the newer file alone are given: a file that is in its place
    has a record at least.
    """
    looks = 0
    while True:
        files = [_opened(path) for path in paths]
        torn, read = 0, []
        for path, file in zip(paths, files, strict=True):
            head, records, cut = (None, [], 0) if file is None else _read(path, file)
            torn += cut
            if head is not None:
                read.append((head["turn"], [(head, record) for record in records]))
        read.sort(key=itemgetter(0))
        looks += 1
        if len(read) < 2 or read[1][0] - read[0][0] == 1:
            return [record for _, records in read for record in records], torn
        if looks == _LOOKS:
            return read[1][1], torn


def _opened(path: Path) -> io.FileIO | None:
    try:
        return open_regular(path)
    except FileNotFoundError:  # not begun
        return None


def _read(path: Path, file: io.FileIO) -> tuple[dict[str, Any] | None, list[dict[str, Any]], int]:
    """Return a file's header, its records, and the number of its skipped lines."""
    with file:
        data = read_all(file, _MOST_BYTES)
    lines = data.split(b"\n")
    last = lines.pop()  # b"" after a whole line
    found = [parse_line(line) for line in lines]
    if not found or not isinstance(found[0], dict) or found[0].get("tundish") != "dump":
        return None, [], len(found) + bool(last)
    head = found[0]
    if head["version"] > VERSION:
        raise TundishError(
            f"{path} is a dump of version {head['version']}, this library reads {VERSION}; read it "
            "with the version of tundish that wrote it, or a later one"
        )
    records = [each for each in found[1:] if each is not None]
    return head, records, len(found) - 1 - len(records) + bool(last)


def _process(head: dict[str, Any]) -> DumpedProcess:
    return DumpedProcess(
        head["host"], head["pid"], head["started"] / 1e9, head["role"], head["mode"]
    )


def _record(told: dict[str, Any], process: DumpedProcess) -> DumpRecord:
    origin = told["origin"]
    return DumpRecord(
        told["n"],
        told["t"] / 1e9,
        told["node"],
        None if origin is None else describe_origin(origin[0], _path(origin[1])),
        told["it"],
        told["plan"],
        process,
        tuple(_leaf(each) for each in told["leaves"]),
    )


def _path(told: Any) -> Any:
    return tuple(_path(each) for each in told) if isinstance(told, list) else told


def _leaf(told: dict[str, Any]) -> DumpedLeaf:
    size, nan, pos_inf, neg_inf = told.get("health") or [None] * 4
    least, largest, mean = told.get("range") or [None] * 3
    finite = told.get("finite")
    if size is not None:
        finite = not (nan or pos_inf or neg_inf)
    return DumpedLeaf(
        told["path"],
        told["dtype"],
        tuple(told["shape"]),
        finite,
        size,
        nan,
        pos_inf,
        neg_inf,
        least,
        largest,
        mean,
        _value(told.get("value")),
    )


def _value(told: dict[str, Any] | None) -> Any:
    if told is None:
        return None
    if "str" in told:
        return told["str"]
    data = base64.b64decode(told.get("bytes", told.get("npy", "")))
    return data if "bytes" in told else np.load(io.BytesIO(data), allow_pickle=False)[()]


def _processes(records: Iterable[DumpRecord]) -> tuple[DumpedProcess, ...]:
    return tuple(dict.fromkeys(each.process for each in records))


def _summary(records: list[DumpRecord]) -> DumpedNode:
    bad = [each for each in records if not each.finite]
    leaves = [leaf for each in records for leaf in each.leaves]
    return DumpedNode(
        records[0].node,
        records[0].plan,
        records[0].delivered,
        len(records),
        tuple(dict.fromkeys(_named(leaf) for leaf in leaves)),
        sum(leaf.nan or 0 for leaf in leaves),
        sum(leaf.pos_inf or 0 for leaf in leaves),
        sum(leaf.neg_inf or 0 for leaf in leaves),
        len(bad),
        bad[0] if bad else None,
    )


def _named(leaf: DumpedLeaf) -> str:
    return f"{leaf.path}: {leaf.spec}" if leaf.path else leaf.spec
