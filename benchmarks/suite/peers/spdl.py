"""SPDL: a pipeline of threads, or of a process pool for functions that hold the GIL."""

from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
from packing import again, lines, pack
from spdl.pipeline import PipelineBuilder

PACKAGES = ("spdl",)
SETTINGS = {"defaults": {}} | {
    f"{n} {kind}": {"concurrency": n, "processes": kind == "processes"} for n in (2, 4) for kind in ("threads", "processes")
}
LEFT_OUT = {}


def open(work, concurrency=1, processes=False):
    if work.kind == "arrays":
        columns = work.arrays()
        items = lambda: np.array_split(np.random.permutation(work.count), range(work.batch, work.count, work.batch))
        function, batch = lambda at: {name: column[at] for name, column in columns.items()}, None
    else:
        order = np.random.permutation if work.shuffle else np.arange
        items = (lambda: lines(work.count)) if work.kind == "lines" else lambda: order(work.count)
        function, batch = work.function, work.batch
    pool = ProcessPoolExecutor(concurrency) if processes and work.kind != "arrays" else None
    run = partial(epoch, items, function, batch, concurrency, pool, "input" if work.ordered else "completion")
    return again(lambda: pack(run())) if work.kind == "lines" else again(run)


def epoch(items, function, batch, concurrency, pool, order):  # noqa: PLR0917
    builder = PipelineBuilder().add_source(items())
    builder = builder.pipe(function, concurrency=concurrency, executor=pool, output_order=order)
    builder = builder.aggregate(batch).pipe(np.stack) if batch else builder
    pipeline = builder.add_sink().build(num_threads=concurrency)
    with pipeline.auto_stop():
        yield from pipeline
