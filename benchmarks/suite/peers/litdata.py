"""LitData: files of its own, written once and not measured; the function is the transform."""

import contextlib
import os
from pathlib import Path

import litdata
from data import CACHE

PACKAGES = ("litdata",)
SETTINGS = {"defaults": {}} | {
    f"{n} workers, persistent": {"num_workers": n, "persistent_workers": True} for n in (1, 2)
}
LEFT_OUT = (
    dict.fromkeys(("W2-python", "W2-native"), "its token loader packs what was tokenized beforehand")
    | dict.fromkeys(("W4-65536", "W4-1024"), "no columns: a row would be a sample of its own")
    | dict.fromkeys(
        ("W6-38MB", "W6-4KB", "W7-ordered", "W7-unordered"),
        "reads files of its own; the function's arrays are none",
    )
)


def row(index):
    return int(index)


def open(work, loader=litdata.StreamingDataLoader, **settings):
    folder = CACHE / "litdata" / work.name
    records = work.arrays()["record"] if work.kind == "arrays" else None
    if not folder.exists():  # made apart: two checks run at once
        inputs, made = list(range(work.count)) if records is None else list(records), f"{folder}-{os.getpid()}"
        litdata.optimize(row if records is None else bytes, inputs, made, chunk_bytes="16MB", num_workers=1)
        with contextlib.suppress(OSError):  # the other was quicker
            Path(made).rename(folder)
    function = work.function if records is None else lambda data: __import__("numpy").frombuffer(data, "u1").copy()
    ds = litdata.StreamingDataset(str(folder), shuffle=work.shuffle, transform=function)
    return loader(ds, batch_size=work.batch, **settings)
