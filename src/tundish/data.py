"""The names of ``tf.data``: ``td.data.Dataset`` is ``td.Dataset``.

For code with ``from tensorflow import data``, or that is easier to move by changing one import::

    from tundish import data

    ds = data.Dataset.range(10).map(f, num_parallel_calls=data.AUTOTUNE)

Nothing is defined here: each name is that of `tundish`, imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tundish import (
        AUTOTUNE,
        INFINITE_CARDINALITY,
        UNKNOWN_CARDINALITY,
        Dataset,
        DatasetSpec,
        FixedLengthRecordDataset,
        Iterator,
        IteratorSpec,
        Options,
        TextLineDataset,
        TFRecordDataset,
        ThreadingOptions,
        experimental,
    )

__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "UNKNOWN_CARDINALITY",
    "Dataset",
    "DatasetSpec",
    "FixedLengthRecordDataset",
    "Iterator",
    "IteratorSpec",
    "Options",
    "TFRecordDataset",
    "TextLineDataset",
    "ThreadingOptions",
    "experimental",
]

if not TYPE_CHECKING:  # as in `tundish`

    def __getattr__(name: str) -> object:
        """A name of `tundish`, if tf.data has it too."""
        import tundish  # noqa: PLC0415 - which may be importing this module

        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(tundish, name)


def __dir__() -> list[str]:
    return sorted(__all__)
