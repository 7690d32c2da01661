"""Cases of operators that store elements in files.

Each pipeline comes in three forms: nothing stands in its files; an iterator that was closed early
has left a part there; all stands there. What comes out must not differ.
"""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.ragged import Ragged
from tundish.spec import ArraySpec
from tundish.testing.cases.case import Case
from tundish.testing.folders import folder, saved
from tundish.testing.functions import Become, Draw, Emit, Fail, Inner, Keep, Key, Refuse, Tag
from tundish.testing.raising import Quit

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

STORABLE = (
    "int", "float", "small", "str", "bytes", "array", "image", "ragged", "words", "dict",
    "tuple", "nested", "swapped", "long", "large",
)  # fmt: skip
"""Kinds of elements that files can hold: of one structure, and no objects."""
SMALL = {"batch_bytes": 60, "shard_bytes": 200}
"""A batch and a file for every few elements."""


def steps(rng: random.Random, _: Callable[[], str]) -> dict[str, int]:
    """Return the steps that the fuzzer may apply: elements that can be kept, then a snapshot of them."""
    kind = rng.choice(STORABLE)
    how = rng.choice(
        (
            "",
            ", 'lz4'",
            ", 'zstd', batch_bytes=1",
            ", shard_bytes=1",
            f", None, None, Key({rng.randint(1, 9)}, 3)",
        )
    )
    return {f".ignore_errors().map(Become({kind!r})).snapshot(folder(){how})": 2}


def refusing(d: Any, n: int = 23) -> Any:
    """Elements of which some fail, with errors that files can hold."""
    return d.range(n).map(Refuse(3, 25))


def ragged(x: Any) -> Ragged:
    """A namedtuple."""
    lengths = np.array([0, int(x) % 3, 3])
    return Ragged(np.arange(int(lengths[-1]), dtype=np.int16) + np.int16(x), lengths)


def in_turn(datasets: Any) -> Any:
    """For `reader_func`: one user shard after another."""
    return datasets.flat_map(itself)


def itself(dataset: Any) -> Any:
    """All of a shard."""
    return dataset


def zipped(d: Any) -> Any:
    """One snapshot read twice."""
    kept = refusing(d).snapshot(folder(), **SMALL)
    return d.zip(kept, kept.map(Tag(2))).repeat(2)


def twice(d: Any) -> Any:
    """Two snapshots in one folder, one of the other."""
    path = folder()
    below = d.range(30).map(Tag(1)).snapshot(path, **SMALL)
    return below.filter(Keep(1)).snapshot(path, "zstd").repeat(2)


