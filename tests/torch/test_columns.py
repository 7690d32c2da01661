"""Datasets whose columns are known: the batches that torch makes of their samples, and no sample made."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import (  # noqa: E402 - torch first
    ConcatDataset,
    StackDataset,
    Subset,
    TensorDataset,
)
from torch.utils.data import DataLoader as Theirs  # noqa: E402
from torch.utils.data._utils.collate import default_collate_fn_map  # noqa: E402

import tundish as td  # noqa: E402
from tundish.loader.protocols.foreign import columns_of  # noqa: E402
from tundish.loader.protocols.plain import is_plain_tensor  # noqa: E402
from tundish.torch import DataLoader as Ours  # noqa: E402

N = 23
NAMES = [
    *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
]
CHARS = "?bBhHiIlLefdFD"


def tensor(*shape: int, dtype: str = "float32") -> Any:
    random = np.random.default_rng(len(shape))
    return torch.from_numpy(random.integers(0, 100, (N, *shape))).to(getattr(torch, dtype))


def array(*shape: int, char: str = "f") -> np.ndarray:
    return np.random.default_rng(len(shape)).integers(0, 100, (N, *shape)).astype(char)


TABLES: dict[str, Any] = {
    "numbers": lambda: TensorDataset(torch.arange(N)),
    "rows": lambda: TensorDataset(tensor(4), tensor(), tensor(2, 3)),
    "rows without width": lambda: TensorDataset(tensor(0), tensor()),
    "dtypes": lambda: TensorDataset(*[tensor(2, dtype=name) for name in NAMES]),
    "dtypes of numbers": lambda: TensorDataset(*[tensor(dtype=name) for name in NAMES]),
    "a tensor": lambda: tensor(3),
    "an array": lambda: array(3),
    "numbers of an array": array,
    "a subset": lambda: Subset(TensorDataset(tensor(4), tensor()), [5, 3, 3, 22, 0, 9, 8]),
    "a subset by an array": lambda: Subset(TensorDataset(tensor(4)), np.arange(1, N, 2)),
    "a subset by a range": lambda: Subset(TensorDataset(tensor(4)), range(2, 20, 3)),
    "a subset of a subset": lambda: Subset(Subset(tensor(2), [9, 1, 4, 4, 0]), [4, 0, 1]),
    "a stack": lambda: StackDataset(TensorDataset(tensor(2), tensor()), tensor(), array(2)),
    "a stack by name": lambda: StackDataset(x=tensor(2), y=Subset(array(), list(range(N)))),
    "a chain": lambda: ConcatDataset([TensorDataset(tensor(2), tensor()) for _ in range(3)]),
    "a chain by name": lambda: ConcatDataset([StackDataset(a=tensor(), b=array(2))] * 2),
    "a chain of subsets": lambda: ConcatDataset([Subset(tensor(2), [3, 1]), tensor(2)]),
    "a subset of a chain": lambda: Subset(ConcatDataset([tensor(), tensor()]), [30, 1, 45, 22, 23]),
    **{f"arrays of {char}": lambda char=char: array(2, char=char) for char in CHARS},
    **{f"numbers of {char}": lambda char=char: array(char=char) for char in CHARS},
}
"""Whose columns are known."""


class Negated(TensorDataset):  # type: ignore[misc]
    def __getitem__(self, index: int) -> Any:
        return tuple(-part for part in super().__getitem__(index))


class Named(TensorDataset):  # type: ignore[misc]
    """Changes nothing about its samples."""

    name = "a table"


class Together(TensorDataset):  # type: ignore[misc]
    def __getitems__(self, keys: list[int]) -> Any:
        return [tuple(part + 1 for part in self[key]) for key in keys]


class Sized(torch.Tensor):  # type: ignore[misc, name-defined]
    """A tensor of a class of its own."""


def with_own_getitems() -> Any:
    table = TensorDataset(tensor())
    table.__getitems__ = lambda keys: [(-key,) for key in keys]
    return table


OTHERS: dict[str, Any] = {
    "a class with its own samples": lambda: Negated(tensor(2)),
    "a class with its own batches": lambda: Together(tensor(2)),
    "a table with its own batches": with_own_getitems,
    "a gradient": lambda: TensorDataset(tensor(2).requires_grad_()),
    "a class of tensors": lambda: TensorDataset(tensor(2).as_subclass(Sized)),
    "channels last": lambda: TensorDataset(
        tensor(3, 4, 5).contiguous(memory_format=torch.channels_last)
    ),
    "expanded": lambda: TensorDataset(torch.arange(3).expand(N, 3)),
    "every other row": lambda: TensorDataset(torch.arange(4 * N).view(2 * N, 2)[::2]),
    "conjugate": lambda: TensorDataset(tensor(2, dtype="complex64").conj()),
    "rows backwards": lambda: array()[::-1],
    "a chain of other rows": lambda: ConcatDataset([tensor(2), tensor(2, dtype="int64")]),
    "a subset by a tensor": lambda: Subset(TensorDataset(tensor(2)), torch.arange(9)),
    "a subset from behind": lambda: Subset(TensorDataset(tensor(2)), [-1, -2, 3]),
    "a subset of a list": lambda: Subset([1, 2, 3], [2, 0]),
    "a list": lambda: [1.5, 2.5],
}
"""Whose samples are asked for, in some batch at least."""


def batches(face: Any, dataset: Any, **options: Any) -> list[Any]:
    torch.manual_seed(7)
    found = []
    stream = iter(face(dataset, **{"batch_size": 4, "shuffle": True, **options}))
    while True:
        try:
            found.append(bits(next(stream)))
        except StopIteration:
            return found
        except Exception as error:  # noqa: BLE001 - compared
            found.append(type(error).__name__)
            if len(found) > 2 * N:
                return found


def bits(batch: Any) -> Any:
    """All that there is to see of a batch."""
    if isinstance(batch, dict):
        return {key: bits(part) for key, part in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch), [bits(part) for part in batch]
    if not isinstance(batch, torch.Tensor):
        return batch
    told = batch.dtype, tuple(batch.shape), batch.requires_grad, type(batch)
    return told, batch.stride(), str(batch.tolist())


@pytest.mark.parametrize("name", [*TABLES, *OTHERS])
def test_the_batches_are_torchs(name: str) -> None:
    make = {**TABLES, **OTHERS}[name]

    assert batches(Ours, make()) == batches(Theirs, make())


@pytest.mark.parametrize("name", TABLES)
def test_nothing_is_asked_for_samples(name: str) -> None:
    at = np.array([3, 1, 2]) % len(TABLES[name]())
    uint64 = name in {"arrays of L", "numbers of L"}  # torch refuses such numbers

    assert (columns_of(TABLES[name](), at, together=True) is None) == uint64


@pytest.mark.parametrize(
    "name", ["a class with its own samples", "a class with its own batches", "a gradient"]
)
def test_what_is_not_torchs_own_is_asked(name: str) -> None:
    assert columns_of(OTHERS[name](), np.array([1]), together=True) is None


def test_a_class_that_changes_nothing_is_not_asked() -> None:
    assert columns_of(Named(tensor()), np.array([1, 2])) is not None


def test_who_replaces_torchs_own_method_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TensorDataset, "__getitem__", lambda self, index: (torch.tensor(-index),))

    assert batches(Ours, TensorDataset(tensor())) == batches(Theirs, TensorDataset(tensor()))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", ["dtypes", "an array", "a stack by name", "a chain", "a subset"])
def test_workers_make_the_same_batches(name: str, workers: int) -> None:
    here = batches(Ours, TABLES[name]())

    assert batches(Ours, TABLES[name](), num_workers=workers) == here


def test_large_rows_go_into_shared_memory() -> None:
    table = TensorDataset(tensor(3000), tensor(3000, dtype="bfloat16"), tensor())
    here = batches(Ours, table)

    assert here == batches(Theirs, table)
    assert batches(Ours, table, num_workers=2) == here


def by_samples(samples: list[Any]) -> Any:
    """The default rule, which is not known for it."""
    return td.default_collate(samples)


@pytest.mark.parametrize("name", [*TABLES, *OTHERS])
def test_the_loader_without_torch_gives_arrays_of_samples(name: str) -> None:
    dataset = {**TABLES, **OTHERS}[name]()
    order = list(range(len(dataset)))[::-1]
    loader = td.DataLoader(dataset, batch_size=4, sampler=order)
    plain = td.DataLoader(dataset, batch_size=4, sampler=order, collate_fn=by_samples)

    assert list(map(seen, loader)) == list(map(seen, plain))


def seen(batch: Any) -> Any:
    """The types and values of a batch's leaves, tensors among them where numpy lacks the dtype."""
    if isinstance(batch, dict):
        return {key: seen(part) for key, part in batch.items()}
    if isinstance(batch, list):
        return [seen(part) for part in batch]
    return type(batch), getattr(batch, "dtype", None), str(batch)


