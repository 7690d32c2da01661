"""Names of this library's own classes and functions in keys: those of the first keys that named them.

A key outlives the files of the library. What has moved or was renamed since keeps its first name there,
so that a snapshot is found again.
"""

from __future__ import annotations

__all__ = ["first_name"]

_PLAN = "tundish.loader.plan"
_FILES = "tundish.loader.files."

_MOVED = {
    "asserting": "AssertingMethods Validated",
    "batching": "BatchingMethods",
    "costing": "CostingMethods",
    "counting": "CountingMethods",
    "dataset": "Dataset",
    "elementwise": "ElementwiseMethods",
    "files.node": "Opening",
    "grouping": "BucketBatch BucketOf GroupingMethods",
    "interleaving": "InterleavingMethods",
    "measuring": "MeasuringMethods StatsOptions",
    "mixing": "MixingMethods",
    "options": "OptionsMethods",
    "packing": "PackingMethods",
    "padding": "PaddingMethods",
    "pads": "Pad Padding",
    "rebatching": "BatchFunction RebatchingMethods",
    "resampling": "Classified ResamplingMethods",
    "saving": "SavingMethods",
    "scanning": "Reducer ScanningMethods",
    "sources": "SourceMethods",
    "storing": "Found Keeping StoringMethods",
    "taking": "TakingMethods",
    "uniqueness": "UniquenessMethods",
    "windows": "WindowMethods",
}
"""Classes by the module of `tundish.loader.plan` that they stood in."""

_FIRST = {
    name: f"{_PLAN}.{home}.{name}" for home, names in _MOVED.items() for name in names.split()
}
_FIRST |= {
    name: f"{_PLAN}.{home}"
    for home, names in {
        "counting.CountingMethods.from_list": "SourceMethods.from_list",
        "mixing.MixingMethods": "ChooseMethods SampleMethods",
        "order.OrderMethods": "ChoosingMethods ConcatenateMethods RepeatMethods SharingMethods ShuffleMethods",
        "order.OrderMethods.prefetch": "OptionsMethods.prefetch",
        "scanning.ScanningMethods": "ReducingMethods",
        "sources.SourceMethods": "GeneratorMethods ListingMethods ZipMethods",
        "sources.SourceMethods.range": "CountingMethods.range",
        "storing.StoringMethods": "CacheMethods SnapshotMethods",
    }.items()
    for name in names.split()
}
"""Classes and methods that had another name."""


def first_name(module: str, name: str) -> str:
    """Return the full name by which keys know something of this library.

    Examples
    --------
    >>> first_name("tundish.loader.dataset", "Dataset")
    'tundish.loader.plan.dataset.Dataset'
    """
    if module.startswith(_FILES):
        return f"{_PLAN}.files.{module.removeprefix(_FILES)}.{name}"
    if not module.startswith("tundish.loader."):
        return f"{module}.{name}"
    head, dot, rest = name.partition(".")
    first = _FIRST.get(head)
    return _FIRST.get(name, f"{module}.{name}" if first is None else f"{first}{dot}{rest}")
