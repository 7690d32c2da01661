"""Conformance 9 to 15: how samples become a batch."""

from __future__ import annotations

import os
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pytest
from tests.torch.datasets import Backwards, Listed, Numbers, as_it_is, as_list, told
from tests.torch.faces import Face, alike, epoch
from tests.torch.samples import Box, Colour, Pair, Record, Row

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore:The given NumPy array is not writable:UserWarning")
WORKERS = pytest.mark.parametrize("workers", [0, 1])


def fixed(array: Any) -> Any:
    """An array that cannot be written to."""
    array.flags.writeable = False
    return array


COLLATED: dict[str, list[Any]] = {
    "ints": [1, -2, 2**62],
    "bools": [True, False],
    "floats": [0.1, 2.0, float("nan")],
    "an enum": [Colour.RED, Colour.BLUE],
    **{f"numpy's {kind}": [np.dtype(kind).type(1)] * 2 for kind in "?bBhHiIlefd"},
    "numpy's text": [np.str_("a"), np.str_("b")],
    **{f"arrays of {kind}": [np.ones((2, 3), kind)] * 3 for kind in ("f2", "f4", "u2", "i8", "?")},
    "arrays of complex": [np.array([1 + 2j, 3])] * 2,
    "arrays without dimensions": [np.array(1.5), np.array(2.5)],
    "empty arrays": [np.ones((0, 3))] * 2,
    "read-only arrays": [fixed(np.arange(3)), fixed(np.arange(3))],
    "strided arrays": [np.arange(12).reshape(3, 4)[:, ::2]] * 2,
    "text": ["a", "bc"],
    "bytes": [b"a", b""],
    "tuples": [(1, 2.5), (3, 4.5)],
    "named tuples": [Pair(1, "a"), Pair(2, "b")],
    "lists": [[1, 2], [3, 4]],
    "lists of their own": [Row([1, 2]), Row([3, 4])],
    "deques": [deque([1, 2]), deque([3, 4])],
    "ranges": [range(2), range(2)],
    "bytearrays": [bytearray(b"ab"), bytearray(b"cd")],
    "dicts": [{"a": 1, "b": [2, 3]}, {"a": 4, "b": [5, 6]}],
    "dicts with keys of any kind": [{1: 2, (3, 4): 5}, {1: 6, (3, 4): 7}],
    "nests": [{"x": (np.ones(2), {"y": Pair(1, [2.0])})}] * 2,
    "tuples of nothing": [(), ()],
    "dicts of nothing": [{}, {}],
}

REFUSED: dict[str, tuple[Any, str]] = {
    "nothing": ([None, None], "NoneType"),
    "complex numbers": ([1j, 2j], "complex"),
    "decimals": ([Decimal(1), Decimal(2)], "decimal.Decimal"),
    "sets": ([{1}, {2}], "set"),
    "records": ([Record(1), Record(2)], "Record"),
    "arrays of text": ([np.array(["a"]), np.array(["b"])], "batch must contain"),
    "arrays of bytes": ([np.array([b"a"]), np.array([b"b"])], "batch must contain"),
    "arrays of objects": ([np.array([None]), np.array([None])], "batch must contain"),
    "arrays of dates": ([np.array(["2020-01-01"], "M8[D]")] * 2, r"datetime64|M8"),
    "lists that differ": ([[1], [1, 2]], "each element in list of batch should be of equal size"),
    "shapes that differ": (
        [np.ones((2, 3)), np.ones((2, 4))],
        r"(equal size|resize storage|shape)",
    ),
    "large numbers": ([2**63, 2**64], "(?i)overflow"),
    "arrays that run backwards": (Backwards([np.arange(3)] * 2), "stride"),
    "arrays of the other end": ([np.arange(3).astype(">i4")] * 2, "byte order"),
}


NUMPY_TAKES = {"arrays of dates", "arrays that run backwards", "arrays of the other end"}


