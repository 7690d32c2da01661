"""Rows of an Arrow batch by their indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import numpy as np


def rows_at(batch: Any, at: np.ndarray) -> Any:
    """Return rows of a batch.

    pyarrow's `take` gives other rows of fixed-size lists in fixed-size lists if their memory begins before them,
    as that of a slice does. Rows of these are sliced one by one.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
        The batch.
    at : (k,) int64 ndarray
        The indices of the rows, at least one.

    Raises
    ------
    pyarrow.ArrowNotImplementedError
        pyarrow takes no rows of a column's type.
    """
    if not any(_nested(column.type) for column in batch.columns):
        return batch.take(pa.array(at))
    indices, rows = pa.array(at), at.tolist()
    columns = [
        pa.concat_arrays([column.slice(row, 1) for row in rows])
        if _nested(column.type)
        else column.take(indices)
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _nested(kind: Any, *, within: bool = False) -> bool:
    """Return True if a type has fixed-size lists in fixed-size lists."""
    if isinstance(kind, pa.BaseExtensionType):
        return _nested(kind.storage_type, within=within)
    fixed = pa.types.is_fixed_size_list(kind)
    inner = [kind.field(k).type for k in range(kind.num_fields)]
    return (fixed and within) or any(_nested(each, within=fixed or within) for each in inner)
