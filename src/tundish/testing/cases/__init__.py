"""Small pipelines over every operator, one file a family.

Each file has ``CASES``, joined in `tundish.testing.registry`, and ``steps(rng, other)``: what the
fuzzer may apply to a pipeline, with weights; ``other()`` draws another pipeline's expression.
"""

from __future__ import annotations

from tundish.testing.cases import (
    asserting,
    grouping,
    interleaving,
    measuring,
    mixing,
    packing,
    padding,
    reading,
    rebatching,
    resampling,
    scanning,
    sorting,
    storing,
    tables,
    taking,
    uniqueness,
    windows,
)

FAMILIES = (
    packing,
    rebatching,
    grouping,
    interleaving,
    padding,
    taking,
    windows,
    mixing,
    scanning,
    sorting,
    uniqueness,
    resampling,
    asserting,
    storing,
    reading,
    measuring,
    tables,
)