PIPELINES: dict[str, Callable[[Any], Any]] = {
    "": lambda d: d.range(17).map(Tag(3)).snapshot(folder()),
    "records": lambda d: (
        d.from_tensor_slices(np.arange(12.0).reshape(6, 2)).snapshot(folder()).repeat(2)
    ),
    "batches": lambda d: refusing(d, 40).batch(3).snapshot(folder(), **SMALL).map(Tag(1)),
    "batched": lambda d: d.range(23).map(Tag(1)).snapshot(folder(), **SMALL).batch(4).repeat(2),
    "batched-errors": lambda d: refusing(d, 40).snapshot(folder(), batch_bytes=64).batch(4),
    "parallel": lambda d: (
        d.range(60).map(Tag(3), num_parallel_calls=2).snapshot(folder(), shard_bytes=99).map(Tag(1))
    ),
    "errors": lambda d: refusing(d).snapshot(folder(), **SMALL).repeat(2),
    "quits": lambda d: (
        d.range(23).map(Quit(3, 30, kept=True)).snapshot(folder(), **SMALL).repeat(2)
    ),
    "skips": lambda d: (
        d.range(23).map(Fail(3, 30), on_error="skip").snapshot(folder()).map(Draw(1), seed=1)
    ),
    "filter": lambda d: (
        refusing(d, 40).filter(Keep(1)).snapshot(folder(), "zstd", **SMALL).enumerate()
    ),
    "flat_map": lambda d: (
        d.range(9)
        .flat_map(Inner(d, 1))
        .ignore_errors()
        .map(Become("dict"))
        .snapshot(folder(), **SMALL)
    ),
    "interleave": lambda d: (
        d.range(9)
        .interleave(Inner(d, 1), 3, 2)
        .ignore_errors()
        .map(Become("array"))
        .snapshot(folder(), **SMALL)
        .repeat(2)
    ),
    "shuffle": lambda d: d.range(23).shuffle(7, seed=3).snapshot(folder(), **SMALL).repeat(2),
    "shuffled": lambda d: (
        d.range(23).map(Tag(1)).snapshot(folder(), **SMALL).shuffle(7, seed=3).repeat(2)
    ),
    "unique": lambda d: d.range(40).map(Key(1, 9)).unique().snapshot(folder(), **SMALL).repeat(2),
    "augment": lambda d: (
        d.range(12).map(Draw(1), seed=7).snapshot(folder(), **SMALL).map(Draw(2), seed=7).repeat(2)
    ),
    "repeated": lambda d: (
        d.range(5).map(Draw(1), seed=1).repeat(3).snapshot(folder(), **SMALL).map(Draw(2), seed=1)
    ),
    "endless": lambda d: (
        d.range(7)
        .snapshot(folder(), **SMALL)
        .shuffle(3, seed=1)
        .map(Draw(1), seed=2)
        .repeat()
        .take(40)
    ),
    "part": lambda d: d.range(9).map(Tag(1)).snapshot(folder(), **SMALL).take(4).repeat(2),
    "chosen": lambda d: refusing(d, 30).snapshot(folder(), **SMALL).skip(3).shard(3, 1).batch(2),
    "twice": twice,
    "zip": zipped,
    "concatenate": lambda d: (
        d.range(4)
        .snapshot(folder())
        .concatenate(d.range(9, 13).snapshot(folder()))
        .map(Draw(1), seed=3)
        .repeat(2)
    ),
    "generator": lambda d: d.from_generator(Emit(11)).snapshot(folder(), **SMALL).repeat(2),
    "unbatch": lambda d: (
        d.range(9).map(Become("image")).snapshot(folder(), **SMALL).unbatch().map(Draw(1), seed=1)
    ),
    "window": lambda d: (
        d.range(13).map(Tag(1)).snapshot(folder(), **SMALL).window(3, 2).flat_map(d.zip)
    ),
    "scan": lambda d: d.range(13).cache().snapshot(folder(), **SMALL).cache().repeat(2),
    "sorted": lambda d: refusing(d).snapshot(folder(), None, None, Key(1, 3), **SMALL).batch(3),
    "sorted-repeat": lambda d: (
        d.range(20).map(Become("dict")).snapshot(folder(), "lz4", shard_func=Key(2, 3)).repeat(2)
    ),
    "read": lambda d: (
        d.range(20)
        .map(Tag(1))
        .snapshot(folder(), reader_func=in_turn, shard_bytes=40, batch_bytes=24)
    ),
    "empty": lambda d: d.range(0).map(Tag(1)).snapshot(folder()).repeat(2),
    "nothing": lambda d: d.range(9).filter(Keep(1, 0)).snapshot(folder()).batch(2),
    "all-fail": lambda d: d.range(5).map(Refuse(1, 100)).snapshot(folder()).repeat(2),
    "namedtuple": lambda d: d.range(9).map(ragged).snapshot(folder(), **SMALL).repeat(2),
    "told": lambda d: (
        d.range(9)
        .map(Tag(1))
        .snapshot(folder(), version="2", on_mismatch="error", verify="full", **SMALL)
    ),
    "off": lambda d: d.range(9).map(Draw(1), seed=1).snapshot(folder(), mode="off").repeat(2),
    **{
        f"{kind}": lambda d, kind=kind: (
            d.range(9).map(Become(kind)).snapshot(folder(), batch_bytes=64).repeat(2)
        )  # type: ignore[misc]
        for kind in STORABLE
    },
}
"""The operators that store elements, by name."""

STANDS: tuple[int | None, ...] = (0, 7, None)
"""The numbers of elements that were taken before."""


def _cases(operator: str, pipelines: dict[str, Callable[[Any], Any]]) -> tuple[Case, ...]:
    return tuple(
        [
            Case(f"{operator}-{name}" if name else operator, pipeline, stands=stands)
            for (name, pipeline), stands in zip(pipelines.items(), cycle(STANDS), strict=False)
        ]
    )


CASES: dict[str, tuple[Case, ...]] = {
    "snapshot": _cases("snapshot", PIPELINES),
    "load": (
        Case("load", lambda d: d.load(saved(d, 9)).batch(2).repeat(2)),
        Case(
            "load-told",
            lambda d: d.load(
                saved(d, 9), ArraySpec((), np.int64), "zstd", in_turn, wait=True
            ).batch(2),
        ),
        Case(
            "load-augment", lambda d: d.load(saved(d, 9, compression="zstd")).map(Draw(1), seed=1)
        ),
        Case(
            "load-sorted",
            lambda d: d.load(saved(d, 19, shard_func=Key(1, 3))).map(Tag(1)).shuffle(4, seed=1),
        ),
    ),
}
