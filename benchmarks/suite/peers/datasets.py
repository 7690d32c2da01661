"""Hugging Face datasets, alone: `with_transform` and `iter`; it has no workers of its own for these."""

import datasets
from packing import again

PACKAGES = ("datasets",)
SETTINGS = {"defaults": {}}
LEFT_OUT = {
    "W2-python": "its `map` would write the tokens into files before the first batch",
    "W2-native": "its `map` would write the tokens into files before the first batch",
    "W7-ordered": "reads ahead only in torch's DataLoader, whose row that would be",
    "W7-unordered": "reads ahead only in torch's DataLoader, whose row that would be",
    "W6-38MB": "hands over arrays of its own files, not of a function",
    "W6-4KB": "hands over arrays of its own files, not of a function",
}
datasets.disable_progress_bars()


def open(work):
    if work.kind == "arrays":
        columns = {name: column for name, column in work.arrays().items()}
        ds = datasets.Dataset.from_parquet(work.parquet) if work.parquet else datasets.Dataset.from_dict(columns)
        ds = ds.with_format("numpy", **({} if work.parquet else {"dtype": columns["record"].dtype}))
    else:
        ds = datasets.Dataset.from_dict({"i": range(work.count)})
        ds = ds.with_transform(lambda rows: {"x": [work.function(i) for i in rows["i"]]})
    return again(lambda: batches(ds.shuffle(seed=1).iter(work.batch), work))


def batches(found, work):
    import numpy as np

    return (np.stack(each["x"]) if work.kind == "map" else each for each in found)
