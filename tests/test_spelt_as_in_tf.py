"""Names that code of tf.data uses, moved over by one substitution."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tundish as td
from tundish import data


def test_td_data_has_the_very_objects() -> None:
    assert data is td.data
    assert data.Dataset is td.data.Dataset is td.Dataset
    assert td.data.AUTOTUNE == td.AUTOTUNE
    assert td.data.experimental is td.experimental
    assert {"Dataset", "experimental"} <= set(dir(data))
    with pytest.raises(AttributeError, match=r"'tundish\.data' has no attribute 'DataLoader'"):
        _ = getattr(data, "DataLoader")  # noqa: B009 - a checker would refuse the plain form


def test_td_data_loads_nothing() -> None:
    code = "import sys; from tundish import data; print('numpy' in sys.modules, data.AUTOTUNE)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.split() == ["False", "-1"]


def test_a_tensor_spec_is_an_array_spec() -> None:
    spec = td.TensorSpec((2, None), np.int64, "x")

    assert isinstance(td.Dataset.range(3).element_spec, td.TensorSpec)
    assert spec == td.ArraySpec((2, None), "int64")
    assert (spec.name, td.TensorSpec((3,)).dtype) == ("x", np.float32)
    assert repr(spec) == "ArraySpec(shape=(2, None), dtype=int64)"


@pytest.mark.parametrize(
    "element", [np.ones(2), 1, True, "a", b"b", 1.5, object(), np.array(["a", "b"])]
)
def test_value_type_is_that_of_the_elements(element: Any) -> None:
    ds = td.Dataset.from_tensors(element)
    (made,) = ds

    assert isinstance(made, ds.element_spec.value_type)
    assert ds.element_spec.value_type is not object or type(element) is object


def test_value_type_of_what_is_no_array() -> None:
    windows = td.Dataset.range(3).window(2)

    assert issubclass(td.Dataset, windows.element_spec.value_type)
    assert td.ArraySpec(None, "int64").value_type is np.ndarray
    with iter(windows) as it:
        assert isinstance(it, td.IteratorSpec.from_value(it).value_type)


def ragged(*rows: list[Any]) -> td.Ragged:
    return td.Ragged(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))


def test_to_tensor_fills_up_and_cuts_off() -> None:
    values = ragged([1, 2, 3], [4], [5, 6])

    assert values.to_tensor().tolist() == [[1, 2, 3], [4, 0, 0], [5, 6, 0]]
    assert values.to_tensor(default_value=-1).tolist() == [[1, 2, 3], [4, -1, -1], [5, 6, -1]]
    assert values.to_tensor(shape=[None, 2]).tolist() == [[1, 2], [4, 0], [5, 6]]
    assert values.to_tensor(9, shape=(2, 4)).tolist() == [[1, 2, 3, 9], [4, 9, 9, 9]]
    assert values.to_tensor(shape=(4, None)).tolist()[3] == [0, 0, 0]
    assert values.to_tensor().dtype == np.int64


def test_to_tensor_of_rows_of_arrays_and_of_rows_of_rows() -> None:
    arrays = td.Ragged(np.arange(6.0).reshape(3, 2), np.array([0, 1, 3]))
    assert arrays.to_tensor().tolist() == [[[0, 1], [0, 0]], [[2, 3], [4, 5]]]
    assert arrays.to_tensor(shape=(None, 1, 3)).tolist() == [[[0, 1, 0]], [[2, 3, 0]]]
    assert arrays.to_tensor([7.0, 8.0]).tolist()[0] == [[0, 1], [7, 8]]

    rows: Any = td.Ragged(ragged([1], [2, 3], [4]), np.array([0, 2, 3]))  # type: ignore[arg-type]  # of rows
    assert rows.to_tensor(-1).tolist() == [[[1, -1], [2, 3]], [[4, -1], [-1, -1]]]
    assert rows.to_tensor(shape=(None, 1, 1)).tolist() == [[[1]], [[4]]]


def test_to_tensor_of_text_and_of_nothing() -> None:
    text = td.Ragged(np.array(["a", "b", "c"], object), np.array([0, 2, 3]))
    assert text.to_tensor().tolist() == [["a", "b"], ["c", ""]]
    assert text.to_tensor("-").tolist() == [["a", "b"], ["c", "-"]]
    assert td.Ragged(np.zeros(0), np.array([0])).to_tensor().shape == (0, 0)
    assert td.Ragged(np.zeros(0), np.array([0, 0, 0])).to_tensor().shape == (2, 0)


def test_to_tensor_casts_nothing() -> None:
    with pytest.raises(TypeError, match=r"dtype int64, not float64 \(0\.5\)"):
        ragged([1], [2]).to_tensor(0.5)
    with pytest.raises(ValueError, match="shape must have 2 dimensions, not 3"):
        ragged([1], [2]).to_tensor(shape=(2, 1, 1))
    (batch,) = td.Dataset.from_tensors(ragged([1], [2])).batch(1)
    with pytest.raises(ValueError, match="batch of Ragged"):
        batch.to_tensor()


PLAN = """
import tundish as td
def double(x, by=2):
    return x * by
print(td.Dataset.range({n}).map(double).shuffle(3, seed={seed}).fingerprint())
"""


def test_a_fingerprint_is_that_of_every_process(tmp_path: Path) -> None:
    def of(n: int, seed: int) -> str:
        script = tmp_path / "plan.py"
        script.write_text(PLAN.format(n=n, seed=seed))
        done = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout

    first = of(4, 1)
    assert first == of(4, 1)
    assert len({first, of(5, 1), of(4, 2)}) == 3
    assert 0 <= int(first) < 2**64
    assert type(td.Dataset.range(4).fingerprint()) is np.uint64


def test_a_fingerprint_of_what_has_no_description() -> None:
    with Path(__file__).open() as file, pytest.raises(td.errors.FingerprintError):
        td.Dataset.range(3).map(lambda x: file.read()).fingerprint()
