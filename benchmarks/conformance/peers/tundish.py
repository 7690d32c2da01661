# ruff: noqa: A001, ARG005, E731 - the same short names in each module, most of them one expression
"""tundish: `Dataset`, with a deadline for its functions where a bound in time is asked for."""

from pathlib import Path
from typing import Any

import tundish as td

LACKS: dict[str, str] = {}
NOT_PROMISED: dict[str, str] = {}


def open(pipe: Any) -> Any:
    options = td.Options(workers=pipe.workers, deadline=2 if pipe.law == "hang" else None)
    data = td.Dataset.range(pipe.n)
    data = data if pipe.seed is None else data.shuffle(None, seed=pipe.seed)
    if pipe.ranks > 1:
        data = data.shard_by_process(td.InputContext(pipe.ranks, pipe.rank))
    return data.map(pipe.function).batch(pipe.batch).with_options(options)


batches = iter
save = lambda loader, it, path: it.save(path)


def resume(pipe: Any, path: str) -> Any:
    it = iter(open(pipe))
    it.restore(path)
    return it


write = lambda path, rows: td.TFRecordWriter(path).write(td.Dataset.from_list(rows))
read = lambda path: iter(td.TFRecordDataset(str(Path(path))))