@WORKERS
@pytest.mark.parametrize("row", COLLATED)
def test_09_the_table(face: Face, row: str, workers: int) -> None:
    samples = COLLATED[row]
    found = list(face(Listed(samples), batch_size=len(samples), num_workers=workers))
    wanted = torch.utils.data.default_collate(samples)

    assert len(found) == 1
    assert alike(found[0], wanted), (found[0], wanted)


@WORKERS
@pytest.mark.parametrize("row", REFUSED)
def test_09_what_the_table_refuses(face: Face, row: str, workers: int) -> None:
    samples, message = REFUSED[row]
    if row in NUMPY_TAKES and not face.torch:
        return
    dataset = samples if isinstance(samples, Listed) else Listed(samples)
    loader = face(dataset, batch_size=2, num_workers=workers)
    with pytest.raises(Exception) as theirs:  # noqa: PT011 (whatever torch raises)
        torch.utils.data.default_collate([dataset[0], dataset[1]])

    with pytest.raises(theirs.type, match=message):
        list(loader)


TENSORS: dict[str, list[Any]] = {
    "tensors": [torch.ones(2, 3), torch.zeros(2, 3)],
    "half a precision": [torch.ones(2, dtype=torch.float16)] * 2,
    "transposed tensors": [torch.arange(6).reshape(2, 3).T] * 2,
    "tensors with a gradient": [torch.ones(2, requires_grad=True)] * 2,
    "tensors among others": [(torch.ones(2), 1, "a"), (torch.zeros(2), 2, "b")],
    "empty tensors": [torch.ones(0)] * 2,
    "numbers as tensors": [torch.tensor(1), torch.tensor(2)],
}


@WORKERS
@pytest.mark.parametrize("row", TENSORS)
def test_09_tensors(torch_face: Face, row: str, workers: int) -> None:
    samples = [
        sample.detach() if isinstance(sample, torch.Tensor) and workers else sample
        for sample in TENSORS[row]
    ]
    loader = torch_face(Listed(samples), batch_size=2, num_workers=workers)
    (found,), wanted = list(loader), torch.utils.data.default_collate(samples)

    if isinstance(found, torch.Tensor):
        assert torch.equal(found, wanted)
        assert (found.dtype, found.requires_grad) == (wanted.dtype, wanted.requires_grad)
    else:
        assert alike(found, wanted)


@WORKERS
def test_09_bfloat16_and_others_that_numpy_lacks(torch_face: Face, workers: int) -> None:
    samples = [torch.ones(3, dtype=torch.bfloat16), torch.zeros(3, dtype=torch.bfloat16)]
    (found,) = list(torch_face(Listed(samples), batch_size=2, num_workers=workers))

    assert found.dtype == torch.bfloat16
    assert torch.equal(found, torch.stack(samples))


@WORKERS
def test_10_text_in_a_tuple_is_a_tuple(face: Face, workers: int) -> None:
    def first(samples: list[Any]) -> Any:
        return next(iter(face(Listed(samples), batch_size=2, num_workers=workers)))

    assert first(["a", "b"]) == ["a", "b"]
    assert first([("a", "x"), ("b", "y")]) == [("a", "b"), ("x", "y")]
    assert first([{"k": "a"}, {"k": "b"}]) == {"k": ["a", "b"]}
    assert first([["a"], ["b"]]) == [("a", "b")]


@WORKERS
@pytest.mark.parametrize(
    "samples", [[1, 2.5], [1.5, 2], [True, 2], [1, True], [np.float32(1), np.float64(2)]]
)
def test_11_the_first_decides(face: Face, samples: list[Any], workers: int) -> None:
    (found,) = list(face(Listed(samples), batch_size=2, num_workers=workers))

    assert alike(found, torch.utils.data.default_collate(samples))


