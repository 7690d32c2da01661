"""Cases of file readers: each kind of file, read in sequence, in turn, by number, and damaged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.testing.cases.case import Case
from tundish.testing.files import KINDS, Reading, files, read
from tundish.testing.functions import Draw, Keep, Tag

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

SEEKABLE = [kind for kind in KINDS if not kind.endswith(("gzip", "zlib", "sql"))]


def steps(rng: random.Random, _: Callable[[], str]) -> dict[str, int]:
    """Return the steps that the fuzzer may apply: a file is read for each element."""
    kind = rng.choice([kind for kind in KINDS if kind != "sql"])
    opened = f"Reading(D, {kind!r}, {rng.randint(1, 9)}, {rng.random() < 0.3})"
    return {
        f".shuffle(None, seed={rng.randint(0, 5)}, units={rng.randint(1, 4)})": 2,
        f".flat_map({opened})": 2,
        f".interleave({opened}, {rng.randint(1, 4)}, {rng.randint(1, 3)})": 2,
    }


def source(rng: random.Random) -> str:
    """Files, as the fuzzer's source."""
    kind = rng.choice(list(KINDS))
    how = ""
    if kind != "sql":
        how = rng.choice(("", "", ", num_parallel_reads=2", ", num_parallel_reads=-1"))
        how += rng.choice(("", "", ", damaged=True", ", damaged=True, on_error='skip'"))
    if kind in SEEKABLE and "num" not in how and "skip" not in how and rng.random() < 0.4:
        units = f".shuffle(None, seed={rng.randint(0, 5)}, units={rng.randint(1, 4)})"
        mapped = rng.choice(("", ".map(Draw(2), seed=3)", ".prefetch(2)"))
        return f"read(D, {kind!r}{how}){units}{mapped}{rng.choice(('', '.shard(3, 1)'))}"
    return f"read(D, {kind!r}{how})"


FULL = ("text", "tfrecord", "parquet", "csv", "tar")
"""Kinds of which every case is used; of other kinds, only the cases that may differ by format."""


def _of(kind: str) -> tuple[Case, ...]:
    def case(name: str, pipeline: Callable[[Any], Any]) -> Case:
        return Case(f"{kind}-{name}", pipeline)

    found = [
        Case(kind, lambda d: read(d, kind).batch(3).repeat(2)),
        case("augment", lambda d: read(d, kind).map(Draw(1), seed=1).filter(Keep(1)).repeat(2)),
    ]
    if kind == "sql":
        return tuple(found)
    found += [
        case("damaged", lambda d: read(d, kind, damaged=True).map(Draw(1), seed=1).batch(2)),
        case(
            "turns-damaged",
            lambda d: read(d, kind, damaged=True, num_parallel_reads=3).map(Tag(1)).repeat(2),
        ),
    ]
    if kind in FULL:
        found += [
            case("skip", lambda d: read(d, kind, damaged=True, on_error="skip").repeat(2)),
            case("turns", lambda d: read(d, kind, num_parallel_reads=2).map(Draw(1), seed=1)),
            case("shuffle", lambda d: read(d, kind).shuffle(4, seed=2).map(Draw(2), seed=1)),
            case("paths", lambda d: read(d, kind, _shuffled(d, kind)).map(Draw(1), seed=1)),
            case("interleave", lambda d: d.range(7).interleave(Reading(d, kind), 3, 2).enumerate()),
            case("flat_map", lambda d: d.range(7).flat_map(Reading(d, kind, 2)).take(9).repeat(2)),
            case("shard", lambda d: read(d, kind).shard(3, 1).map(Draw(1), seed=1)),
            case(
                "chosen",
                lambda d: read(d, kind, damaged=True).skip(2).shuffle(3, seed=2).take(6).repeat(2),
            ),
        ]
    if kind in SEEKABLE:
        found += [
            case("index", lambda d: read(d, kind, **_indexed(kind)).map(Draw(1), seed=1).batch(4)),
            case(
                "permutation",
                lambda d: read(d, kind).shuffle(None, seed=1).map(Draw(1), seed=1).repeat(2),
            ),
            case(
                "units",
                lambda d: (
                    read(d, kind).shuffle(None, 1, units=2).map(Draw(1), seed=1).repeat(2).batch(3)
                ),
            ),
            case(
                "units-shard",
                lambda d: (
                    read(d, kind, damaged=True)
                    .concatenate(read(d, kind))
                    .skip(1)
                    .take(17)
                    .shuffle(None, seed=2, units=2)
                    .map(Draw(1), seed=1)
                    .shard(2, 1)
                    .repeat(2)
                ),
            ),
            case("gathered", lambda d: read(d, kind).repeat(2).shuffle(None, seed=1).batch(3)),
            case(
                "gathered-damaged", lambda d: read(d, kind, damaged=True).shuffle(None, 2).batch(2)
            ),
        ]
    return tuple(found)


def _indexed(kind: str) -> dict[str, Any]:
    return {} if kind.startswith(("parquet", "arrow")) else {"index": True}


def _shuffled(d: Any, kind: str) -> Any:
    return d.from_list(list(files(kind))).shuffle(3, seed=1).repeat(2)


CASES: dict[str, tuple[Case, ...]] = {}
"""Readers are classes, no methods of `Dataset`: they have a table of their own."""

READERS: dict[str, tuple[Case, ...]] = {}
for _kind, _made in KINDS.items():
    READERS[_made.reader] = READERS.get(_made.reader, ()) + _of(_kind)
