"""An object like an array is an array, and a table a dict of its columns, once and for every number of workers."""

from __future__ import annotations

import array
from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.newer import STRING_DTYPE

import tundish as td
from tundish.errors import SpecError
from tundish.testing.compare import collect, difference, digest
from tundish.testing.model import Model
from tundish.testing.values import VALUES, Give, Like


def delivered(ds: td.Dataset, workers: int = 0) -> list[Any]:
    with ds.iterator(workers=workers) as it:
        return list(it)


@pytest.mark.parametrize("kind", VALUES)
def test_values_are_what_the_reference_says_in_every_batch(kind: str) -> None:
    tails: list[Callable[[Any], Any]] = [
        lambda d: d.batch(2),
        lambda d: d.padded_batch(2),
        lambda d: d.ragged_batch(2),
        lambda d: d.window(2).flat_map(_batched),
        lambda d: d.cache().repeat(2),
    ]
    for within in ("", "both"):
        for tail in tails:

            def made(d: Any, tail: Any = tail, within: str = within) -> Any:
                return tail(d.range(5).map(Give(kind, within)))

            with made(td.Dataset).iterator(workers=0) as it:
                found = collect(it, exact=False)
            assert difference(made(Model).outcomes(), found) is None


@pytest.mark.parametrize("tail", ["", "batch", "unbatch"])
@pytest.mark.parametrize("kind", VALUES)
def test_values_of_workers_are_those_of_this_process(kind: str, tail: str) -> None:
    ds = td.Dataset.range(16).map(Give(kind))
    if tail:
        ds = ds.batch(4)
    if tail == "unbatch":
        ds = ds.unbatch()
    with ds.iterator(workers=0) as here, ds.iterator(workers=2) as there:
        assert difference(collect(here, exact=False), collect(there, exact=False)) is None


def _batched(window: Any) -> Any:
    return window.batch(2) if hasattr(window, "batch") else window["v"][0].batch(2)


def test_of_workers_comes_what_comes_without() -> None:
    ds = td.Dataset.range(8).map(lambda i: {"a": Like(np.arange(3) + int(i)), "b": (i.tobytes(),)})
    ds = ds.map(lambda x: (memoryview(x["b"][0]), x["a"])).padded_batch(3)

    assert list(map(digest, delivered(ds, 2))) == list(map(digest, delivered(ds)))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_array_like_is_an_array_for_the_next_function(workers: int) -> None:
    ds = td.Dataset.range(3).map(lambda i: Like(np.full(2, i))).map(lambda x: x.sum() * 2)

    assert delivered(ds, workers) == [0, 4, 8]


def test_buffers_are_arrays_of_their_format() -> None:
    (found,) = delivered(td.Dataset.from_tensors((array.array("i", [1]), memoryview(b"ab"))))

    assert found[0].dtype == np.int32
    assert found[1].tolist() == [97, 98]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Like(TypeError("it is on a device")), "cannot become one: TypeError: it is on a device"),
        (Like([1]), "must return a numpy array, not list"),
        (pa.array([1, None, None]), "2 of 3 values of a pyarrow Int64Array are missing"),
        (Like(np.ma.masked_equal([1, 2], 2)), "1 of 2 values of a masked array are masked"),
        (pa.table([[1], [2]], names=["x", "x"]), r"several columns: \[\"'x'\"\]; rename"),
    ],
)
def test_what_cannot_become_an_array_is_its_element_s_error(value: Any, words: str) -> None:
    for workers in (0, 1):
        with td.Dataset.range(2).map(lambda i: 7 if i else value).iterator(workers=workers) as it:
            with pytest.raises(SpecError, match=words):
                next(it)
            assert next(it) == 7


class Described:
    """A description of an array, as JAX has them: it can be none."""

    dtype, shape = np.dtype("i8"), (2,)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_object_that_only_describes_an_array_is_none(workers: int) -> None:
    ds = td.Dataset.range(4).map(lambda i: Described() if i == 1 else np.zeros(2, "i8"))

    assert [type(x) for x in delivered(ds, workers)][:2] == [np.ndarray, Described]
    with ds.batch(2).iterator(workers=workers) as it:
        with pytest.raises(SpecError, match=r"is object, its first element is int64 \(2,\)"):
            next(it)
        assert next(it).shape == (2, 2)


def test_what_is_missing_is_nan_among_floats_as_in_files() -> None:
    (found,) = delivered(td.Dataset.from_tensors(pa.array([0.5, None])))

    assert found[0] == 0.5
    assert np.isnan(found[1])


def test_a_table_is_a_dict_of_its_columns_wherever_it_stands() -> None:
    table = pa.table({"x": [1, 2, 3], "y": ["a", "b", "c"]})
    rows = [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}, {"x": 3, "y": "c"}]

    assert delivered(td.Dataset.from_tensor_slices(table)) == rows
    assert delivered(td.Dataset.from_source(table)) == rows
    assert delivered(td.Dataset.from_list([table]).unbatch()) == rows
    assert delivered(td.Dataset.range(3).map_batches(lambda _: table, 3)) == rows
    (nested,) = delivered(td.Dataset.from_tensor_slices({"t": table, "n": [7, 8, 9]}).take(1))
    assert nested == {"t": rows[0], "n": 7}


