"""The registry of every operator and every source, in small pipelines on which the laws are checked.

A `Case` is a pipeline as a function of the class it is made of: `Dataset`, or the reference
`Model`, which has the same methods. A new operator of `Dataset` needs a case here, and a meaning
there; ``tests/laws/test_registry.py`` fails without.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.plan.inputs import InputContext
from tundish.spec import ArraySpec
from tundish.testing.cases import FAMILIES
from tundish.testing.cases.case import Case, failing
from tundish.testing.cases.reading import READERS
from tundish.testing.configured import Configured
from tundish.testing.folders import folder
from tundish.testing.functions import (
    Become,
    Draw,
    Emit,
    Fail,
    Inner,
    Keep,
    Records,
    Refuse,
    Tag,
    Together,
    Uneven,
)
from tundish.testing.misbehaving import Changed, Filled, Kept, Pooled, Poured
from tundish.testing.raising import Quit
from tundish.testing.values import Give, Given

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CASES", "FIRST", "NOT_OPERATORS", "OTHERS", "READERS", "REGISTRY", "Case"]

NOT_OPERATORS = frozenset(
    {
        "apply",
        "as_numpy_iterator",
        "cardinality",
        "element_spec",
        "fingerprint",
        "from_bytes",
        "get_single_element",
        "iterator",
        "options",
        "reduce",
        "save",
        "to_bytes",
        "with_options",
        "write_arrow",
        "write_parquet",
    }
)
"""Public names of `Dataset` that are no operator of a plan."""


HERE = Path(__file__).parent
GRID = np.arange(24, dtype=np.float32).reshape(6, 2, 2)
NUMBERS = ArraySpec(None, np.int64)
FIELDS = {"x": np.arange(7), "y": (np.arange(14.0).reshape(7, 2), list("abcdefg"))}


def becoming(kind: str) -> Callable[[Any], Any]:
    """Elements of a kind."""
    return lambda d: d.range(9).map(Become(kind))


def tagged(kind: str) -> Callable[[Any], Any]:
    """Elements of a kind, through another function."""
    return lambda d: d.range(9).map(Become(kind)).map(Tag(1))


def buffered(d: Any) -> Any:
    """Arrays that are one buffer, filled again for each."""
    return d.range(9).map(Become("array")).map(Filled(1))


def add(state: Any, element: Any) -> Any:
    """Return the sum so far, for `scan`."""
    return state + element, state


def batched(kind: str) -> Callable[[Any], Any]:
    """Elements of a kind in batches."""
    return lambda d: d.range(11).map(Become(kind)).batch(4)


REGISTRY: dict[str, tuple[Case, ...]] = {
    "range": (
        Case("range", lambda d: d.range(10)),
        Case("range-step", lambda d: d.range(20, -5, -3)),
        Case("range-empty", lambda d: d.range(5, 5)),
        Case("range-float", lambda d: d.range(1, 9, 2, output_type=np.float32).repeat(2)),
        Case("range-small", lambda d: d.range(20, -5, -3, output_type=np.int8).map(Tag(1))),
    ),
    "from_tensors": (
        Case("from_tensors", lambda d: d.from_tensors({"a": [1, 2], "b": ("s", b"t", 2.5)})),
        Case("from_tensors-repeat", lambda d: d.from_tensors(GRID).repeat(3)),
        Case(
            "from_tensors-changed",
            lambda d: d.from_tensors(tuple(Kept(2, "arrays").records)).map(Changed(1)).repeat(3),
        ),
    ),
    "from_tensor_slices": (
        Case("from_tensor_slices", lambda d: d.from_tensor_slices(GRID)),
        Case("from_tensor_slices-nest", lambda d: d.from_tensor_slices(FIELDS).map(Tag(2))),
        Case("from_tensor_slices-str", lambda d: d.from_tensor_slices(["a", "bc", ""])),
    ),
    "from_generator": (
        Case("from_generator", lambda d: d.from_generator(Emit(9)).map(Tag(2))),
        Case("from_generator-args", lambda d: d.from_generator(Emit(5), args=(3, "x")).repeat(2)),
        Case("from_generator-fails", lambda d: d.from_generator(Emit(9, fails=4)).repeat(2)),
        Case(
            "from_generator-exceptions",
            lambda d: d.from_generator(Given, args=(7, "exception")).shuffle(3, seed=1),
        ),
        Case(
            "from_generator-quits",
            lambda d: (
                d.from_generator(Emit(9)).map(Quit(2, 40)).scan(np.int64(0), Quit(1, 20, add))
            ),
        ),
        Case(
            "from_generator-signature",
            lambda d: d.from_generator(Emit(20), output_signature=NUMBERS).repeat(2),
        ),
        Case(
            "from_generator-types",
            lambda d: d.from_generator(Given, np.int64, (), args=(40, "any")).shuffle(4, seed=2),
        ),
        Case("from_generator-buffer", lambda d: d.from_generator(Poured(7)).cache().repeat(2)),
        Case("from_generator-shuffle", lambda d: d.from_generator(Emit(11)).shuffle(4, seed=2)),
    ),
    "from_source": (
        Case("from_source", lambda d: d.from_source(Records(9)).batch(4)),
        Case(
            "from_source-together",
            lambda d: d.from_source(Together(30)).shuffle(4, seed=1).batch(4),
        ),
        Case("from_source-objects", lambda d: d.from_source(Records(6, "object"))),
        Case("from_source-values", lambda d: d.from_source(Given(40, "any", "dict"))),
        Case(
            "from_source-changed",
            lambda d: d.from_source(Kept(6, "array")).map(Changed(1)).repeat(3),
        ),
        Case(
            "from_source-changed_structs",
            lambda d: d.from_source(Kept(6, "struct")).map(Changed(1)).repeat(3),
        ),
        Case(
            "from_source-changed_arrays",
            lambda d: d.from_source(Kept(6, "arrays")).map(Changed(1)).repeat(3),
        ),
        Case("from_source-table", lambda d: d.from_source(Given(7, "table")).unbatch().batch(4)),
    ),
    "list_files": (
        Case("list_files", lambda d: d.list_files(str(HERE / "*.py"), shuffle=False).map(Tag(1))),
        Case("list_files-shuffle", lambda d: d.list_files([str(HERE / "*.py")], seed=4).repeat(2)),
    ),
    "zip": (
        Case("zip", lambda d: d.zip(d.range(5), d.range(9).map(Tag(1)))),
        Case("zip-buffer", lambda d: d.zip((buffered(d), buffered(d).skip(1))).map(Tag(1))),
        Case("zip-nest", lambda d: d.zip({"a": d.range(4), "b": (d.range(6), failing(d))})),
        Case(
            "zip-augment",
            lambda d: d.zip(
                (d.range(6).map(Draw(1), seed=1), d.range(8).shuffle(3, seed=5))
            ).repeat(2),
        ),
        Case(
            "zip-errors",  # of several the first input's, computed last
            lambda d: d.zip(
                failing(d, 30), d.range(30).filter(Keep(2, 100, 40)), failing(d, 30).enumerate()
            ).shuffle(5, seed=1),
        ),
        Case(
            "zip-misfits",  # an error where an element that is put together would stand
            lambda d: d.zip(
                d.from_generator(Emit(20)).map(Fail(3, 40)),
                d.range(40).map(Become("ragged")).padded_batch(2, [2]),
                failing(d),
            ),
        ),
        Case(
            "zip-ends",  # after an item of the first that has no partner
            lambda d: d.zip(d.range(13).shuffle(13, seed=2), d.range(9)).padded_batch(2),
        ),
    ),
    "concatenate": (
        Case("concatenate", lambda d: d.range(4).concatenate(d.range(10, 13)).repeat(2)),
        Case(
            "concatenate-augment",
            lambda d: (
                failing(d, 8).map(Draw(1), seed=3).concatenate(d.range(5).map(Draw(1), seed=3))
            ),
        ),
    ),
    "map": (
        Case("map", lambda d: d.range(17).map(Tag(3), num_parallel_calls=2)),
        Case(
            "map-augment", lambda d: d.range(12).map(Draw(1), seed=7).map(Draw(2), seed=7).repeat(2)
        ),
        Case("map-errors", lambda d: failing(d).map(Tag(2))),
        Case(
            "map-skip", lambda d: d.range(23).map(Fail(3, 30), on_error="skip").map(Draw(1), seed=1)
        ),
        Case("map-skip-unfit", lambda d: d.range(23).map(Fail(3, 30, unfit=True), on_error="skip")),
        Case(
            "map-signature",
            lambda d: d.range(40).filter(Keep(1)).map(Become("mixed"), output_signature=NUMBERS),
        ),
        Case(
            "map-signature-skip",
            lambda d: (
                failing(d, 40)
                .map(Uneven(2), on_error="skip", output_signature=ArraySpec((3,), np.int16))
                .batch(2)
            ),
        ),
        Case("map-quits", lambda d: d.range(23).map(Quit(3, 40)).map(Tag(1))),
        Case(
            "map-quits-skip",  # what an `except Exception` does not catch is not left out
            lambda d: d.range(23).map(Quit(3, 40), on_error="skip").batch(3).ignore_errors(),
        ),
        Case("map-configured", lambda d: d.range(9).map(Configured(2)).batch(4)),
        Case("map-values", lambda d: d.range(60).map(Give("any")).map(Tag(1))),
        Case("map-buffer", lambda d: buffered(d).shuffle(3, seed=1)),
        Case(
            "map-structs",
            lambda d: d.range(60).map(Filled(1, kind="struct")).batch(4),
        ),
        Case(
            "map-retry",
            lambda d: (
                d.range(9)
                .map(Refuse(3, 40), on_error="retry", retries=1)
                .shuffle(None, seed=5)
                .map(Tag(2))
            ),
        ),
        Case(
            "map-arguments",
            lambda d: d.zip(d.range(5), d.range(5)).map(Tag(1)).map(Become("tuple")),
        ),
        *(
            Case(f"map-{kind}", tagged(kind))
            for kind in ("float", "small", "str", "bytes", "array", "image", "ragged")
        ),
        *(
            Case(f"map-{kind}", becoming(kind))
            for kind in ("words", "dict", "tuple", "nested", "object", "swapped", "mixed")
        ),
    ),
    "filter": (
        Case("filter", lambda d: d.range(30).filter(Keep(1))),
        Case("filter-batch", lambda d: failing(d, 40).filter(Keep(2)).batch(4)),
        Case(
            "filter-augment",
            lambda d: d.range(30).filter(Keep(1)).map(Draw(2), seed=4).filter(Keep(5)),
        ),
        Case("filter-errors", lambda d: d.range(20).filter(Keep(3, 60, 20))),
        Case("filter-quits", lambda d: d.range(20).filter(Quit(3, 30, Keep(3))).batch(2)),
        Case("filter-skip", lambda d: d.range(20).filter(Keep(3, 60, 20), on_error="skip")),
        Case(
            "filter-retry",
            lambda d: d.range(20).filter(Keep(3, 60, 20), on_error="retry", retries=1).batch(2),
        ),
        Case("filter-nothing", lambda d: d.range(20).filter(Keep(1, 0)).repeat()),
    ),
    "flat_map": (
        Case("flat_map", lambda d: d.range(8).flat_map(Inner(d, 1))),
        Case("flat_map-quits", lambda d: d.range(12).flat_map(Quit(3, 40, Inner(d, 2)))),
        Case("flat_map-errors", lambda d: failing(d, 12).flat_map(Inner(d, 2)).batch(3)),
        Case(
            "flat_map-retried",
            lambda d: (
                d.range(40)
                .map(Fail(2, 30), on_error="retry", retries=1)
                .flat_map(Inner(d, 3))
                .map(Tag(1))
            ),
        ),
        Case(
            "flat_map-nested",
            lambda d: d.range(5).flat_map(Inner(d, 1)).flat_map(Inner(d, 2)).repeat(2),
        ),
        Case(
            "flat_map-augment",
            lambda d: d.range(8).flat_map(Inner(d, 3)).map(Draw(1), seed=2).shuffle(5, seed=1),
        ),
    ),
    "enumerate": (
        Case("enumerate", lambda d: failing(d).enumerate()),
        Case(
            "enumerate-start",
            lambda d: d.range(9).filter(Keep(1)).enumerate(5).map(Tag(1)).repeat(2),
        ),
    ),
    "batch": (
        Case("batch", lambda d: d.range(23).batch(4)),
        Case("batch-drop", lambda d: d.range(23).batch(4, drop_remainder=True).repeat(2)),
        Case("batch-errors", lambda d: failing(d, 40).batch(4)),
        Case("batch-parallel", lambda d: failing(d, 40).batch(4, num_parallel_calls=2)),
        Case(
            "batch-augment",
            lambda d: d.range(23).map(Draw(1), seed=1).batch(3).map(Draw(2), seed=1),
        ),
        Case("batch-like", lambda d: d.range(11).map(Give("like")).batch(4)),
        Case("batch-aligned", lambda d: d.range(11).map(Give("aligned", "dict")).batch(4)),
        Case("batch-deep", lambda d: d.range(5).map(Give("almost_deep")).batch(2).batch(2)),
        Case("batch-batch", lambda d: d.range(23).batch(3).batch(2, drop_remainder=True)),
        Case("batch-unequal", lambda d: d.range(30).map(Become("ragged")).batch(2)),
        Case("batch-mixed", lambda d: d.range(30).map(Become("mixed")).batch(2)),
        Case("batch-misfits", lambda d: d.range(50).map(Become("mixed")).batch(3)),
        Case(
            "batch-values",
            lambda d: (
                d.range(5)
                .map(Become("object"))
                .concatenate(d.range(6).map(Become("str")))
                .concatenate(d.range(4).map(Become("bytes")).concatenate(d.range(3)))
                .batch(4)
            ),
        ),
        *(
            Case(f"batch-{kind}", batched(kind))
            for kind in ("str", "bytes", "image", "dict", "nested", "object", "words")
        ),
    ),
    "unbatch": (
        Case("unbatch", lambda d: d.range(23).batch(4).unbatch()),
        Case(
            "unbatch-augment",
            lambda d: d.range(9).map(Become("image")).unbatch().map(Draw(1), seed=1),
        ),
        Case("unbatch-errors", lambda d: failing(d, 40).batch(2).unbatch().batch(3)),
        Case("unbatch-uneven", lambda d: d.range(12).map(Become("mixed")).unbatch()),
    ),
    "shuffle": (
        Case("shuffle", lambda d: d.range(23).shuffle(7, seed=3).repeat(2)),
        Case(
            "shuffle-fixed",
            lambda d: d.range(9).shuffle(4, 3, reshuffle_each_iteration=False).repeat(2),
        ),
        Case("shuffle-errors", lambda d: failing(d).shuffle(6, seed=1).batch(3)),
        Case(
            "shuffle-filtered",
            lambda d: d.range(30).map(Draw(1), seed=1).filter(Keep(1)).shuffle(5, seed=2).batch(2),
        ),
        Case(
            "shuffle-passes", lambda d: d.range(7).repeat(3).shuffle(9, seed=2).map(Draw(1), seed=1)
        ),
        Case(
            "shuffle-batches",
            lambda d: d.range(20).shuffle(5, seed=1).batch(2).shuffle(3, seed=2).unbatch(),
        ),
        Case(
            "shuffle-permutation",
            lambda d: d.range(23).shuffle(None, seed=1).map(Draw(1), seed=1).repeat(2),
        ),
        Case(
            "shuffle-unseeded",
            lambda d: d.range(23).shuffle(None).shuffle(5).batch(4),
            modelled=False,
        ),
    ),
    "repeat": (
        Case("repeat", lambda d: d.range(5).repeat(3)),
        Case(
            "repeat-batch", lambda d: d.range(5).map(Draw(1), seed=1).repeat(3).batch(4).repeat(2)
        ),
        Case(
            "repeat-forever",
            lambda d: d.range(7).shuffle(3, seed=1).map(Draw(1), seed=2).repeat(),
            limit=40,
        ),
        Case("repeat-none", lambda d: d.range(5).repeat(0)),
        Case(
            "repeat-gaps",  # some passes are empty
            lambda d: d.range(2).map(Draw(1), seed=1).filter(Keep(1, 20)).repeat(12).batch(2),
        ),
    ),
    "shard": (
        Case("shard", lambda d: d.range(23).shard(4, 3)),
        Case("shard-errors", lambda d: failing(d, 30).filter(Keep(1, 80)).shard(3, 1).batch(2)),
    ),
    "shard_by_process": (
        Case(
            "shard_by_process",
            lambda d: d.range(23).map(Draw(1), seed=2).shard_by_process(InputContext(3, 1)),
        ),
        Case(
            "shard_by_process-filtered",
            lambda d: failing(d).filter(Keep(1)).batch(2).shard_by_process(InputContext(2, 0)),
        ),
    ),
    "skip": (
        Case("skip", lambda d: failing(d).skip(6)),
        Case("skip-all", lambda d: d.range(5).skip(-1)),
        Case("skip-filtered", lambda d: d.range(30).filter(Keep(1)).skip(5).repeat(2)),
    ),
    "take": (
        Case("take", lambda d: failing(d).take(6)),
        Case("take-shuffled", lambda d: d.range(20).shuffle(6, seed=2).take(5).repeat(3)),
        Case("take-endless", lambda d: d.range(4).repeat().take(11).batch(3)),
    ),
    "prefetch": (
        Case("prefetch", lambda d: d.range(12).map(Tag(1)).prefetch(3).batch(2).prefetch(-1)),
    ),
    "cache": (
        Case("cache", lambda d: d.range(9).map(Tag(1)).cache().repeat(3)),
        Case(
            "cache-augment",
            lambda d: d.range(9).map(Draw(1), seed=1).cache().map(Draw(2), seed=1).repeat(2),
        ),
        Case(
            "cache-errors",
            lambda d: failing(d, 12).filter(Keep(1)).cache().shuffle(4, seed=1).repeat(2),
        ),
        Case(
            "cache-sizes",
            lambda d: d.range(6).map(Give("sizes", "both")).cache().enumerate().repeat(2),
        ),
        Case(
            "cache-files",
            lambda d: (
                d.range(9).map(Draw(1), seed=1).cache(folder()).map(Draw(2), seed=1).repeat(2)
            ),
        ),
        Case(
            "cache-pool",
            lambda d: (
                d.range(9).map(Become("dict")).map(Pooled(1)).cache().map(Changed(2)).repeat(3)
            ),
        ),
        Case("cache-quits", lambda d: d.range(12).map(Quit(3, 40)).cache().shuffle(4, 1).repeat(2)),
        Case("cache-part", lambda d: d.range(9).map(Tag(1)).cache().take(4).repeat(2)),
    ),
}

for family in FAMILIES:
    REGISTRY |= family.CASES

FIRST = tuple(cases[0] for cases in (*REGISTRY.values(), *READERS.values()))
"""One case of every operator and source."""

OTHERS = tuple(case for cases in (*REGISTRY.values(), *READERS.values()) for case in cases[1:])
"""All other cases."""

CASES = tuple(case for cases in (*REGISTRY.values(), *READERS.values()) for case in cases)