@pytest.mark.parametrize(
    "keys", [[5, N], [-1, 2], [2, -N - 1], [True, False], [2**70], [np.int64(3), 4], []]
)
@pytest.mark.parametrize("name", ["rows", "a subset", "a stack", "a chain", "an array"])
def test_odd_keys_are_torchs_affair(name: str, keys: list[Any]) -> None:
    def found(face: Any) -> Any:
        return batches(
            face, TABLES[name](), batch_sampler=[[1, 2], keys, [0]], batch_size=1, shuffle=None
        )

    assert found(Ours) == found(Theirs)


def test_an_error_names_the_sample() -> None:
    loader: Any = Ours(TensorDataset(torch.arange(3)), batch_size=2, sampler=[0, 3])

    with pytest.raises(IndexError) as info:
        next(iter(loader))
    assert "sample 1 of the batch, index 3" in info.value.__notes__


def test_a_collate_function_gets_samples() -> None:
    loader: Any = Ours(TensorDataset(torch.arange(4)), batch_size=2, collate_fn=lambda rows: rows)

    assert next(iter(loader)) == [(torch.tensor(0),), (torch.tensor(1),)]


def test_an_added_rule_gets_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        default_collate_fn_map,
        torch.Tensor,
        lambda batch, *, collate_fn_map: Counter(map(int, batch)),
    )
    table = TensorDataset(torch.tensor([2, 2, 5]))

    assert list(Ours(table, batch_size=3)) == [[Counter({2: 2, 5: 1})]]


