# ruff: noqa: A001 - the same short names in each module, most of them one expression
"""SPDL: a pipeline whose functions run in a pool of processes."""

from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from spdl.pipeline import PipelineBuilder
from spdl.source import DistributedDeterministicSampler, DistributedRandomSampler

STATE = "a pipeline has no state to save"
FILES = "it reads no files of records; sources of one's own do"
LACKS = dict.fromkeys(("resume", "resume-workers", "resume-ranks", "kill-trainer"), STATE)
LACKS |= {"corrupt-told": FILES, "corrupt-rest": FILES}
NOT_PROMISED: dict[str, str] = {}
MOST = {"exception-told": 0, "unpicklable-sample": 0, "unpicklable-function": 0, "exit": 0, "kill-worker-told": 0}  # fmt: skip


def open(pipe: Any) -> Any:
    given = {"rank": pipe.rank, "world_size": pipe.ranks, "ddp_drop_last_distributed_round": False}
    plain = DistributedDeterministicSampler(pipe.n, **given) if pipe.ranks > 1 else range(pipe.n)
    source = plain if pipe.seed is None else DistributedRandomSampler(pipe.n, seed=pipe.seed, **given)  # fmt: skip
    pool = ProcessPoolExecutor(pipe.workers) if pipe.workers else None
    built = PipelineBuilder().add_source(source)
    built.pipe(pipe.function, executor=pool, concurrency=pipe.workers or 1, output_order="input")
    built.aggregate(pipe.batch).pipe(np.stack).add_sink(3)
    return pipe, lambda: built.build(num_threads=2, max_failures=MOST.get(pipe.law, -1))


def batches(loader: Any) -> Any:
    pipe, build = loader
    with (pipeline := build()).auto_stop():
        yield from pipeline.get_iterator(timeout=2 if pipe.law == "hang" else None)
