"""Arrow batches of which pyarrow takes the right rows.

Its `take` gives other rows of fixed-size lists in fixed-size lists if their memory begins before them, as that of a
slice does.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def takeable(batch: Any) -> Any:
    """Return a batch with copies of such columns in it.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
        The batch. What is read from a file needs no copy: its memory begins at its rows.
    """
    columns = [pa.concat_arrays([c, c[:0]]) if _shifted(c) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _shifted(array: Any, *, within: bool = False, after: bool = False) -> bool:
    """Return True if an array has fixed-size lists in fixed-size lists whose memory may begin before them.

    Parameters
    ----------
    array : pyarrow.Array
        The array.
    within : bool
        True if it is in a fixed-size list.
    after : bool
        True if the memory of an array around it begins before that.
    """
    if isinstance(array, pa.ExtensionArray):
        return _shifted(array.storage, within=within, after=after)
    after = after or array.offset > 0
    if pa.types.is_struct(array.type):
        fields = map(array.field, range(array.type.num_fields))
        return any(_shifted(field, within=within, after=after) for field in fields)
    fixed = pa.types.is_fixed_size_list(array.type)
    if fixed and within and after:
        return True
    return hasattr(array, "values") and _shifted(array.values, within=fixed or within, after=after)
