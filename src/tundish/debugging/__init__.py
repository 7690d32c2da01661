"""Checks of values, with the names of tf.debugging, for NumPy values and for elements of a pipeline.

Every check returns its argument, so it can be given to `map`:
``ds.map(td.debugging.assert_non_negative)``. With more arguments, or for a part of an element, use
`checked`: ``ds.map(td.debugging.checked(assert_less, y=10, key="label"))``.

- `comparisons`, `near`: comparisons entry by entry;
- `shapes`, `dtypes`, `numerics`: ranks and sizes, dtypes, nan and infinities;
- `step`: a check with its arguments, as a function for `map`;
- `leaves`, `partitions`, `deciding`: the leaves of a nest, the rows of ragged and sparse values, conditions, and the
  messages of errors.

Checks of a whole pipeline:

- `checking`: check every element of every operator for nan and infinity;
- `dumping`, `probe`, `ring`, `reading`: record every element of every operator in files, and read them;
- `placement`: log where operators run;
- `functions`: find the user's function that made an element.
"""

from __future__ import annotations

from tundish.debugging import experimental
from tundish.debugging.checking import disable_check_numerics, enable_check_numerics
from tundish.debugging.comparisons import (
    Assert,
    assert_equal,
    assert_greater,
    assert_greater_equal,
    assert_less,
    assert_less_equal,
    assert_negative,
    assert_non_negative,
    assert_non_positive,
    assert_none_equal,
    assert_positive,
)
from tundish.debugging.dtypes import (
    assert_integer,
    assert_proper_iterable,
    assert_same_float_dtype,
    assert_type,
    is_numeric_tensor,
)
from tundish.debugging.dumping import DebugInfo, disable_dump_debug_info, enable_dump_debug_info
from tundish.debugging.near import assert_near
from tundish.debugging.numerics import assert_all_finite, check_numerics
from tundish.debugging.placement import get_log_device_placement, set_log_device_placement
from tundish.debugging.reading import (
    Dump,
    DumpedLeaf,
    DumpedNode,
    DumpedProcess,
    DumpRecord,
    read_dump,
)
from tundish.debugging.shapes import (
    assert_rank,
    assert_rank_at_least,
    assert_rank_in,
    assert_scalar,
    assert_shapes,
)
from tundish.debugging.step import checked
from tundish.tracebacks import (
    disable_traceback_filtering,
    enable_traceback_filtering,
    is_traceback_filtering_enabled,
)

__all__ = [
    "Assert",
    "DebugInfo",
    "Dump",
    "DumpRecord",
    "DumpedLeaf",
    "DumpedNode",
    "DumpedProcess",
    "assert_all_finite",
    "assert_equal",
    "assert_greater",
    "assert_greater_equal",
    "assert_integer",
    "assert_less",
    "assert_less_equal",
    "assert_near",
    "assert_negative",
    "assert_non_negative",
    "assert_non_positive",
    "assert_none_equal",
    "assert_positive",
    "assert_proper_iterable",
    "assert_rank",
    "assert_rank_at_least",
    "assert_rank_in",
    "assert_same_float_dtype",
    "assert_scalar",
    "assert_shapes",
    "assert_type",
    "check_numerics",
    "checked",
    "disable_check_numerics",
    "disable_dump_debug_info",
    "disable_traceback_filtering",
    "enable_check_numerics",
    "enable_dump_debug_info",
    "enable_traceback_filtering",
    "experimental",
    "get_log_device_placement",
    "is_numeric_tensor",
    "is_traceback_filtering_enabled",
    "read_dump",
    "set_log_device_placement",
]
