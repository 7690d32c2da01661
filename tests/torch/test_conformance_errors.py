"""Conformance 31 to 34 and 37: what goes wrong in a dataset, and how it is told."""

from __future__ import annotations

import re
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.torch.datasets import Failing, Late, Listed, Numbers, Odd, TwoPartError, as_it_is
from tests.torch.faces import Face, epoch

if TYPE_CHECKING:
    from pathlib import Path

WORKERS = pytest.mark.parametrize("workers", [0, 2])
SOON_S = 1.0


def told(error: BaseException) -> str:
    """All that a reader of a traceback sees of an error."""
    return "".join(traceback.format_exception(error))


def walk(iterator: Any, error: type[BaseException]) -> tuple[list[Any], list[BaseException]]:
    """Every batch, and every error between them."""
    found: list[Any] = []
    errors: list[BaseException] = []
    while True:
        try:
            batch = next(iterator)
        except StopIteration:
            return found, errors
        except error as caught:
            errors.append(caught)
        else:
            found.append(batch.tolist() if hasattr(batch, "tolist") else batch)


@WORKERS
def test_31_an_error_keeps_its_type_and_the_rest_comes(face: Face, workers: int) -> None:
    iterator = iter(face(Failing(10, at=5), batch_size=2, num_workers=workers))
    found, errors = walk(iterator, ValueError)

    assert found == [[0, 1], [2, 3], [6, 7], [8, 9]]
    assert len(errors) == 1
    text = told(errors[0])
    assert "seven is not for sale" in text
    assert "datasets.py" in text, "where it was raised"
    if workers:
        assert "Original Traceback" in text
        assert re.search(r"DataLoader worker process [01]\b", text)


@WORKERS
def test_31_it_keeps_its_arguments_and_names_the_sample(our_face: Face, workers: int) -> None:
    iterator = iter(our_face(Failing(10, at=5), batch_size=2, num_workers=workers))
    _, (error,) = walk(iterator, ValueError)

    assert type(error) is ValueError
    assert error.args == ("seven is not for sale", 7)
    notes = "\n".join(getattr(error, "__notes__", []))
    assert "batch 2" in notes
    assert "5" in notes.replace("batch 2", ""), "the key of the sample"
    if workers:
        assert "DataLoader worker process" in notes
        assert "Original Traceback" in notes
        assert type(error.__cause__).__name__ == "WorkerTraceback"


@WORKERS
def test_31_an_error_in_collate(face: Face, workers: int) -> None:
    loader = face(Numbers(4), batch_size=2, num_workers=workers, collate_fn=divide)
    found, errors = walk(iter(loader), ZeroDivisionError)

    assert (found, len(errors)) == ([0], 1)


def divide(batch: list[int]) -> int:
    return batch[0] // (2 - batch[0])


@WORKERS
def test_31_a_shape_that_does_not_fit_is_told_of_with_its_sample(
    our_face: Face, workers: int
) -> None:
    samples = [np.ones((2, 3)) for _ in range(8)]
    samples[5] = np.ones((2, 4))
    iterator = iter(our_face(Listed(samples), batch_size=4, num_workers=workers))
    next(iterator)
    with pytest.raises(RuntimeError) as caught:
        next(iterator)

    text = told(caught.value)
    assert "5" in re.findall(r"index (\d+)", text) or "[4, 5, 6, 7]" in text
    assert "4" in text.replace("[4, 5, 6, 7]", ""), "the shape"


@WORKERS
def test_31_samples_of_an_iterable_have_no_index(our_face: Face, workers: int) -> None:
    kind = type(our_face.counting(1))
    shapes = type("Shapes", (kind,), {"__iter__": lambda _: iter([np.ones(3), np.ones(4)])})
    with pytest.raises(RuntimeError, match="equal size") as caught:
        list(our_face(shapes((1,), our_face.info), batch_size=2, num_workers=workers))

    assert "index" not in " ".join([str(caught.value), *caught.value.__notes__])


@WORKERS
def test_31_a_sample_that_no_tensor_can_be(torch_face: Face, workers: int) -> None:
    samples = [np.arange(2), np.array(["2020-01-01"], "M8[D]"), np.arange(3), np.arange(4)]

    def loader() -> Any:
        return torch_face(Listed(samples), batch_size=None, num_workers=workers)

    begun = loader()
    iterator = iter(begun)
    assert next(iterator).tolist() == [0, 1]
    with pytest.raises(TypeError, match="datetime64"):
        next(iterator)
    if torch_face.ours:
        again = loader()
        again.load_state_dict(begun.state_dict())
        assert [len(sample) for sample in again] == [3, 4]
    assert [len(sample) for sample in iterator] == [3, 4]


