"""Hugging Face datasets: the batches that torch makes of them, and the elements that they give, in columns where it can be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
datasets = pytest.importorskip("datasets")

from tests.torch.test_columns import batches  # noqa: E402 - torch first
from torch.utils.data import ConcatDataset, StackDataset, Subset  # noqa: E402
from torch.utils.data import DataLoader as Theirs  # noqa: E402

import tundish as td  # noqa: E402
from tundish.loader.protocols.foreign import columns_of  # noqa: E402
from tundish.testing import assert_workers_do_not_show  # noqa: E402
from tundish.torch import DataLoader as Ours  # noqa: E402

N = 40
pytest.importorskip("tqdm").tqdm.monitor_interval = 0  # else a thread watches progress bars
RANDOM = np.random.default_rng(1)
NUMBERS = {
    "a": np.arange(N),
    "b": RANDOM.random(N),
    "c": RANDOM.random(N).astype(np.float32),
    "d": np.arange(N).astype(np.int8),
    "e": np.arange(N).astype(np.uint32),
    "f": RANDOM.random(N).astype(np.float16),
}
WIDE = RANDOM.random((N, 4))
FORMATS = [None, "numpy", "torch"]


def table(data: dict[str, Any] = NUMBERS, form: str | None = "numpy", **options: Any) -> Any:
    return datasets.Dataset.from_dict(data).with_format(form, **options)


def in_pieces(form: str | None) -> Any:
    parts = [datasets.Dataset.from_dict({"x": list(range(k, k + 10))}) for k in range(0, N, 10)]
    return datasets.concatenate_datasets(parts).with_format(form)


PLAIN: dict[str, Any] = {
    "numbers": lambda form: table(form=form),
    "shuffled": lambda form: table(form=form).shuffle(seed=1),
    "selected": lambda form: table(form=form).select([5, 3, 3, 9, 1]),
    "a range of it": lambda form: table(form=form).select(range(4, 20)),
    "some columns": lambda form: table(form=form, columns=["b", "a"]),
    "in pieces": in_pieces,
    "in pieces, shuffled": lambda form: in_pieces(form).shuffle(seed=2),
    "labels": lambda form: table({"y": [0, 1] * 20}, form).cast_column(
        "y", datasets.ClassLabel(names=["n", "p"])
    ),
}
"""Datasets whose rows are taken out of Arrow's memory."""

OTHERS: dict[str, Any] = {
    "text": lambda form: table({"x": list(range(N)), "t": [f"t{k}" for k in range(N)]}, form),
    "text and floats": lambda form: table({"b": NUMBERS["b"], "t": ["t"] * N}, form),
    "gaps": lambda form: table({"x": [None if k % 7 == 6 else k for k in range(N)]}, form),
    "bools": lambda form: table({"x": [k % 3 == 0 for k in range(N)]}, form),
    "large": lambda form: table({"x": np.arange(N).astype(np.uint64) + 2**63}, form),
    "rows": lambda form: table({"x": WIDE}, form),
    "ragged": lambda form: table({"x": [[k] * (k % 3 + 1) for k in range(N)]}, form),
    "fixed rows": lambda form: table({"x": WIDE.reshape(N, 2, 2).tolist()}, form).cast_column(
        "x", datasets.Array2D((2, 2), "float32")
    ),
    "structs": lambda form: table({"x": [{"y": k, "z": "s"} for k in range(N)]}, form),
    "the other columns too": lambda form: table(form=form, columns=["b"], output_all_columns=True),
}


def transformed(_: Any = None) -> Any:
    """Each row told of the others that are asked for with it, as tokenizers pad."""
    return table().with_transform(lambda rows: {"x": [[k] * len(rows["a"]) for k in rows["a"]]})


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", [*PLAIN, *OTHERS])
def test_the_batches_are_torchs(name: str, form: str | None) -> None:
    make = {**PLAIN, **OTHERS}[name]

    assert batches(Ours, make(form)) == batches(Theirs, make(form))


