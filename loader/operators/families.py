"""The methods of `Dataset`, from the families of operators.

A family is imported when one of its methods is first accessed. A process that only maps and batches loads
two operators instead of forty.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic

from tundish.calls import answered
from tundish.loader.protocols.fluent import Fluent
from tundish.spec import Element_co

if TYPE_CHECKING:
    from tundish.loader.operators.asserting import AssertingMethods
    from tundish.loader.operators.batching import BatchingMethods
    from tundish.loader.operators.bucketing import BucketingMethods
    from tundish.loader.operators.cache import CacheMethods
    from tundish.loader.operators.choose import ChooseMethods
    from tundish.loader.operators.choosing import ChoosingMethods
    from tundish.loader.operators.concatenate import ConcatenateMethods
    from tundish.loader.operators.costing import CostingMethods
    from tundish.loader.operators.counting import CountingMethods
    from tundish.loader.operators.enumerate import EnumerateMethods
    from tundish.loader.operators.filter import FilterMethods
    from tundish.loader.operators.flat_map import FlatMapMethods
    from tundish.loader.operators.generator import GeneratorMethods
    from tundish.loader.operators.grouping import GroupingMethods
    from tundish.loader.operators.interleaving import InterleavingMethods
    from tundish.loader.operators.listing import ListingMethods
    from tundish.loader.operators.map import MapMethods
    from tundish.loader.operators.map_batches import MapBatchesMethods
    from tundish.loader.operators.measuring import MeasuringMethods
    from tundish.loader.operators.options import OptionsMethods
    from tundish.loader.operators.packing import PackingMethods
    from tundish.loader.operators.padding import PaddingMethods
    from tundish.loader.operators.ragged import RaggedMethods
    from tundish.loader.operators.rebatch import RebatchMethods
    from tundish.loader.operators.reducing import ReducingMethods
    from tundish.loader.operators.repeat import RepeatMethods
    from tundish.loader.operators.resampling import ResamplingMethods
    from tundish.loader.operators.sample import SampleMethods
    from tundish.loader.operators.saving import SavingMethods
    from tundish.loader.operators.scanning import ScanningMethods
    from tundish.loader.operators.sharing import SharingMethods
    from tundish.loader.operators.shuffle import ShuffleMethods
    from tundish.loader.operators.snapshot import SnapshotMethods
    from tundish.loader.operators.sorting import SortingMethods
    from tundish.loader.operators.sources import SourceMethods
    from tundish.loader.operators.tables import TableMethods
    from tundish.loader.operators.tablewriting import TableWritingMethods
    from tundish.loader.operators.taking import TakingMethods
    from tundish.loader.operators.uniqueness import UniquenessMethods
    from tundish.loader.operators.windows import WindowMethods
    from tundish.loader.operators.zip import ZipMethods

    class Methods(
        SourceMethods,
        TableMethods,
        CountingMethods,
        ListingMethods,
        GeneratorMethods,
        ZipMethods,
        MapMethods,
        FilterMethods,
        FlatMapMethods,
        EnumerateMethods,
        InterleavingMethods,
        ChooseMethods,
        SampleMethods,
        ShuffleMethods,
        RepeatMethods,
        ChoosingMethods,
        SharingMethods,
        ConcatenateMethods,
        BatchingMethods,
        PaddingMethods,
        RaggedMethods,
        CostingMethods,
        RebatchMethods,
        MapBatchesMethods,
        PackingMethods,
        TakingMethods,
        WindowMethods,
        GroupingMethods,
        BucketingMethods,
        SortingMethods,
        ReducingMethods,
        ScanningMethods,
        UniquenessMethods,
        ResamplingMethods,
        AssertingMethods,
        CacheMethods,
        SnapshotMethods,
        SavingMethods,
        TableWritingMethods,
        MeasuringMethods,
        OptionsMethods,
    ):
        """The methods of every family."""


_FAMILIES = {
    "asserting.AssertingMethods": "ignore_errors assert_cardinality pad_to_cardinality",
    "batching.BatchingMethods": "batch unbatch",
    "bucketing.BucketingMethods": "bucket_by_sequence_length",
    "cache.CacheMethods": "cache",
    "choose.ChooseMethods": "choose_from_datasets",
    "choosing.ChoosingMethods": "skip take shard",
    "concatenate.ConcatenateMethods": "concatenate",
    "costing.CostingMethods": "batch_by_cost",
    "counting.CountingMethods": "range counter random",
    "enumerate.EnumerateMethods": "enumerate",
    "filter.FilterMethods": "filter",
    "flat_map.FlatMapMethods": "flat_map",
    "generator.GeneratorMethods": "from_generator",
    "grouping.GroupingMethods": "group_by_window",
    "interleaving.InterleavingMethods": "interleave",
    "listing.ListingMethods": "list_files",
    "map.MapMethods": "map",
    "map_batches.MapBatchesMethods": "map_batches",
    "measuring.MeasuringMethods": "latency_stats bytes_produced_stats",
    "options.OptionsMethods": "options with_options prefetch",
    "packing.PackingMethods": "pack",
    "padding.PaddingMethods": "padded_batch",
    "ragged.RaggedMethods": "ragged_batch sparse_batch",
    "rebatch.RebatchMethods": "rebatch",
    "reducing.ReducingMethods": "group_by_reducer",
    "repeat.RepeatMethods": "repeat",
    "resampling.ResamplingMethods": "rejection_resample",
    "sample.SampleMethods": "sample_from_datasets",
    "saving.SavingMethods": "save load",
    "scanning.ScanningMethods": "scan",
    "sharing.SharingMethods": "shard_by_process",
    "shuffle.ShuffleMethods": "shuffle",
    "snapshot.SnapshotMethods": "snapshot",
    "sorting.SortingMethods": "sort_within",
    "sources.SourceMethods": "from_tensors from_tensor_slices from_list from_source",
    "tables.TableMethods": "from_arrow from_pandas",
    "tablewriting.TableWritingMethods": "write_parquet write_arrow",
    "taking.TakingMethods": "take_while",
    "uniqueness.UniquenessMethods": "unique",
    "windows.WindowMethods": "window",
    "zip.ZipMethods": "zip",
}
"""The methods of each family, by its module and mixin."""


class Awaited:
    """A method of `Dataset` whose family has not been imported.

    The first access imports the family and replaces this descriptor with the method.

    Parameters
    ----------
    home : str
        The family's module and mixin.
    name : str
        The method's name.
    """

    def __init__(self, home: str, name: str) -> None:
        self._home, self._name = home, name

    def __get__(self, dataset: object, kind: type) -> Any:
        module, _, mixin = self._home.partition(".")
        family = getattr(import_module(f"{__package__}.{module}"), mixin)
        owner = next((each for each in kind.__mro__ if Methods in each.__bases__), None)
        if owner is None:  # `help` looks at the bases of a class by themselves
            return vars(family)[self._name].__get__(dataset, kind)
        method = answered(vars(family)[self._name], owner)
        setattr(owner, self._name, method)
        return method.__get__(dataset, kind)


if not TYPE_CHECKING:

    class Methods(Fluent, Generic[Element_co]):
        """The methods of every family."""

    for _home, _names in _FAMILIES.items():
        for _name in _names.split():
            setattr(Methods, _name, Awaited(_home, _name))
