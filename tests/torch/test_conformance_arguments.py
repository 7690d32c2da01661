"""Conformance 1 to 4: what a DataLoader is made with, and what it is asked for."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest
from tests.torch.datasets import Numbers, Seeds, as_it_is
from tests.torch.faces import Face, numbers

if TYPE_CHECKING:
    from collections.abc import Callable

POSITIONAL = {
    "dataset": inspect.Parameter.empty,
    "batch_size": 1,
    "shuffle": None,
    "sampler": None,
    "batch_sampler": None,
    "num_workers": 0,
    "collate_fn": None,
    "pin_memory": False,
    "drop_last": False,
    "timeout": 0,
    "worker_init_fn": None,
    "multiprocessing_context": None,
    "generator": None,
}
KEYWORD = {
    "prefetch_factor": None,
    "persistent_workers": False,
    "pin_memory_device": "",
    "in_order": True,
}
PROTECTED = ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"]


def test_01_signature(face: Face) -> None:
    parameters = list(inspect.signature(face.loader).parameters.values())
    count = len(POSITIONAL)

    assert {each.name: each.default for each in parameters[:count]} == POSITIONAL
    assert [each.name for each in parameters[:count]] == list(POSITIONAL), "the order too"
    assert all(each.kind is each.POSITIONAL_OR_KEYWORD for each in parameters[:count])
    last = parameters[count : count + len(KEYWORD)]
    assert [(each.name, each.default) for each in last] == list(KEYWORD.items())
    assert all(each.kind is each.KEYWORD_ONLY for each in parameters[count:])
    assert all(each.default is not each.empty for each in parameters[1:]), "extras have defaults"


def test_01_attributes(face: Face) -> None:
    dataset = Numbers(10)
    given: dict[str, Any] = {
        "batch_size": 3,
        "num_workers": 2,
        "collate_fn": as_it_is,
        "drop_last": True,
        "timeout": 7,
        "worker_init_fn": Seeds("", torch=False),
        "generator": face.generator(1),
        "prefetch_factor": 4,
        "persistent_workers": True,
        "in_order": False,
    }
    loader = face(dataset, **given)

    assert loader.dataset is dataset
    for name, value in given.items():
        assert getattr(loader, name) is value, name
    assert loader.pin_memory is False
    assert loader.multiprocessing_context is None
    assert list(loader.sampler) == list(range(10))
    assert list(loader.batch_sampler) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert (loader.batch_sampler.batch_size, loader.batch_sampler.drop_last) == (3, True)


def test_01_attributes_of_defaults(face: Face) -> None:
    loader = face(Numbers(4), num_workers=1)

    assert loader.prefetch_factor == 2
    assert callable(loader.collate_fn)
    assert face(Numbers(4)).prefetch_factor is None
    assert face(Numbers(4), batch_size=None).batch_sampler is None
    batches = face(Numbers(4), batch_sampler=[[0, 1]])
    assert batches.batch_size is None
    assert batches.drop_last is False


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "workers": ({"num_workers": -1}, ValueError, "num_workers option should be non-negative"),
    "timeout": ({"timeout": -1}, ValueError, "timeout option should be non-negative"),
    "prefetch without workers": ({"prefetch_factor": 2}, ValueError, "prefetch_factor option"),
    "prefetch": ({"num_workers": 1, "prefetch_factor": -1}, ValueError, "prefetch_factor option"),
    "persistent": ({"persistent_workers": True}, ValueError, "persistent_workers option needs"),
    "sampler and shuffle": (
        {"sampler": [1], "shuffle": True},
        ValueError,
        "sampler option is mutually exclusive with shuffle",
    ),
    "batches and size": (
        {"batch_sampler": [[1]], "batch_size": 2},
        ValueError,
        "batch_sampler option is mutually exclusive with",
    ),
    "batches and shuffle": (
        {"batch_sampler": [[1]], "shuffle": True},
        ValueError,
        "batch_sampler option is mutually exclusive with",
    ),
    "batches and sampler": (
        {"batch_sampler": [[1]], "sampler": [1]},
        ValueError,
        "batch_sampler option is mutually exclusive with",
    ),
    "batches and drop": (
        {"batch_sampler": [[1]], "drop_last": True},
        ValueError,
        "batch_sampler option is mutually exclusive with",
    ),
    "no batches and drop": (
        {"batch_size": None, "drop_last": True},
        ValueError,
        "batch_size=None option disables auto-batching",
    ),
    "no size": ({"batch_size": 0}, ValueError, "batch_size should be a positive integer value"),
    "less size": ({"batch_size": -3}, ValueError, "batch_size should be a positive integer value"),
    "a size that is a bool": ({"batch_size": True}, ValueError, "batch_size should be a positive"),
    "a size that is a float": ({"batch_size": 2.0}, ValueError, "batch_size should be a positive"),
    "drop is a word": ({"drop_last": "yes"}, ValueError, "drop_last should be a boolean value"),
    "context without workers": (
        {"multiprocessing_context": "spawn"},
        ValueError,
        r"multi-process loading \(num_workers > 0\), but got",
    ),
    "an unknown context": (
        {"num_workers": 1, "multiprocessing_context": "bad"},
        ValueError,
        "should specify a valid start method in",
    ),
    "no context at all": (
        {"num_workers": 1, "multiprocessing_context": 3},
        TypeError,
        "multiprocessing_context option should be a valid context",
    ),
}


@pytest.mark.parametrize("row", WRONG)
def test_02_wrong_arguments(face: Face, row: str) -> None:
    arguments, error, message = WRONG[row]
    if not face.torch:
        message = list(arguments)[-1]  # in words of our own

    with pytest.raises(error, match=message):
        face(Numbers(10), **arguments)


@pytest.mark.parametrize(
    ("name", "value"), [("shuffle", True), ("sampler", [0]), ("batch_sampler", [[0]])]
)
def test_02_an_iterable_takes_no(face: Face, name: str, value: Any) -> None:
    message = f"DataLoader with IterableDataset: expected unspecified {name} option"
    if not face.torch:
        message = name
    with pytest.raises(ValueError, match=message):
        face(face.counting(10), **{name: value})

    assert len(list(face(face.counting(10), shuffle=False))) == 10


def test_02_timeout_needs_workers(face: Face) -> None:
    loader = face(Numbers(10), timeout=1)

    with pytest.raises(AssertionError):
        iter(loader)


def test_02_a_prefetch_factor_of_nothing(our_face: Face) -> None:
    """Torch's own takes it, and asserts later."""
    assert numbers(our_face(Numbers(5), num_workers=2, prefetch_factor=0)) == list(range(5))


