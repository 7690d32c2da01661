"""The reference of the sources that are tables in memory: each value as Python has it, then of its column's dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.errors import RecordCorruptError
from tundish.testing.model.basic import Basic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tundish.testing.model.basic import Item, Pass

_DTYPES: dict[str, Callable[[Any], Any]] = {
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "float": np.float32,
    "double": np.float64,
    "bool": np.bool_,
}
"""The scalars of columns, by the names of Arrow's types; other values stay as Python has them."""

_LISTS = {"list": np.int64, "fixed_size_list": np.float32}
"""The items of lists, by the kind of list."""


class TablesModel(Basic):
    """The reference of `from_arrow` and `from_pandas`."""

    @classmethod
    def from_arrow(
        cls,
        table: Any,
        columns: Sequence[str] | None = None,
        schema: Mapping[str, str] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> Self:
        kinds = {field.name: str(field.type) for field in table.schema}
        names = list(kinds) if columns is None else columns
        instead = defaults or {}

        def items(this: Pass) -> Iterator[Item]:
            for number, row in enumerate(table.to_pylist()):
                element: dict[str, Any] = {}
                error = None
                for name in names:
                    value = instead.get(name) if row[name] is None else row[name]
                    if value is None and kinds[name] in ("float", "double"):
                        value = np.nan
                    if value is None:
                        error = RecordCorruptError("", number, "")
                    elif isinstance(value, list):
                        element[name] = np.array(value, _LISTS[kinds[name].partition("<")[0]])
                    else:
                        told = (schema or {}).get(name)
                        dtype = _DTYPES.get(kinds[name], lambda same: same)
                        element[name] = (np.dtype(told).type if told else dtype)(value)
                yield this.at(number, None if error else element, error)

        return cls(items)

    @classmethod
    def from_pandas(cls, frame: Any, *how: Any, preserve_index: bool = False) -> Self:
        import pyarrow as pa  # noqa: PLC0415 - only for tables

        return cls.from_arrow(pa.Table.from_pandas(frame, preserve_index=preserve_index), *how)
