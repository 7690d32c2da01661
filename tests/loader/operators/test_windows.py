"""Datasets as elements: the same as in tf.data, and they cross processes."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
import pytest

import tundish as td
from tundish import ArraySpec, Dataset, DatasetSpec, Options
from tundish.loader.run.starting.inside import in_worker
from tundish.testing import collect
from tundish.testing.functions import OddError

WORKERS = [0, 2]


def inverse(x: Any) -> Any:
    if x == 0:
        raise ValueError("zero", 0)
    return np.float32(1) / x


def some(*values: float) -> Dataset:
    return Dataset.from_tensor_slices(np.array(values, np.float32)).map(inverse)


def outcomes(ds: Dataset, workers: int) -> list[Any]:
    """Return what comes: lists, or the types of errors."""
    found: list[Any] = []
    with ds.iterator(workers=workers) as it:
        while True:
            try:
                found.append(np.asarray(next(it)).tolist())
            except StopIteration:
                return found
            except Exception as error:  # noqa: BLE001 - whatever it is
                found.append(type(error))


@pytest.mark.parametrize("workers", WORKERS)
def test_an_error_that_no_window_uses_is_not_raised(workers: int) -> None:
    """The recorded case ``w_error_in_strided_out_is_ignored``."""
    ds = some(1, 0, 2, 0, 4).window(2, shift=2, stride=2, drop_remainder=True)

    assert outcomes(ds.flat_map(lambda w: w.batch(2)), workers) == [[1.0, 0.5], [0.5, 0.25]]


@pytest.mark.parametrize("workers", WORKERS)
def test_an_error_is_raised_where_its_window_is_read(workers: int) -> None:
    """The recorded case ``err_window_inner_error``."""
    ds = some(1, 0, 2, 4, 5, 8).window(2)
    read = outcomes(ds.flat_map(lambda w: w.batch(2)), workers)

    assert read[0] is ValueError
    assert np.allclose(read[1:], [[0.5, 0.25], [0.2, 0.125]])
    assert outcomes(ds.map(lambda w: w.cardinality()), workers) == [2, 2, 2]
    with ds.iterator(workers=workers) as it, iter(next(it)) as window:
        assert next(window) == 1
        with pytest.raises(ValueError, match="zero") as caught:
            next(window)
    assert caught.value.args == ("zero", 0)
    assert any("map#1, element 1" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("workers", WORKERS)
def test_windows_can_be_read_many_times(workers: int) -> None:
    """The recorded case ``w_reusable``."""
    ds = Dataset.range(4).window(2).flat_map(lambda w: w.concatenate(w))

    assert outcomes(ds, workers) == [0, 1, 0, 1, 2, 3, 2, 3]


@pytest.mark.parametrize("workers", WORKERS)
def test_components(workers: int) -> None:
    """The recorded cases ``w_dict``, ``window_zip_components`` and ``window_of_window``."""
    rows = Dataset.from_tensor_slices({"a": [1, 2, 3], "b": [4, 5, 6]})
    with rows.window(2).iterator(workers=workers) as it:
        found = [{k: [int(x) for x in w] for k, w in each.items()} for each in it]
    assert found == [{"a": [1, 2], "b": [4, 5]}, {"a": [3], "b": [6]}]

    pairs = Dataset.from_tensor_slices(([1, 2, 3, 4], [5, 6, 7, 8])).window(2, drop_remainder=True)
    zipped = pairs.flat_map(lambda a, b: Dataset.zip(a.batch(2), b.batch(2)))
    assert outcomes(zipped, workers) == [[[1, 2], [5, 6]], [[3, 4], [7, 8]]]

    nested = Dataset.range(6).window(2).window(2)
    flat = nested.flat_map(lambda w: w.flat_map(lambda v: v.batch(2)))
    assert outcomes(flat, workers) == [[0, 1], [2, 3], [4, 5]]


def test_it_pulls_no_more_than_a_window_needs() -> None:
    """The recorded case ``window_pulls_ahead``."""
    pulled = []

    def numbers() -> Iterator[int]:
        for i in range(10):
            pulled.append(i)
            yield i

    with iter(Dataset.from_generator(numbers).window(3, shift=1)) as it:
        next(it)
        assert len(pulled) == 3
        next(it)
        assert len(pulled) == 4
    pulled.clear()
    with iter(Dataset.from_generator(numbers).window(2, shift=4, stride=2)) as it:
        next(it)
        assert len(pulled) == 3


@pytest.mark.parametrize("workers", WORKERS)
def test_an_element_of_another_structure_is_an_error_in_its_window(workers: int) -> None:
    ds = Dataset.range(3).map(lambda x: (x, x) if x == 1 else x).window(3)
    with ds.iterator(workers=workers) as it:
        told = [str(outcome) for outcome in collect(iter(next(it)))]

    assert told[0] == "np.int64(0)"
    assert "the element has the structure (*, *), the window *" in told[1]
    assert told[2] == "np.int64(2)"


def test_a_window_cannot_change_another() -> None:
    ds = Dataset.range(3).map(lambda x: np.full(2, x)).window(2, shift=1)
    first, second, _ = ds
    for row in first:
        row.fill(100)  # ours: a copy

    assert [x.tolist() for x in second] == [[1, 1], [2, 2]]
    changing = ds.map(lambda w: w.map(lambda row: row.__iadd__(1)).take(1))
    with pytest.raises(ValueError, match="read-only"):
        next(iter(next(iter(changing))))


def reads(w: Any) -> dict[str, Any]:
    """Return what a function sees that reads the dataset it is given."""
    before = len(psutil.Process().children())
    parallel = [int(x) for x in w.map(abs, num_parallel_calls=2)]
    with w.with_options(Options(workers=2)).iterator() as it:
        pids = len(it.worker_pids())
    return {
        "batches": len(list(w.batch(2))),
        "sum": w.reduce(0, lambda a, b: a + b),
        "list": [int(x) for x in w],
        "parallel": parallel,
        "inside": in_worker(),
        "pids": pids,
        "children": len(psutil.Process().children()) - before,
    }


@pytest.mark.parametrize("executor", ["process", "thread"])
def test_functions_in_workers_read_them_in_process(executor: str) -> None:
    ds = Dataset.range(9).window(3).map(reads)
    with ds.iterator(workers=2, executor=executor) as it:
        found = list(it)

    assert [x["list"].tolist() for x in found] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert [x["parallel"].tolist() for x in found] == [x["list"].tolist() for x in found]
    assert [int(x["sum"]) for x in found] == [3, 12, 21]
    assert all(x["batches"] == 2 and x["inside"] for x in found)
    assert not any(x["pids"] for x in found)
    assert executor == "thread" or not any(x["children"] for x in found)


@pytest.mark.parametrize("workers", WORKERS)
def test_they_travel_with_their_arrays_and_functions(workers: int) -> None:
    offset = np.arange(20_000)
    ds: Dataset = Dataset.range(4).map(lambda n: Dataset.range(n).map(lambda x: offset + x + n))
    ds = ds.map(lambda inner: (inner, inner.batch(2))).shuffle(3, seed=1)
    with ds.iterator(workers=workers) as it:
        sums = sorted(sum(int(x[0]) for x in one) for one, _ in it)

    assert sums == [0, 1, 5, 12]


def yields() -> Iterator[Dataset]:
    for n in range(3):
        yield Dataset.range(n).map(doubled)


def doubled(x: Any) -> Any:
    return 2 * x


@pytest.mark.parametrize("workers", WORKERS)
def test_a_generator_may_yield_them(workers: int) -> None:
    ds = Dataset.from_generator(yields).map(lambda w: w.reduce(0, lambda a, b: a + b))

    assert outcomes(ds, workers) == [0, 0, 2]


@pytest.mark.parametrize("workers", WORKERS)
def test_a_batch_of_them_is_an_array_of_objects(workers: int) -> None:
    with Dataset.range(6).window(2).batch(2).iterator(workers=workers) as it:
        found = [[[int(x) for x in w] for w in batch] for batch in it]

    assert found == [[[0, 1], [2, 3]], [[4, 5]]]


def odd(n: Any) -> Any:
    error = OddError(int(n), hint="odd")
    error.add_note("where it was")
    raise error


def test_a_failed_element_of_a_window_crosses_with_its_error() -> None:
    with Dataset.range(3).map(odd).window(3).flat_map(itself).iterator(workers=2) as it:
        for at in range(3):
            with pytest.raises(OddError) as told:
                next(it)
            assert told.value.args == (at, "odd")
            assert "where it was" in told.value.__notes__


def itself(window: Any) -> Any:
    return window


def test_a_window_that_was_read_is_freed_at_once() -> None:
    made: list[weakref.ref[Any]] = []

    def array(n: Any) -> Any:
        made.append(weakref.ref(found := np.full(8, n)))
        return found

    windows = Dataset.range(50).map(array).window(5, shift=1)
    gc.collect()
    gc.disable()
    try:
        with windows.flat_map(lambda window: window.batch(5)).iterator(workers=0) as batches:
            for _ in batches:
                assert sum(array() is not None for array in made) <= 7
    finally:
        gc.enable()


# -- arguments, counts and states ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ({"size": 0}, ValueError, "size must be at least 1, not 0"),
        ({"size": 2, "shift": 0}, ValueError, "shift must be at least 1, not 0"),
        ({"size": 2, "stride": -1}, ValueError, "stride must be at least 1, not -1"),
        ({"size": 2.0}, TypeError, "size must be an int, not float"),
        ({"size": 2, "shift": True}, TypeError, "shift must be an int, not bool"),
    ],
)
def test_arguments(arguments: dict[str, Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        Dataset.range(3).window(**arguments)


@pytest.mark.parametrize("n", [0, 1, 2, 5, 10, 11])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("shift", [None, 1, 2, 5])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("drop", [False, True])
def test_the_cardinality_is_what_comes(
    n: int, size: int, shift: int | None, stride: int, drop: bool
) -> None:
    ds = Dataset.range(n).window(size, shift, stride, drop)

    assert ds.cardinality() == len(list(ds))


def test_cardinality_as_in_tf_data() -> None:
    """The recorded case ``w_card``."""
    found = [
        Dataset.range(5).window(2, shift=2),
        Dataset.range(5).window(2, shift=2, drop_remainder=True),
        Dataset.range(10).window(3, shift=1),
        Dataset.range(10).window(3, shift=1, stride=2, drop_remainder=True),
    ]

    assert [ds.cardinality() for ds in found] == [3, 2, 10, 6]
    endless = Dataset.range(5).repeat().window(2)
    assert endless.cardinality() == td.INFINITE_CARDINALITY
    unknown = Dataset.range(5).filter(bool).window(2)
    assert unknown.cardinality() == td.UNKNOWN_CARDINALITY


def test_specs() -> None:
    rows = {"x": np.zeros((4, 2), np.float32), "y": np.arange(4)}
    ds = Dataset.from_tensor_slices(rows).window(2)

    x, y = DatasetSpec(ArraySpec((2,), "float32")), DatasetSpec(ArraySpec((), "int64"))
    assert ds.element_spec == {"x": x, "y": y}
    assert ds.map(lambda w: w["x"]).element_spec == x
    assert Dataset.range(4).window(2).window(2).element_spec == DatasetSpec(y)
    empty = Dataset.range(1).map(lambda _: (Dataset.range(0).map(abs), 1))
    assert empty.element_spec == (DatasetSpec(), ArraySpec((), "int64"))


def test_a_dataset_is_an_element_that_counts_no_iterations() -> None:
    inner = Dataset.range(9).shuffle(9, seed=1)
    (one,) = Dataset.from_tensors(inner)

    assert [int(x) for x in inner] != [int(x) for x in inner]
    assert [int(x) for x in one] == [int(x) for x in one]
    again = pickle.loads(pickle.dumps(one))
    assert [int(x) for x in again] == [int(x) for x in again] == [int(x) for x in one]


def test_a_list_of_datasets_is_an_array_of_them() -> None:
    (pair,) = Dataset.from_tensors([Dataset.range(2), Dataset.range(2)])

    assert pair.dtype == object
    assert [[int(x) for x in ds] for ds in pair] == [[0, 1], [0, 1]]


def test_an_output_signature_may_hold_datasets() -> None:
    spec = DatasetSpec(ArraySpec((), "int64"))
    ds = Dataset.range(3).map(Dataset.range, output_signature=spec)

    assert ds.element_spec == spec
    assert [len(x) for x in ds] == [0, 1, 2]
    with pytest.raises(td.errors.SpecError, match="DatasetSpec"):
        list(Dataset.range(3).map(int, output_signature=spec))
    with pytest.raises(TypeError, match="output_signature holds ArraySpec and DatasetSpec"):
        Dataset.range(3).map(int, output_signature=int)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_output_signature_may_have_its_keys_in_another_order(workers: Any) -> None:
    spec = {"a": ArraySpec((), "int64"), "b": (ArraySpec((), "float64"), ArraySpec((), "int64"))}
    ds = Dataset.range(2).map(lambda i: {"b": (0.5, i), "a": i}, output_signature=spec)
    with ds.iterator(workers=workers) as it:
        assert [list(element) for element in it] == [["a", "b"]] * 2
    with pytest.raises(td.errors.SpecError, match=r"at \['a'\]"):
        list(Dataset.range(2).map(lambda i: {"b": (0.5, i), "a": 0.5}, output_signature=spec))


def test_repr() -> None:
    assert repr(Dataset.range(4).window(3)) == (
        "<Dataset range(start=0, stop=4, step=1) -> "
        "window(size=3, shift=3, stride=1, drop_remainder=False); 2 elements>"
    )
    (first, _) = Dataset.range(4).window(3)
    assert repr(first) == "<Dataset elements(count=3); 3 elements>"