def test_unequal_shapes_name_the_operators_that_take_them() -> None:
    ds = td.Dataset.range(1, 3).map(lambda i: {"x": np.zeros(i)}).batch(2)

    for workers in (0, 1):
        with (
            ds.iterator(workers=workers) as it,
            pytest.raises(SpecError, match="padded_batch pads"),
        ):
            next(it)


def test_pandas() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"x": [1, 2], "y": ["a", "b"]}, index=[5, 6])

    assert delivered(td.Dataset.from_source(frame)) == [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]
    ds = td.Dataset.range(4).map(lambda i: pd.Series(np.arange(6) + int(i))).batch(2)
    assert [batch.tolist() for batch in delivered(ds)] == [
        [[k + i for i in range(6)] for k in (n, n + 1)] for n in (0, 2)
    ]
    for series, missing in ((pd.Series([1, None], dtype="Int64"), 1), (pd.Series(["a", None]), 1)):
        with pytest.raises(SpecError, match=f"{missing} of 2 values of a pandas Series"):
            td.Dataset.from_tensors(series)


def test_polars() -> None:
    pl = pytest.importorskip("polars")

    assert delivered(td.Dataset.from_source(pl.DataFrame({"x": [1, 2]}))) == [{"x": 1}, {"x": 2}]
    with pytest.raises(SpecError, match="1 of 2 values of a polars Series are missing"):
        td.Dataset.from_tensors(pl.Series([1, None]))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_dict_of_another_class_is_a_dict(workers: int) -> None:
    ordered = td.Dataset.range(4).map(lambda i: OrderedDict(b=i, a=defaultdict(list, c=[i])))
    rows = OrderedDict(b=[0, 1, 2, 3], a={"c": [[0], [1], [2], [3]]})
    for ds in (ordered, td.Dataset.from_tensor_slices(rows)):
        batch = delivered(ds.batch(2), workers)[0]
        assert type(batch) is dict
        assert list(batch) == ["b", "a"]
        assert batch["b"].tolist() == [0, 1]
        assert batch["a"]["c"].tolist() == [[0], [1]]
    with pytest.raises(SpecError, match="arrays with a first dimension"):
        td.Dataset.from_tensor_slices(OrderedDict(a=1))


@pytest.mark.parametrize("workers", [0, 1])
def test_times_in_the_other_byte_order_are_the_machine_s(workers: int) -> None:
    times = np.array([1, 2], ">M8[s]")
    for element in delivered(td.Dataset.range(2).map(lambda _: (times, [times])), workers):
        assert [part.dtype.str for part in element] == [np.dtype("M8[s]").str] * 2


@pytest.mark.parametrize("workers", [0, 1])
def test_numpy_s_texts_in_a_list_are_python_s(workers: int) -> None:
    words, codes = np.array(["a", "b"]), np.array([b"a", b"b"])
    ds = td.Dataset.range(3).map(lambda _: (list(words), [*codes]))

    for element in delivered(ds.take(1), workers):
        assert [set(map(type, part)) for part in element] == [{str}, {bytes}]
    assert delivered(ds.map(lambda names, _: names).unique(), workers)[0].tolist() == ["a", "b"]


def test_bytearrays_in_a_list_are_bytes() -> None:
    for second in (b"cd", b"efg"):
        (found,) = delivered(td.Dataset.from_tensors([bytearray(b"ab"), bytearray(second)]))
        assert found.tolist() == [b"ab", second]


def test_a_mapping_is_no_list_of_its_keys() -> None:
    """Tokenizers return one of a class of their own."""
    encoded = UserDict(ids=[[1, 2], [3, 4]], mask=[True, False])
    rows = [{"ids": [1, 2], "mask": True, "y": 5}, {"ids": [3, 4], "mask": False, "y": 6}]
    sliced = td.Dataset.from_tensor_slices((encoded, [5, 6]))
    found = delivered(sliced.map(lambda x, y: {**x, "ids": x["ids"].tolist(), "y": y}))
    assert [{**x, "ids": x["ids"].tolist()} for x in found] == rows

    kept: Any = [UserDict(a=1), UserDict(a=2)]
    for workers in (0, 1):
        (element,) = delivered(td.Dataset.range(1).map(lambda _: kept), workers)
        assert element.tolist() == kept


@pytest.mark.skipif(STRING_DTYPE is None, reason="numpy 1 has none")
@pytest.mark.parametrize("workers", [0, 1])
def test_texts_of_numpy_s_newer_dtype_are_texts(workers: int) -> None:
    words = np.array(["a", "a longer word", ""], STRING_DTYPE)
    sliced = td.Dataset.from_tensor_slices(words)
    for ds in (sliced, sliced.filter(lambda _: True), td.Dataset.range(3).map(lambda i: words[i])):
        (batch,) = delivered(ds.batch(3), workers)
        assert batch.dtype == object
        assert batch.tolist() == words.tolist()
    (batch,) = delivered(td.Dataset.range(2).map(lambda _: words).batch(2), workers)
    assert batch.dtype == object
    assert batch.tolist() == [words.tolist()] * 2


def test_a_function_that_returns_a_list_of_different_shapes_is_told_of_tuples() -> None:
    ds = td.Dataset.range(1).map(lambda _: [np.zeros(2), np.ones(3)])

    with pytest.raises(SpecError, match="is ragged; a tuple holds arrays of different"):
        next(iter(ds))
