"""Cases of the sources that are tables in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.testing.cases.case import Case
from tundish.testing.functions import Draw, Keep, Tag

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


def source(rng: random.Random) -> str:
    """Return an expression for a source that the fuzzer may draw."""
    count, parts = rng.choice((0, 1, 5, 9, 17, 25)), rng.randint(1, 4)
    nulls = rng.random() < 0.5
    defaults = ", defaults={'s': '?', 'c': '-'}" if nulls and rng.random() < 0.5 else ""
    columns = rng.choice(("", ", ['x', 's']", ", ['l', 'b', 'c']", ", ['c', 's']", ", ['m', 'x']"))
    if defaults and columns not in ("", ", ['c', 's']"):
        defaults = ""
    return rng.choice(
        (
            f"D.from_arrow(tables.numbers({count}, {parts}))",
            f"D.from_arrow(tables.numbers({count}, {parts}), ['x'])",
            f"D.from_arrow(tables.mixed({count}, nulls={nulls}){columns}{defaults})",
        )
    )


def steps(_: random.Random, __: Callable[[], str]) -> dict[str, int]:
    """Return the steps that the fuzzer may apply: none, since these are sources."""
    return {}


def numbers(count: int = 23, parts: int = 3) -> Any:
    """Return a table of numbers in several chunks, which are read without a copy."""
    import pyarrow as pa  # noqa: PLC0415 - here and below: only for tables

    table = pa.table(
        {
            "n": pa.array(range(count), pa.int32()),
            "x": pa.array([k / 4 for k in range(count)], pa.float64()),
        }
    )
    size = max(1, -(-count // parts))
    return pa.concat_tables([table.slice(first, size) for first in range(0, max(1, count), size)])


def mixed(count: int = 17, *, nulls: bool = False) -> Any:
    """Return a table of texts, lists, categories and matrices; with `nulls`, some rows of which have no value."""
    import pyarrow as pa  # noqa: PLC0415 - see above

    gaps = [nulls and k % 5 == 3 for k in range(count)]
    matrices = pa.list_(pa.list_(pa.float32(), 2), 2)
    words = [None if gap else f"word {k % 4}" for k, gap in enumerate(gaps)]
    table = pa.table(
        {
            "x": pa.array([None if k % 4 == 1 else k / 2 for k in range(count)], pa.float32()),
            "s": pa.array(words, pa.string()),
            "c": pa.array(words, pa.string()).dictionary_encode(),
            "l": pa.array([list(range(k % 3)) for k in range(count)], pa.list_(pa.int64())),
            "b": pa.array([k % 3 == 1 for k in range(count)]),
            "m": pa.array([[[k, 1], [2, -k]] for k in range(count)], matrices),
        }
    )
    return pa.concat_tables([table.slice(0, 4), table.slice(4)])


def frame() -> Any:
    """Return a DataFrame of `mixed`'s rows."""
    import pandas as pd  # noqa: PLC0415 - see above

    found = mixed()
    columns = {name: found.column(name).to_pylist() for name in ("s", "b")}
    numbers = pd.array(list(range(len(found))), dtype="Int16")
    kinds = pd.Categorical([text[-1] for text in columns["s"]])
    return pd.DataFrame({**columns, "n": numbers, "c": kinds, "x": found.column("x").to_pandas()})


CASES: dict[str, tuple[Case, ...]] = {
    "from_arrow": (
        Case("from_arrow", lambda d: d.from_arrow(numbers()).batch(4).repeat(2)),
        Case("from_arrow-rows", lambda d: d.from_arrow(numbers(9)).map(Tag(1))),
        Case("from_arrow-mixed", lambda d: d.from_arrow(mixed()).map(Draw(1), seed=1)),
        Case("from_arrow-nulls", lambda d: d.from_arrow(mixed(nulls=True)).filter(Keep(1))),
        Case(
            "from_arrow-nulls-batch",
            lambda d: d.from_arrow(mixed(nulls=True), columns=["s", "x"]).batch(3),
        ),
        Case(
            "from_arrow-defaults",
            lambda d: (
                d.from_arrow(mixed(nulls=True), ["s", "b"], defaults={"s": "?"})
                .shuffle(None, seed=2)
                .batch(3)
                .repeat(2)
            ),
        ),
        Case(
            "from_arrow-permutation",
            lambda d: d.from_arrow(numbers()).shuffle(None, seed=3).shard(3, 1).batch(2).repeat(2),
        ),
        Case(
            "from_arrow-matrices",
            lambda d: d.from_arrow(mixed(), ["m", "x"]).shuffle(None, seed=3).batch(4).repeat(2),
        ),
        Case(
            "from_arrow-schema",
            lambda d: d.from_arrow(numbers(9), ["x", "n"], {"n": "int16", "x": "float32"}).batch(2),
        ),
        Case("from_arrow-window", lambda d: d.from_arrow(numbers(11, 5)).shuffle(4, seed=1)),
        Case("from_arrow-none", lambda d: d.from_arrow(numbers(1).slice(1)).batch(2)),
    ),
    "from_pandas": (
        Case("from_pandas", lambda d: d.from_pandas(frame()).batch(4).repeat(2)),
        Case("from_pandas-index", lambda d: d.from_pandas(frame(), preserve_index=True).batch(4)),
        Case(
            "from_pandas-chosen",
            lambda d: d.from_pandas(frame(), ["n", "s"], {"n": "int32"}, {"s": "?"}).batch(4),
        ),
        Case("from_pandas-map", lambda d: d.from_pandas(frame()).map(Draw(1), seed=1)),
    ),
}