def test_02_many_workers_are_warned_of(face: Face) -> None:
    with pytest.warns(UserWarning, match="DataLoader will create 1000 worker processes"):
        face(Numbers(10), num_workers=1000)


@pytest.mark.parametrize("name", PROTECTED)
def test_03_attributes_are_protected(face: Face, name: str) -> None:
    loader = face(Numbers(10), num_workers=1)
    before = getattr(loader, name)

    message = f"{name} attribute should not be set after DataLoader is" if face.torch else name
    with pytest.raises(ValueError, match=message):
        setattr(loader, name, {})
    assert getattr(loader, name) is before


def test_03_other_attributes_are_not(face: Face) -> None:
    loader = face(Numbers(4), batch_size=2)
    loader.collate_fn = as_it_is
    loader.mine = 3

    assert list(loader) == [[0, 1], [2, 3]]


LENGTHS: dict[str, tuple[dict[str, Any], int]] = {
    "default": ({}, 10),
    "batches": ({"batch_size": 3}, 4),
    "whole batches": ({"batch_size": 3, "drop_last": True}, 3),
    "no batches": ({"batch_size": None}, 10),
    "sampler": ({"sampler": [1, 2, 3], "batch_size": 2}, 2),
    "sampler alone": ({"sampler": [1, 2, 3], "batch_size": None}, 3),
    "batch sampler": ({"batch_sampler": [[1], [2, 3]]}, 2),
    "workers": ({"batch_size": 4, "num_workers": 3}, 3),
}


@pytest.mark.parametrize("row", LENGTHS)
def test_04_length(face: Face, row: str) -> None:
    arguments, length = LENGTHS[row]
    loader = face(Numbers(10), **arguments)

    assert len(loader) == length
    assert len(iter(loader)) == length
    assert len(list(loader)) == length


@pytest.mark.parametrize(("drop_last", "length"), [(False, 4), (True, 3)])
def test_04_length_of_an_iterable(face: Face, *, drop_last: bool, length: int) -> None:
    loader = face(face.counting(10), batch_size=3, drop_last=drop_last)

    assert len(loader) == length
    assert len(list(loader)) == length
    assert len(face(face.counting(10), batch_size=None)) == 10


def no_length(face: Face) -> Callable[[], int]:
    def generate() -> Any:
        yield 1

    return lambda: len(face(Numbers(10), sampler=generate(), batch_size=None))


def test_04_what_has_no_length(face: Face) -> None:
    with pytest.raises(TypeError):
        no_length(face)()


def test_04_a_dataset_may_grow(face: Face) -> None:
    dataset = [1, 2, 3]
    loaders = [face(dataset), face(dataset, shuffle=True, generator=face.generator(1))]
    dataset.append(4)

    assert [len(loader) for loader in loaders] == [4, 4]
    assert sorted(batch.tolist()[0] for batch in loaders[1]) == [1, 2, 3, 4]
