"""Predicates of Arrow's view types, which pyarrow knows from version 16 on."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def _is_none_of_them(_kind: Any) -> bool:
    """Return False: this pyarrow can make no array of such a type."""
    return False


is_string_view = getattr(pa.types, "is_string_view", _is_none_of_them)
is_binary_view = getattr(pa.types, "is_binary_view", _is_none_of_them)
is_list_view = getattr(pa.types, "is_list_view", _is_none_of_them)
is_large_list_view = getattr(pa.types, "is_large_list_view", _is_none_of_them)
