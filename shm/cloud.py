"""Pickles of values that pickle alone cannot handle, such as functions and classes of a script."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, ClassVar

import cloudpickle

if TYPE_CHECKING:
    import pickle
    from collections.abc import Callable

REDUCERS: dict[Any, Any] = {
    kind: reducer
    for kind, reducer in cloudpickle.Pickler.dispatch_table.items()
    if kind is not io.TextIOWrapper
}
"""Cloudpickle's, less that of open files: it reads what is left of the file and makes a `StringIO` of it."""


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    dispatch_table: ClassVar[dict[Any, Any]] = REDUCERS


def dumps(value: Any, aside: Callable[[pickle.PickleBuffer], bool]) -> bytes:
    """Pickle a value with cloudpickle; an open file is an error, as it is for pickle.

    Parameters
    ----------
    value : object
        The value.
    aside : callable
        Is given each buffer, and returns True if it belongs in the pickle.
    """
    file = io.BytesIO()
    _Pickler(file, protocol=5, buffer_callback=aside).dump(value)
    return file.getvalue()
