# ruff: noqa: A001, ARG005, E731 - the same short names in each module, most of them one expression
"""Grain: `MapDataset`, made an `IterDataset` with worker processes."""

import json
from pathlib import Path
from typing import Any

import grain
from absl import flags
from array_record.python.array_record_module import ArrayRecordWriter

LACKS: dict[str, str] = {}
NOT_PROMISED = {"resume-workers": "documented: the state is that of the same pipeline", "resume-ranks": "documented: a state is that of one process"}  # fmt: skip
flags.FLAGS(["conformance"], known_only=True)  # its workers read absl's flags


def open(pipe: Any) -> Any:
    data = grain.MapDataset.range(pipe.n)
    data = data if pipe.seed is None else data.shuffle(pipe.seed)
    data = data[pipe.rank :: pipe.ranks].map(pipe.function).batch(pipe.batch)
    data = data.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=2))
    return data.mp_prefetch(grain.MultiprocessingOptions(pipe.workers)) if pipe.workers else data


batches = iter
save = lambda loader, it, path: Path(path).write_text(json.dumps(it.get_state()))


def resume(pipe: Any, path: str) -> Any:
    it = iter(open(pipe))
    it.set_state(json.loads(Path(path).read_text()))
    return it


def write(path: str, rows: list[bytes]) -> None:
    writer = ArrayRecordWriter(path, "uncompressed,group_size:1")
    [writer.write(row) for row in rows]
    writer.close()


read = lambda path: iter(grain.MapDataset.source(grain.sources.ArrayRecordDataSource([path])).to_iter_dataset())  # fmt: skip