@WORKERS
def test_12_the_keys_of_the_first(face: Face, workers: int) -> None:
    samples = [{"a": 1, "b": 2}, {"b": 3, "a": 4, "c": 5}]
    (found,) = list(face(Listed(samples), batch_size=2, num_workers=workers))

    assert {key: value.tolist() for key, value in found.items()} == {"a": [1, 4], "b": [2, 3]}
    with pytest.raises(KeyError):
        list(face(Listed(samples[::-1]), batch_size=2, num_workers=workers))


@WORKERS
@pytest.mark.parametrize("kind", ["OrderedDict", "defaultdict", "Counter", "Box", "Pair", "Row"])
def test_13_containers_are_kept(face: Face, kind: str, workers: int) -> None:
    make: Any = {
        "OrderedDict": lambda: OrderedDict(b=1, a=2),
        "defaultdict": lambda: defaultdict(list, dict[str, Any](a=1)),
        "Counter": lambda: Counter(a=1),
        "Box": lambda: Box({"a": 1}),
        "Pair": lambda: Pair(1, 2),
        "Row": lambda: Row([1, 2]),
    }[kind]
    (found,) = list(face(Listed([make(), make()]), batch_size=2, num_workers=workers))

    assert type(found) is type(make())
    if hasattr(found, "keys"):
        assert list(found) == list(make()), "the order of the keys"
    if kind == "defaultdict":
        assert found["new"] == []


@WORKERS
def test_14_a_collate_function_of_yours(face: Face, workers: int) -> None:
    (kind, samples, process), *_ = list(
        face(Numbers(4), batch_size=2, collate_fn=told, num_workers=workers)
    )

    assert (kind, samples) == ("list", [0, 1])
    assert (process == os.getpid()) == (workers == 0)


@WORKERS
def test_14_it_may_be_local_and_return_anything(face: Face, workers: int) -> None:
    if not face.ours and workers:
        pytest.skip("torch pickles what crosses, so a lambda must not come back")
    loader = face(
        Numbers(3), batch_size=3, collate_fn=lambda batch: {"sum": sum(batch)}, num_workers=workers
    )

    assert list(loader) == [{"sum": 3}]
    (found,) = list(face(Numbers(2), batch_size=2, collate_fn=as_it_is, num_workers=workers))
    assert found == [0, 1]
    assert type(found[0]) is int


@WORKERS
def test_15_the_table_can_be_extended(
    torch_face: Face, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.torch.torchdatasets import Point, Points, sum_of_points
    from torch.utils.data._utils.collate import default_collate_fn_map

    monkeypatch.setitem(default_collate_fn_map, Point, sum_of_points)
    loader = torch_face(Points(4), batch_size=2, num_workers=workers)

    assert epoch(loader) == [[0, 10], [20, 30]]


@WORKERS
def test_15_rules_in_place_of_torchs_own(
    torch_face: Face, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.utils.data._utils.collate import collate_str_fn, default_collate_fn_map

    boxes = [{"id": k, "path": PurePosixPath(str(k)), "boxes": [np.ones(2), k]} for k in (1, 2)]
    for kind, rule in ((int, as_list), (list, as_list), (PurePosixPath, collate_str_fn)):
        monkeypatch.setitem(default_collate_fn_map, kind, rule)
    (batch,) = torch_face(Listed(boxes), batch_size=2, num_workers=workers)

    assert batch["id"] == [1, 2]
    assert batch["path"] == [PurePosixPath("1"), PurePosixPath("2")]
    assert [(array.tolist(), number) for array, number in batch["boxes"]] == [
        ([1.0, 1.0], 1),
        ([1.0, 1.0], 2),
    ]


@WORKERS
def test_15_a_rule_of_a_dataset_that_needs_no_torch(
    torch_face: Face, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.utils.data._utils.collate import default_collate_fn_map

    monkeypatch.setitem(default_collate_fn_map, Decimal, as_list)
    loader = torch_face(Listed([Decimal(1), Decimal(2)]), batch_size=2, num_workers=workers)

    assert epoch(loader) == [[Decimal(1), Decimal(2)]]
