"""Iterables of every shape, in each of their places, as torch's own loader takes them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from tests.torch.datasets import as_it_is
from tests.torch.faces import OURS, THEIRS, Face, plain

from tundish.testing.iterables import SHAPES, Shape, Watched, pulled

torch = pytest.importorskip("torch")

NUMBERS = [0, 1, 2, 3, 4]
LISTS = [[0, 1], [2, 3], [4]]
TUPLES = [(0, 1), (2, 3), (4,)]
BATCHES = [shape for shape in SHAPES if shape.takes != "numbers"]
# Torch's `BatchSampler` calls ``iter()`` for each batch, and ``next()`` after the end.
ENDLESS_IN_TORCH = ("resetting", "unready", "bare", "stumbling", "anew", "touchy")
ODD = [each for each in SHAPES if each.name in ("resetting", "bare", "stumbling")]


class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
    """An iterable dataset that hands on what another iterable gives."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def __iter__(self) -> Any:
        return iter(self.source)


class Echo(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
    """Every sample is its key; counts how often its length is asked for."""

    asked = 0

    def __len__(self) -> int:
        self.asked += 1
        return 5

    def __getitem__(self, key: Any) -> Any:
        return key


def each(shapes: Iterable[Shape]) -> Callable[..., Any]:
    return pytest.mark.parametrize("shape", list(shapes), ids=str)


def passes(face: Face, *arguments: Any, **options: Any) -> list[Any]:
    """Two passes over one loader."""
    loader = face(*arguments, collate_fn=as_it_is, **options)
    return [plain(pulled(loader)) for _ in range(2)]


def batches_of(shape: Shape) -> Any:
    return shape.make(TUPLES if shape.takes == "hashable" else LISTS)


@each(SHAPES)
@pytest.mark.parametrize("size", [2, None])
def test_as_a_dataset(shape: Shape, size: int | None) -> None:
    ours, theirs = (
        passes(face, Stream(shape.make(NUMBERS)), batch_size=size) for face in (OURS, THEIRS)
    )

    assert ours == theirs


@each(SHAPES)
def test_as_a_sampler(shape: Shape) -> None:
    ours, theirs = (
        passes(face, Echo(), sampler=shape.make(NUMBERS), batch_size=None)
        for face in (OURS, THEIRS)
    )

    assert ours == theirs


@each(each for each in SHAPES if each.name not in ENDLESS_IN_TORCH)
def test_as_a_sampler_of_batches(shape: Shape) -> None:
    ours, theirs = (
        passes(face, Echo(), sampler=shape.make(NUMBERS), batch_size=2) for face in (OURS, THEIRS)
    )

    assert ours == theirs


@each(BATCHES)
def test_as_a_batch_sampler(shape: Shape) -> None:
    ours, theirs = (
        passes(face, Echo(), batch_sampler=batches_of(shape)) for face in (OURS, THEIRS)
    )

    assert ours == theirs


@each(ODD)
def test_as_a_dataset_in_workers(shape: Shape) -> None:
    ours, theirs = (
        passes(face, Stream(shape.make(NUMBERS)), batch_size=2, num_workers=2)
        for face in (OURS, THEIRS)
    )

    assert ours == theirs


@pytest.mark.parametrize("place", ["dataset", "sampler", "batch_sampler"])
def test_no_more_is_asked_of_it_than_torch_asks(place: str) -> None:
    asked = []
    for face in (OURS, THEIRS):
        watched = Watched(LISTS if place == "batch_sampler" else NUMBERS)
        if place == "dataset":
            passes(face, Stream(watched))
        elif place == "sampler":
            passes(face, Echo(), sampler=watched, batch_size=None)
        else:
            passes(face, Echo(), batch_sampler=watched)
        asked.append(dict(watched.asked))

    ours, theirs = asked
    with contextlib.suppress(KeyError):
        del theirs["len"]  # `islice` and `list` make room for so many
    assert ours == theirs


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"sampler": NUMBERS}])
def test_a_length_is_asked_for_no_more_often(options: dict[str, Any]) -> None:
    asked = []
    for face in (OURS, THEIRS):
        dataset = Echo()
        passes(face, dataset, generator=face.generator(1), **options)
        asked.append(dataset.asked)

    assert asked[0] <= asked[1]