def test_a_transform_is_given_what_torch_gives_it() -> None:
    assert batches(Ours, transformed()) == batches(Theirs, transformed())


@pytest.mark.parametrize("options", [{"dtype": np.float64}, {"dtype": np.int8}])
def test_options_of_a_format_count(options: Any) -> None:
    assert batches(Ours, table(**options)) == batches(Theirs, table(**options))


@pytest.mark.parametrize("name", ["subset", "stack", "chain"])
def test_what_torch_makes_of_several(name: str) -> None:
    made: dict[str, Any] = {
        "subset": lambda: Subset(table(), [4, 2, 0, 9]),
        "stack": lambda: StackDataset(table(), torch.arange(N)),
        "chain": lambda: ConcatDataset([table(), table()]),  # which asks for rows one by one
    }
    assert batches(Ours, made[name]()) == batches(Theirs, made[name]())


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", PLAIN)
def test_rows_are_taken_out_of_memory(
    name: str, form: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = PLAIN[name](form)
    for together in (True, False):
        first = columns_of(dataset, np.array([1, 0]), together=together)
        assert first is not None
        with monkeypatch.context() as patch:
            patch.setattr(datasets.Dataset, "_getitem", None)
            again = columns_of(dataset, np.array([1, 0]), together=together)
        assert str(again) == str(first)


def test_a_format_that_is_set_meanwhile_counts() -> None:
    dataset = table({"b": NUMBERS["b"]})
    stream = iter(Ours(dataset, batch_size=4))
    found = [next(stream)["b"].dtype]
    dataset.set_format(None)
    found.append(next(stream)["b"].dtype)

    assert found == [torch.float32, torch.float64]


def outcomes(ds: Any) -> list[str]:
    found, stream = [], iter(ds)
    for _ in range(len(ds)):
        try:
            found.append(repr(next(stream)))
        except td.errors.SpecError as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", [*PLAIN, *OTHERS])
def test_the_elements_of_a_pipeline_are_its_rows(name: str, form: str | None) -> None:
    dataset = {**PLAIN, **OTHERS}[name](form).select(range(5))
    ds = td.Dataset.from_source(dataset)
    rows = td.Dataset.from_source([dataset[k] for k in range(5)])

    assert outcomes(ds) == outcomes(rows)


@pytest.mark.parametrize(
    "name", ["numbers", "in pieces, shuffled", "bools", "rows", "text and floats"]
)
def test_workers_give_the_same_batches(name: str) -> None:
    # A number by itself keeps its dtype; among others, as workers would ask for them, it has the format's.
    dataset = {**PLAIN, **OTHERS}[name]("numpy")
    ds = td.Dataset.from_source(dataset).shuffle(None, seed=1).batch(4)

    assert_workers_do_not_show(ds, (0, 2))


def test_a_transform_sees_one_row_at_a_time() -> None:
    ds = td.Dataset.from_source(transformed()).batch(4)

    assert [batch["x"].shape for batch in ds] == [(4, 1)] * (N // 4)
    assert_workers_do_not_show(ds, (0, 2))


def test_files_that_are_mapped(tmp_path: Path) -> None:
    path = str(tmp_path / "saved")
    datasets.Dataset.from_dict({"x": np.arange(N)}).save_to_disk(path)
    dataset = datasets.load_from_disk(path).with_format("numpy")

    assert batches(Ours, dataset, num_workers=2) == batches(Theirs, dataset)
    assert_workers_do_not_show(td.Dataset.from_source(dataset).batch(7), (0, 2))


def test_rows_behind_the_end_are_errors_of_its_own() -> None:
    def found(face: Any) -> Any:
        return batches(face, table(), batch_sampler=[[1], [N], [2]], batch_size=1, shuffle=None)

    assert found(Ours) == found(Theirs)
