"""tundish: worker processes in, an unbroken, ordered stream of batches out.

::

    import tundish as td

    ds = td.Dataset.range(1000).map(load, num_parallel_calls=td.AUTOTUNE).batch(64)
    for batch in ds:
        ...

Where things live:

- `errors`, `spec`, `source`: the errors, the structure of an element, the protocol of a source;
- `shm`: bytes shared by processes;
- `formats`: files of records;
- `snapshot`: what outlives a run;
- `loader`: the pipeline; `loader.plan` says what is computed, `loader.run` how;
- `torch`, `jax`, `tensorflow`, `orbax`: bridges to frameworks, each imported by name;
- `data`: the names of ``tf.data`` at their place, ``td.data.Dataset``;
- `io`: serialized examples and tensors, with tf.io's names;
- `debugging`: checks of values, with tf.debugging's names;
- `distribute`: one dataset for several processes and their replicas;
- `service`: workers on other machines;
- `experimental`: tf.data's older spellings;
- `testing`, `cli`: the laws as functions for your own tests, and the command line.

Names are imported on first use: a worker process pays only for what it needs, and
``import tundish`` loads neither numpy nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tundish import data, debugging, distribute, errors, experimental, io, service, testing
    from tundish.formats.tfrecord.writer import TFRecordWriter
    from tundish.loader.dataloader.collate import default_collate, default_convert
    from tundish.loader.dataloader.dataloader import DataLoader
    from tundish.loader.dataloader.distributed import DistributedSampler
    from tundish.loader.dataloader.recipe import WorkerInfo, get_worker_info
    from tundish.loader.dataloader.samplers import (
        BatchSampler,
        RandomSampler,
        Sampler,
        SequentialSampler,
        SubsetRandomSampler,
        WeightedRandomSampler,
    )
    from tundish.loader.dataloader.torchrandom import TorchGenerator
    from tundish.loader.dataset import Dataset
    from tundish.loader.files.records import (
        FixedLengthRecordDataset,
        TextLineDataset,
        TFRecordDataset,
    )
    from tundish.loader.files.sql import SqlDataset
    from tundish.loader.files.tables import (
        ArrowDataset,
        CsvDataset,
        JsonLinesDataset,
        ParquetDataset,
    )
    from tundish.loader.files.tar import TarDataset
    from tundish.loader.plan.groups import StatsOptions, ThreadingOptions
    from tundish.loader.plan.inputs import InputContext
    from tundish.loader.plan.node import (
        AUTOTUNE,
        INFINITE_CARDINALITY,
        UNKNOWN_CARDINALITY,
        set_seed,
    )
    from tundish.loader.plan.options import Options
    from tundish.loader.run.iterator import Iterator
    from tundish.loader.run.optional import IteratorSpec, Optional
    from tundish.loader.watch.summary import StatsAggregator
    from tundish.preemption import save_on_signal
    from tundish.progressbar import progress
    from tundish.ragged import Ragged, Sparse
    from tundish.spec import ArraySpec, DatasetSpec, TensorSpec

__version__ = "0.2.0"

__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "UNKNOWN_CARDINALITY",
    "ArraySpec",
    "ArrowDataset",
    "BatchSampler",
    "CsvDataset",
    "DataLoader",
    "Dataset",
    "DatasetSpec",
    "DistributedSampler",
    "FixedLengthRecordDataset",
    "InputContext",
    "Iterator",
    "IteratorSpec",
    "JsonLinesDataset",
    "Optional",
    "Options",
    "ParquetDataset",
    "Ragged",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "Sparse",
    "SqlDataset",
    "StatsAggregator",
    "StatsOptions",
    "SubsetRandomSampler",
    "TFRecordDataset",
    "TFRecordWriter",
    "TarDataset",
    "TensorSpec",
    "TextLineDataset",
    "ThreadingOptions",
    "TorchGenerator",
    "WeightedRandomSampler",
    "WorkerInfo",
    "data",
    "debugging",
    "default_collate",
    "default_convert",
    "distribute",
    "errors",
    "experimental",
    "get_worker_info",
    "io",
    "progress",
    "save_on_signal",
    "service",
    "set_seed",
    "testing",
]

_HOME = {
    "AUTOTUNE": "tundish.loader.plan.node",
    "INFINITE_CARDINALITY": "tundish.loader.plan.node",
    "UNKNOWN_CARDINALITY": "tundish.loader.plan.node",
    "ArraySpec": "tundish.spec",
    "ArrowDataset": "tundish.loader.files.tables",
    "BatchSampler": "tundish.loader.dataloader.samplers",
    "CsvDataset": "tundish.loader.files.tables",
    "DataLoader": "tundish.loader.dataloader.dataloader",
    "Dataset": "tundish.loader.dataset",
    "DatasetSpec": "tundish.spec",
    "DistributedSampler": "tundish.loader.dataloader.distributed",
    "FixedLengthRecordDataset": "tundish.loader.files.records",
    "InputContext": "tundish.loader.plan.inputs",
    "Iterator": "tundish.loader.run.iterator",
    "IteratorSpec": "tundish.loader.run.optional",
    "JsonLinesDataset": "tundish.loader.files.tables",
    "Optional": "tundish.loader.run.optional",
    "Options": "tundish.loader.plan.options",
    "ParquetDataset": "tundish.loader.files.tables",
    "Ragged": "tundish.ragged",
    "RandomSampler": "tundish.loader.dataloader.samplers",
    "Sampler": "tundish.loader.dataloader.samplers",
    "SequentialSampler": "tundish.loader.dataloader.samplers",
    "Sparse": "tundish.ragged",
    "SqlDataset": "tundish.loader.files.sql",
    "StatsAggregator": "tundish.loader.watch.summary",
    "StatsOptions": "tundish.loader.plan.groups",
    "SubsetRandomSampler": "tundish.loader.dataloader.samplers",
    "TFRecordDataset": "tundish.loader.files.records",
    "TFRecordWriter": "tundish.formats.tfrecord.writer",
    "TarDataset": "tundish.loader.files.tar",
    "TensorSpec": "tundish.spec",
    "TextLineDataset": "tundish.loader.files.records",
    "ThreadingOptions": "tundish.loader.plan.groups",
    "TorchGenerator": "tundish.loader.dataloader.torchrandom",
    "WeightedRandomSampler": "tundish.loader.dataloader.samplers",
    "WorkerInfo": "tundish.loader.dataloader.recipe",
    "default_collate": "tundish.loader.dataloader.collate",
    "default_convert": "tundish.loader.dataloader.collate",
    "get_worker_info": "tundish.loader.dataloader.recipe",
    "progress": "tundish.progressbar",
    "save_on_signal": "tundish.preemption",
    "set_seed": "tundish.loader.plan.node",
}
_SUBMODULES = frozenset(
    {"data", "debugging", "distribute", "errors", "experimental", "io", "service", "testing"}
)

if not TYPE_CHECKING:  # a checker that saw this would take any misspelt name

    def __getattr__(name: str) -> object:
        """Import a public name from its home, once."""
        from importlib import import_module  # noqa: PLC0415 - most processes never come here

        if name in _SUBMODULES:
            return import_module(f"{__name__}.{name}")  # importing a submodule also stores it
        if name not in _HOME:
            hint = import_module(f"{__name__}.calls").did_you_mean(name, __all__)
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}", name=name)
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