@WORKERS
def test_31_an_error_in_a_sampler(face: Face, workers: int) -> None:
    def keys() -> Any:
        yield 0
        yield 1 // 0

    loader = face(Numbers(4), batch_size=None, sampler=keys(), num_workers=workers)

    with pytest.raises(ZeroDivisionError):
        list(loader)


@WORKERS
def test_32_a_key_error_can_be_read(face: Face, workers: int) -> None:
    error = KeyError("no\nsuch key")
    _, (caught,) = walk(iter(face(Failing(2, 1, error), num_workers=workers)), KeyError)

    text = told(caught)
    assert type(caught) is KeyError
    if workers:
        assert text.count("\n") > 5, "lines, not one with signs for their ends"
        assert '\\n  File "' not in text


@WORKERS
def test_32_an_error_that_a_message_cannot_make(face: Face, workers: int) -> None:
    iterator = iter(face(Failing(2, 1, TwoPartError(3, "b")), num_workers=workers))
    _, (caught,) = walk(iterator, Exception)

    assert isinstance(caught, TwoPartError | RuntimeError)
    assert "TwoPartError" in told(caught)
    if face.ours or not workers:
        assert isinstance(caught, TwoPartError)
        assert (caught.part, caught.other) == (3, "b")


@WORKERS
def test_32_errors_with_fields_keep_them(our_face: Face, workers: int) -> None:
    raised = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
    _, (caught,) = walk(iter(our_face(Failing(2, 1, raised), num_workers=workers)), ValueError)

    assert type(caught) is UnicodeDecodeError
    assert caught.object == b"\xff"


@WORKERS
def test_33_stop_iteration_in_a_sample_does_not_end_the_epoch(our_face: Face, workers: int) -> None:
    """Torch's own class ends silently; a `StopIteration` there is nobody's intention."""
    loader = our_face(Failing(16, 5, StopIteration("oh")), batch_size=2, num_workers=workers)
    found, errors = walk(iter(loader), RuntimeError)

    assert found == [[at, at + 1] for at in range(0, 16, 2) if at != 4]
    assert len(errors) == 1
    assert "StopIteration" in told(errors[0])


@WORKERS
def test_33_nor_in_collate(our_face: Face, workers: int) -> None:
    loader = our_face(Numbers(6), batch_size=2, num_workers=workers, collate_fn=stop)
    found, errors = walk(iter(loader), RuntimeError)

    assert (found, len(errors)) == ([[0, 1], [4, 5]], 1)


def stop(batch: list[int]) -> list[int]:
    if 2 in batch:
        raise StopIteration
    return batch


@pytest.mark.parametrize("size", [None, 2])
def test_34_what_cannot_be_pickled_is_an_error_soon(our_face: Face, size: int | None) -> None:
    """Torch's own class waits for ever."""
    loader = our_face(Odd(8, at=5), batch_size=size, num_workers=2, collate_fn=as_it_is)
    iterator = iter(loader)
    for _ in range(5 if size is None else 2):
        next(iterator)

    started = time.monotonic()
    with pytest.raises(Exception, match=r"(?i)pickle|generator") as caught:
        next(iterator)
    assert time.monotonic() - started < SOON_S
    assert "5" in told(caught.value), "the sample"
    assert next(iterator) in (6, [6, 7]), "and the rest comes"


def test_34_a_dataset_that_cannot_be_pickled_is_an_error_soon(our_face: Face) -> None:
    started = time.monotonic()
    with pytest.raises(TypeError, match=r"(?i)pickle"):
        next(iter(our_face(Listed([threading.Lock()]), num_workers=1)))
    assert time.monotonic() - started < SOON_S


@pytest.mark.parametrize("persistent", [False, True])
def test_37_what_takes_too_long(face: Face, tmp_path: Path, *, persistent: bool) -> None:
    loader = face(
        Late(8, str(tmp_path), at=2, pause=0.8),
        batch_size=2,
        num_workers=1,
        timeout=0.5,
        persistent_workers=persistent,
    )
    iterator = iter(loader)
    assert next(iterator).tolist() == [0, 1]
    started = time.monotonic()
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.5 seconds"):
        next(iterator)

    assert 0.3 < time.monotonic() - started < 0.5 + SOON_S
    assert epoch(iterator) == [[2, 3], [4, 5], [6, 7]], "what was late comes, in its place"


def test_37_what_is_in_time(face: Face) -> None:
    assert len(list(face(Numbers(4), num_workers=1, timeout=5))) == 4
