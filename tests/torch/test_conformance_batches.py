"""Conformance 5 to 8: which samples a batch is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.torch.datasets import Bulk, Listed, Mapped, NotBulk, Numbers
from tests.torch.faces import OURS, Face, epoch, numbers

if TYPE_CHECKING:
    from typing import Any

WORKERS = pytest.mark.parametrize("workers", [0, 2])


@WORKERS
def test_05_no_batches(face: Face, workers: int) -> None:
    samples = [np.arange(3), 7, "seven", (np.float32(2), "two"), {"a": np.ones(2), "b": None}]
    found = list(face(Listed(samples), batch_size=None, num_workers=workers))

    kind = type(found[0])
    assert kind.__name__ == ("Tensor" if face.torch else "ndarray")
    assert found[0].tolist() == [0, 1, 2]
    assert found[1:3] == [7, "seven"], "as they are"
    assert isinstance(found[3], list), "a tuple becomes a list"
    assert found[3][1] == "two"
    assert isinstance(found[4]["a"], kind)
    assert found[4]["b"] is None


@WORKERS
def test_05_no_batches_of_an_iterable(face: Face, workers: int) -> None:
    found = list(face(face.counting(5), batch_size=None, num_workers=min(workers, 1)))

    assert found == [0, 1, 2, 3, 4]
    assert all(type(each) is int for each in found)


@WORKERS
def test_06_many_at_a_time(face: Face, workers: int) -> None:
    assert epoch(face(Bulk(5), batch_size=2, num_workers=workers)) == [[0, -1], [-2, -3], [-4]]
    assert numbers(face(NotBulk(3), batch_size=2, num_workers=workers)) == [0, 1, 2]
    assert epoch(face(Bulk(3), batch_size=None, num_workers=workers)) == [0, 1, 2], "no batches"


@WORKERS
def test_07_keys_of_any_kind(face: Face, workers: int) -> None:
    dataset = Mapped(one=1, two=2, three=3)
    keys = ["three", "one", "two"]

    assert epoch(face(dataset, sampler=keys, batch_size=2, num_workers=workers)) == [[3, 1], [2]]
    assert epoch(face(dataset, sampler=keys, batch_size=None, num_workers=workers)) == [3, 1, 2]


@WORKERS
def test_08_batches_of_any_size(face: Face, workers: int) -> None:
    batches: list[Any] = [[0], (3, 2, 1), [4, 4], range(5, 9)]
    loader = face(Numbers(10), batch_sampler=batches, num_workers=workers)

    assert epoch(loader) == [[0], [3, 2, 1], [4, 4], [5, 6, 7, 8]]
    assert len(loader) == 4
    assert epoch(loader)[0] == [0], "a second epoch"


@WORKERS
def test_08_a_batch_of_many_keys(face: Face, workers: int) -> None:
    loader = face(range(60_000), batch_size=30_000, shuffle=True, num_workers=workers)
    first, second = epoch(loader)

    assert sorted(first + second) == list(range(60_000))


@WORKERS
def test_08_long_keys(face: Face, workers: int) -> None:
    keys = [letter * 300_000 for letter in "abc"]
    dataset = Mapped(dict.fromkeys(keys, 1))

    assert numbers(face(dataset, batch_size=2, sampler=keys, num_workers=workers)) == [1, 1, 1]


@WORKERS
def test_08_the_last_batch(face: Face, workers: int) -> None:
    assert epoch(face(Numbers(5), batch_size=2, num_workers=workers))[-1] == [4]
    assert epoch(face(Numbers(5), 2, drop_last=True, num_workers=workers))[-1] == [2, 3]
    assert epoch(face(Numbers(0), batch_size=2, num_workers=workers)) == []


@WORKERS
def test_08_a_sampler_without_length(face: Face, workers: int) -> None:
    found = numbers(face(Numbers(9), sampler=iter([3, 1, 2]), batch_size=2, num_workers=workers))

    assert found == [3, 1, 2]


class Attached:
    """Gives what is computed from a parameter."""

    def __init__(self, torch: Any) -> None:
        self.weight = torch.nn.Parameter(torch.ones(2))

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return self.weight * index


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("batch_size", [2, None])
def test_08_no_gradient_leads_out_of_a_worker(batch_size: int | None) -> None:
    torch = pytest.importorskip("torch")

    for batch in OURS(Attached(torch), batch_size):
        assert batch.grad_fn is not None, "in one process it does"
    with pytest.raises(RuntimeError, match="detach"):
        next(iter(OURS(Attached(torch), batch_size, num_workers=1)))


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("batch_size", [2, None])
@pytest.mark.parametrize("name", ["complex32", "bfloat16", "float8_e8m0fnu", "float8_e5m2"])
def test_08_tensors_of_dtypes_that_numpy_lacks(name: str, batch_size: int | None) -> None:
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, name, None)
    if dtype is None:
        pytest.skip("this torch has no such dtype")
    samples = [torch.full((3,), 2.0**k).to(dtype) for k in range(4)]

    for here, there in zip(
        OURS(samples, batch_size), OURS(samples, batch_size, num_workers=1), strict=True
    ):
        assert here.dtype == there.dtype == dtype
        assert here.view(torch.uint8).tolist() == there.view(torch.uint8).tolist()


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor", "ignore:TypedStorage")
def test_08_tensors_that_are_more_than_their_numbers() -> None:
    torch = pytest.importorskip("torch")
    conjugate = torch.tensor([1 + 2j]).conj()
    quantized = torch.quantize_per_tensor(torch.ones(2), 0.5, 3, torch.quint8)
    found = list(OURS([conjugate, quantized], None, num_workers=1))

    assert found[0].tolist() == [1 - 2j]
    assert (found[1].q_scale(), found[1].q_zero_point()) == (0.5, 3)
    assert found[1].dequantize().tolist() == [1, 1]
