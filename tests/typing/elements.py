"""The types of elements, for a type checker to check: `tests/typing/test_typing.py` runs mypy over it.

A line with ``type: ignore`` is a wrong use: a checker that accepts it reports the comment as unused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_type

import numpy as np

import tundish as td
from tundish.loader.run.iterator import Iterator


def described(x: np.int64) -> str:
    return f"number {x}"


def drawn(x: np.int64, rng: np.random.Generator) -> float:
    return float(x) * rng.random()


def sources() -> None:
    assert_type(td.Dataset.range(5), td.Dataset[np.int64])
    assert_type(td.Dataset.range(1, 5, 2, output_type=np.float32), td.Dataset[np.float32])
    assert_type(td.Dataset.range(5, output_type="int8"), td.Dataset[Any])
    assert_type(td.Dataset.counter(3), td.Dataset[np.int64])
    assert_type(td.Dataset.counter(0.5, dtype=np.float32), td.Dataset[np.float32])
    assert_type(td.Dataset.random(seed=1), td.Dataset[np.int64])
    assert_type(td.Dataset.list_files("*.txt"), td.Dataset[str])
    assert_type(td.Dataset.from_tensor_slices({"x": [1, 2]}), td.Dataset[Any])
    assert_type(next(iter(td.TFRecordDataset("file"))), bytes)
    table = td.ParquetDataset("file")
    assert_type(next(iter(table)), Any)


def functions() -> None:
    numbers = td.Dataset.range(5)
    assert_type(numbers.map(described), td.Dataset[str])
    assert_type(numbers.map(described).map(len), td.Dataset[int])
    assert_type(numbers.map(lambda x: f"{x}!"), td.Dataset[str])
    assert_type(numbers.map(drawn, seed=1), td.Dataset[float])
    assert_type(numbers.map(lambda x: {"x": x, "y": described(x)}), td.Dataset[dict[str, Any]])
    assert_type(numbers.flat_map(lambda x: td.Dataset.range(int(x))), td.Dataset[np.int64])
    assert_type(numbers.interleave(lambda x: td.TFRecordDataset(str(x))), td.Dataset[bytes])
    assert_type(numbers.batch(2), td.Dataset[Any])
    assert_type(numbers.map(described).apply(lambda ds: ds.take(2)), td.Dataset[str])


def pairs() -> None:
    numbers, texts = td.Dataset.range(5), td.Dataset.range(5).map(described)
    assert_type(texts.enumerate(), td.Dataset[tuple[np.int64, str]])
    assert_type(td.Dataset.zip(numbers, texts), td.Dataset[tuple[np.int64, str]])
    assert_type(td.Dataset.zip({"x": numbers, "y": texts}), td.Dataset[Any])
    assert_type(texts.enumerate().map(lambda k, text: f"{k}: {text}"), td.Dataset[str])
    assert_type(numbers.concatenate(texts), td.Dataset[np.int64 | str])


def kept() -> None:
    texts = td.Dataset.range(9).map(described)
    texts = texts.filter(lambda text: text != "number 3").skip(1).take(7).shuffle(4, seed=1)
    texts = texts.repeat(2).cache().prefetch(2).shard(2, 0).unique().take_while(bool)
    texts = texts.snapshot("folder").ignore_errors().sort_within(3, len)
    assert_type(texts.with_options(td.Options(workers=2)), td.Dataset[str])


def iterating() -> None:
    texts = td.Dataset.range(5).map(described)
    for text in texts:
        assert_type(text, str)
    assert_type(iter(texts), Iterator[str])
    assert_type(next(texts.iterator(workers=0)), str)
    assert_type(texts.as_numpy_iterator(), Iterator[str])
    assert_type(texts[2], str)
    assert_type(texts.get_single_element(), str)
    for shown in td.progress(texts):
        assert_type(shown, str)


def unnamed(ds: td.Dataset, other: td.Dataset[Any]) -> td.Dataset:
    """Annotations without a type of elements mean any."""
    assert_type(next(iter(ds)), Any)
    assert_type(ds.map(described), td.Dataset[str])
    assert_type(ds.map(lambda x, y: x + y), td.Dataset[Any])
    assert_type(ds.batch(2).take(3), td.Dataset[Any])
    assert_type(ds.enumerate(), td.Dataset[tuple[np.int64, Any]])
    made: Callable[..., Any] = described
    return ds.map(made).concatenate(other)


def wrong() -> None:
    numbers = td.Dataset.range(5)
    texts: td.Dataset[str] = numbers  # type: ignore[assignment]
    texts = numbers.map(drawn)  # type: ignore[arg-type]
    for number in numbers:
        number.upper()  # type: ignore[attr-defined]
    for text in texts.filter(bool).shuffle(3):
        text.astype(int)  # type: ignore[attr-defined]
    numbers.map(3)  # type: ignore[arg-type]
    numbers.mapp(described)  # type: ignore[attr-defined]
    numbers.flat_map(described)  # type: ignore[arg-type]
    numbers.concatenate(numbers, 3)  # type: ignore[arg-type]
