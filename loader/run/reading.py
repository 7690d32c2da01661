"""Reading the records of a whole task at once, from a source that can.

Hugging Face datasets and torch's map-style ones may have ``__getitems__(indices)``: one call for
many records costs a fraction of as many calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tundish.loader.protocols.lineage import identities
from tundish.loader.protocols.raised import element_error

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.operator import Operator


def compile_read(top: Operator, context: Context) -> Callable[[Sequence[Any], int], None] | None:
    """Make a function that reads the records of many items before they are evaluated.

    Parameters
    ----------
    top : Operator
        Whose items they are.
    context : Context
        Its `records` are filled; a source's evaluator takes them from there.

    Returns
    -------
    callable or None
        ``read(items, pass)``; None where the records do not come from files with an index, or from
        one source that has ``__getitems__``.
    """
    node = top
    while len(node.inputs) == 1 and node.flat and not node.keeps:
        node = node.inputs[0]
    getitems = node.several()
    if getitems is None:
        return None
    records = context.records.setdefault(id(node), {})
    identity = identities(top, context, by_number=True)

    def read(items: Sequence[Any], pass_: int) -> None:
        records.clear()
        origins = [identity(item, pass_)[1] for item in items if type(item) is int]
        indices = list(dict.fromkeys(index for index in origins if type(index) is int))
        if len(indices) < 2:
            return
        try:
            found = list(getitems(indices))
        except BaseException as error:  # noqa: BLE001 - one by one then: it belongs to its element
            element_error(error)
            return
        if len(found) == len(indices):
            records.update(zip(indices, found, strict=True))

    return read
