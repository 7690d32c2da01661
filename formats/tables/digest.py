"""A digest of the values of Arrow columns: the same however they are cut into chunks, and wherever they lie."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def digest_of_table(table: Any) -> str:
    """Return a digest of a table's names, types and values.

    The memory of a null's value does not count.

    Parameters
    ----------
    table : pyarrow.Table
    """
    found = hashlib.sha256()
    for field, column in zip(table.schema, table.columns, strict=True):
        found.update(f"{field.name!r}: {field.type}, {len(column)} rows\n".encode())
        part = _Hashes()
        for chunk in column.chunks:
            part.add(chunk)
        found.update(part.digest())
    return found.hexdigest()


class _Hashes:
    """Hashes of the streams that a column consists of: which rows are null, how long lists are, values."""

    def __init__(self) -> None:
        self._streams: dict[str, Any] = {}

    def digest(self) -> bytes:
        """Return the digest of all streams."""
        parts = [name.encode() + each.digest() for name, each in sorted(self._streams.items())]
        return hashlib.sha256(b"".join(parts)).digest()

    def add(self, array: Any, name: str = "") -> None:
        """Add the rows of an array."""
        kind = array.type
        if isinstance(kind, pa.BaseExtensionType):
            self.add(array.storage, name)
            return
        if pa.types.is_run_end_encoded(kind):
            self.add(pc.run_end_decode(array), name)
            return
        if pa.types.is_dictionary(kind):
            self.add(array.dictionary_decode(), name)
            return
        self._update(f"{name}?", np.asarray(array.is_valid()))
        if pa.types.is_struct(kind):
            for field, part in zip(kind, array.flatten(), strict=True):
                self.add(part, f"{name}.{field.name}")
        elif pa.types.is_fixed_size_list(kind):
            self.add(array.flatten(), f"{name}[]")
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            self._update(f"{name}#", np.asarray(pc.list_value_length(array.drop_null()), np.int64))
            self.add(array.flatten(), f"{name}[]")
        else:
            self._add_values(array.drop_null(), name)

    def _add_values(self, array: Any, name: str) -> None:
        kind = array.type
        types = pa.types
        if types.is_boolean(kind):
            self._update(name, array.to_numpy(zero_copy_only=False))
        elif types.is_primitive(kind) or types.is_fixed_size_binary(kind) or types.is_decimal(kind):
            width, data = kind.bit_width // 8, array.buffers()[1]
            if data is not None:
                first = array.offset * width
                self._update(name, memoryview(data)[first : first + len(array) * width])
        elif types.is_string(kind) or types.is_binary(kind):
            self._add_texts(array, name, np.dtype(np.int32))
        elif types.is_large_string(kind) or types.is_large_binary(kind):
            self._add_texts(array, name, np.dtype(np.int64))
        else:  # views of texts and of lists, unions and the like
            self._update(name, repr(array.to_pylist()).encode())

    def _add_texts(self, array: Any, name: str, offset: np.dtype[Any]) -> None:
        _, offsets, data = array.buffers()
        if offsets is None or not len(array):
            return
        ends = np.frombuffer(offsets, offset)[array.offset : array.offset + len(array) + 1]
        self._update(f"{name}#", np.diff(ends).astype(np.int64))
        if data is not None:
            self._update(name, memoryview(data)[int(ends[0]) : int(ends[-1])])

    def _update(self, name: str, data: Any) -> None:
        stream = self._streams.setdefault(name, hashlib.sha256())
        stream.update(np.ascontiguousarray(data) if isinstance(data, np.ndarray) else data)
