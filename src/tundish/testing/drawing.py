"""Random pipelines over all operators and sources, for the fuzzer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tundish.errors import SpecError
from tundish.loader.dataset import Dataset
from tundish.testing.cases import FAMILIES, reading, tables
from tundish.testing.expressions import Pipeline, Step
from tundish.testing.model import Model
from tundish.testing.values import VALUES

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

__all__ = ["MOST", "pipeline"]

MOST = 250
"""The most outcomes of a pipeline, and of each of its first parts."""
FEW = 12
"""The most outcomes of an inner dataset."""
KINDS = (
    "int", "float", "small", "str", "bytes", "array", "image", "ragged", "words", "struct", "arrays", "dict",
    "tuple", "nested", "object", "swapped", "mixed", "long", "large",
)  # fmt: skip
WITHIN = ("", "", "dict", "tuple", "both")
WHOLE = (
    "like",
    "read_only",
    "strided",
    "big_endian",
    "aligned",
    "memoryview",
    "arrow",
    "table",
    "frame",
    "sizes",
    "time",
)
"""Kinds of values that are elements without an error; lists of others are refused."""
ARRAYS = (
    "np.arange(9)",
    "np.arange(12.0).reshape(6, 2)",
    "{'x': np.arange(7, dtype=np.int16), 'y': (list('abcdefg'), np.ones((7, 2, 2), np.uint8))}",
    "(np.zeros((5, 0)), np.arange(5) > 2)",
    "np.empty((0, 3), np.float32)",
)


def pipeline(rng: random.Random, depth: int = 6) -> Pipeline:
    """Draw a pipeline that can be built and ends.

    Parameters
    ----------
    rng : random.Random
        The generator of the choices.
    depth : int
        How many steps at most; other inputs of a step and inner datasets are less deep.

    Examples
    --------
    >>> import random
    >>> str(pipeline(random.Random(8), 3)) == str(pipeline(random.Random(8), 3))
    True
    """
    steps = rng.randint(min(2, depth), depth)
    return _longer(Pipeline(_source(rng)), rng, steps, _outcomes, MOST)


def _inner(rng: random.Random, depth: int) -> Pipeline:
    """Draw the pipeline of an inner dataset ``X``."""
    # Of one kind, since the steps that may follow are found from a few examples.
    first = Pipeline("X", (Step(f".map(Become({rng.choice(KINDS)!r}))"),))
    return _longer(first, rng, rng.randint(0, depth), _outcomes_inside, FEW)


def _longer(
    drawn: Pipeline,
    rng: random.Random,
    steps: int,
    outcomes: Callable[[Pipeline], int],
    most: int,
) -> Pipeline:
    for left in reversed(range(steps)):
        longer = drawn.then(_step(rng, left, drawn))
        try:
            count = outcomes(longer)
        except SpecError:
            continue  # a step that this dataset does not allow, shuffle(None) of a stream, ...
        if count > most or (not count and rng.random() < 0.7):  # little is seen without elements
            continue
        drawn = longer
    return drawn


def _outcomes(drawn: Pipeline) -> int:
    if "folder()" in str(drawn) and "Quit(" in str(drawn):
        raise SpecError("not all that is raised comes back from a file as it was")
    if "folder()" in str(drawn) and drawn.steps[-1].text.startswith(".shuffle(None"):
        raise SpecError("there is no random access before all stands in files")
    made = drawn.build()
    if drawn.steps and drawn.steps[-1].text.startswith(".shuffle(None"):
        made.iterator(workers=0).close()  # of files it is known only when they are looked at
    return len(drawn.build(Model).outcomes(limit=MOST + 1))


def _outcomes_inside(drawn: Pipeline) -> int:
    if drawn.steps[-1].text.startswith(".shuffle(None"):
        raise SpecError("some inner datasets have random access, others have none")
    if "folder()" in str(drawn) or "saved(" in str(drawn):
        raise SpecError("whoever reads an inner dataset would make a folder of his own")
    for n in range(5):
        drawn.build(X=Dataset.range(n))
        drawn.build(X=Dataset.range(n).filter(bool))
    return len(drawn.build(Model, X=Model.range(4)).outcomes(limit=FEW + 1))


def _source(rng: random.Random) -> str:
    n = rng.choice((0, 1, 2, 5, 9, 9, 16, 16, 25, 25))
    return rng.choice(
        (
            f"D.range({n})",
            f"D.range({n})",
            f"D.range({n}, {rng.randint(-9, 30)}, {rng.choice((-3, -1, 2))})",
            f"D.from_tensors({rng.choice(ARRAYS)})",
            f"D.from_tensor_slices({rng.choice(ARRAYS)})",
            f"D.from_source(Records({n}, {rng.choice(KINDS)!r}))",
            f"D.from_source(Given({n}, {_value(rng)}))",
            f"D.from_list(given({n + 1}, {_value(rng, WHOLE)}))",
            f"D.from_generator(Emit({n}, {n}{rng.choice(('', '', ', 3'))}))",
            f"D.counter({n}, {rng.choice((-3, 0, 2))}).take({n})",
            f"D.random(seed={n}).take({n})",
            f"D.load(saved(D, {n}))",
            f"D.from_list({[[k] * (k % 3 + 1) for k in range(n + 1)]})",
            f"D.list_files(FILES, {rng.choice(('shuffle=False', f'seed={n}'))})",
            f"D.from_source(Kept({n}, {rng.choice((*KINDS, 'box'))!r}))",
            f"D.from_list(list(Kept({n + 1}, {rng.choice(('box', 'struct', 'arrays', 'dict'))!r})))",
            f"D.from_generator(Poured({n}, {rng.random() < 0.3}))",
            *[reading.source(rng) for _ in range(3)],
            tables.source(rng),
        )
    )


def _value(rng: random.Random, kinds: tuple[str, ...] = tuple(VALUES)) -> str:
    """Draw a kind of value, and the nest that contains it."""
    return f"{rng.choice(kinds)!r}, {rng.choice(WITHIN)!r}"


def _step(rng: random.Random, depth: int, drawn: Pipeline) -> Step:
    """Draw a step, then its other pipelines."""
    asked = 0

    def other() -> str:
        nonlocal asked
        asked += 1
        return f"<other {asked}>"

    choices = _own_steps(rng, drawn.steps[-1].text if drawn.steps else "", other)
    for family in FAMILIES:
        choices |= family.steps(rng, other)
    text = rng.choices(list(choices), list(choices.values()))[0]
    parts = []
    for number, found in enumerate(re.findall(r"<(?:other|inner) \d+>", text)):
        is_inner = found.startswith("<inner")
        text = text.replace(found, f"<{number}!r>" if is_inner else f"<{number}>")
        parts.append(_inner(rng, min(depth, 3)) if is_inner else pipeline(rng, depth))
    return Step(text, tuple(parts))


def _own_steps(rng: random.Random, last: str, other: Callable[[], str]) -> dict[str, int]:
    k, seed, few = rng.randint(1, 9), rng.randint(0, 5), rng.randint(1, 4)
    policy = rng.choice(("", "", ", on_error='skip'", ", on_error='retry', retries=1"))
    within = f"Within(D, {k}, <inner 0>)"
    view = rng.random() < 0.5
    keeping = (
        f"Filled({k}, {view})",
        f"Filled({k}, kind={rng.choice(KINDS)!r})",
        f"Pooled({k}, {view})",
        f"Global({k})",
        f"Reused({k})",
        f"Boxed({k})",
    )
    changing = (f"Changed({k})", f"Spoiled({rng.choice(KINDS)!r})")
    return {
        f".map({rng.choice(keeping)})": 4,
        f".map({rng.choice(changing)})": 3,
        f".map(Tag({k}))": 2,
        f".map(Configured({k}))": 2,
        f".map(Become({rng.choice(KINDS)!r}))": 4,
        f".map(Give({_value(rng)}))": 3,
        f".map(Draw({k}), seed={seed})": 4,
        f".map(Fail({k}, {rng.choice((5, 30))}, {view}){policy})": 2,
        f".map(Uneven({k}), output_signature=ArraySpec([{rng.choice((None, 3))}], np.int16){policy})": 1,
        f".map(Quit({k}, {rng.choice((5, 30))}){policy})": 1,
        f".filter(Quit({k}, 20, Keep({few})){policy})": 1,
        f".flat_map(Quit({k}, 20, Inner(D, {few})))": 1,
        f".filter(Keep({k}))": 2,
        f".filter(Keep({k}, 70, 10){policy})": 1,
        f".flat_map(Inner(D, {k}))": 2,
        f".flat_map({within})": 2,
        f".interleave({within}, {few}, {rng.randint(1, 3)})": 2,
        f".group_by_window(Key({k}, 3), {within}, {few})": 1,
        f".window({few}).flat_map({within})": 1,
        f".enumerate({seed})": 1,
        f".batch({few}, drop_remainder={rng.random() < 0.3})": 4,
        ".unbatch()": 5 if "batch" in last else 1,
        f".shuffle({rng.choice((1, 3, 8, 40))}, seed={seed})": 3,
        f".shuffle({few}, seed={seed}, reshuffle_each_iteration=False)": 1,
        f".shuffle(None, seed={seed})": 3,
        f".repeat({rng.choice((0, 1, 2, 2, 3))})": 2,
        f".take(2).map(Draw({k}), seed={seed}).filter(Keep({k}, 30)).repeat(5)": 1,
        f".repeat().take({rng.randint(1, 40)})": 1,
        f".shard({few}, {rng.randrange(few)})": 1,
        f".shard_by_process(InputContext({few}, {rng.randrange(few)}))": 1,
        f".skip({rng.choice((-1, 1, 2, 5))})": 1,
        f".take({rng.choice((-1, 3, 8, 20))})": 1,
        f".prefetch({few})": 1,
        ".cache()": 1,
        f".concatenate({other()})": 1,
        f"D.zip(@, {other()})": 1,
        f"D.zip({{'a': {other()}, 'b': (@,)}})": 1,
    }