def test_tensors_that_are_put_into_a_dataset_meanwhile_count() -> None:
    table = TensorDataset(torch.arange(4))
    stream = iter(Ours(table, batch_size=2))
    first = next(stream)
    table.tensors = (torch.arange(4) + 10,)

    assert [first[0].tolist(), next(stream)[0].tolist()] == [[0, 1], [12, 13]]


def test_a_batch_is_nobody_elses() -> None:
    data = torch.arange(4)
    (batch,) = next(iter(Ours(TensorDataset(data), batch_size=4)))
    batch += 1

    assert data.tolist() == [0, 1, 2, 3]
    batch.resize_(8)  # as of a tensor that torch has made


def test_a_state_goes_on_behind_any_batch() -> None:
    def loader() -> Any:
        torch.manual_seed(3)
        return Ours(TensorDataset(torch.arange(N)), batch_size=4, shuffle=True)

    whole = [batch[0].tolist() for batch in loader()]
    for taken in (1, 3):
        broken = loader()
        stream = iter(broken)
        for _ in range(taken):
            next(stream)
        again = loader()
        again.load_state_dict(broken.state_dict())
        assert [batch[0].tolist() for batch in again] == whole[taken:]


def test_a_pipeline_of_a_table_has_the_elements_of_its_samples() -> None:
    for name in ("rows", "a stack by name", "a subset", "a chain", "an array"):
        source = TABLES[name]()
        elements = list(td.Dataset.from_source(source))
        whole = next(iter(td.Dataset.from_source(source).shuffle(None, seed=1).batch(50).unbatch()))
        assert str(whole) in set(map(str, elements))
        td.testing.assert_workers_do_not_show(
            td.Dataset.from_source(source).shuffle(None, seed=1).batch(5)
        )


def test_tensors_of_other_machines_or_layouts_are_not_plain() -> None:
    for other in (torch.zeros(3, device="meta"), torch.zeros(3).to_sparse(), torch.tensor(1)):
        assert not is_plain_tensor(other)
