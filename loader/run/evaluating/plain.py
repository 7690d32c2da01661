"""Plans without user functions: numbers, paths, records or snapshot rows, computed many at a time.

Computing one such element at a time costs more than the element is worth. It is safe to compute them ahead of
demand, since no user code runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.plan.node import walk
from tundish.loader.protocols.refs import ints

if TYPE_CHECKING:
    from tundish.formats.files import RecordFiles
    from tundish.loader.protocols.contracts import Gather, StoredElements, Value
    from tundish.loader.protocols.items import Ref
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.protocols.refs import Refs

Elements = Callable[["Refs", int], Sequence[Any]]
"""``elements(refs, pass)``: the elements of refs, to be delivered one by one; of the first of them, where one after
those cannot be made, or is not at hand."""


def elements_of(node: Operator, value: Value, gather: Gather | None) -> Elements | None:
    """Return a function that makes several elements of a plan at once; None if each is made on demand."""
    stored = node.stored
    if stored is not None and stored.mapped and stored.safe:
        return _stored(stored)
    if node.record_files is not None:
        return _records(node.record_files)
    return _plain(value, gather) if is_plain(node) else None


def is_plain(root: Operator) -> bool:
    """Return True if a plan consists of light sources and operators that only order their elements."""
    return all(
        node.light or node.choosing or node.relays or (node.transparent and not node.measures)
        for node in walk(root)
    )


def _plain(value: Value, gather: Gather | None) -> Elements:
    def elements(refs: Refs, pass_: int) -> Sequence[Any]:
        rows = None if gather is None else _rows(gather(refs, pass_))
        return [value(ref, pass_) for ref in ints(refs)] if rows is None else rows

    return elements


def _rows(columns: Any) -> list[Any] | None:
    """Convert columns of numbers to rows, in tuples like the columns; None for any other columns."""
    if type(columns) is not tuple:
        return list(columns) if isinstance(columns, np.ndarray) else None
    parts = [part for column in columns if (part := _rows(column)) is not None]
    return list(zip(*parts, strict=True)) if len(parts) == len(columns) else None


def _stored(found: StoredElements) -> Elements:
    return lambda refs, _: found.reader.handed(ints(refs))


def _records(files: RecordFiles) -> Elements:
    count = len(files)

    def elements(refs: Refs, _: int) -> Sequence[Any]:
        if isinstance(refs, range) and refs.step == 1:
            number = refs[0] % count
            found = files.run(number, min(len(refs), count - number))
            return [] if isinstance(found, Exception) else found[0].part(*found[1:])
        values = files.get([_innermost(ref) % count for ref in ints(refs)])
        bad = (k for k, value in enumerate(values) if isinstance(value, Exception))
        return values[: next(bad, len(values))]

    return elements


def _innermost(ref: Ref) -> int:
    while type(ref) is tuple:
        ref = ref[-1]
    return int(ref)
