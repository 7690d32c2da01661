"""The peers, one a file of at most 40 lines: what each is told, and nothing else.

A file has `PACKAGES`, whose versions are published; `SETTINGS`, by name: `defaults` is what the library does unasked, the
others are what `--sweep` tries (`best.json` records the winners); `open(work, **settings)`, which returns an iterable of
batches, or a function that makes one, for one epoch after another; `LEFT_OUT`, rows that it does not run, with the reason;
and where the library has a state, `save(iterator)` and `restore(work, state, **settings)`, an iterator that goes on.
"""

FILES = (
    "tundish",
    "torch",
    "torchdata",
    "tensorflow",
    "grain",
    "datasets",
    "spdl",
    "ray",
    "litdata",
)
NOT_INCLUDED = {
    "mosaicml-streaming 0.13": "requires numpy < 2.2 and a torchvision built for another torch: it cannot be installed "
    "beside the others",
    "webdataset 1.0.2": "tar archives: the workload that has them, W8, is not part of this suite yet",
    "ffcv 1.0.2": "no wheel; not maintained since 2023",
    "nvidia-dali": "needs a GPU",
    "NVTabular, Petastorm": "not maintained",
}
