"""Names that are not there name those that were meant."""

from __future__ import annotations

import inspect
import pickle
import re
import traceback
import warnings
from typing import Any

import pytest

import tundish as td
from tundish.loader.operators.map import MapMethods

RANGE: Any = td.Dataset.range(4)

METHODS = {"suffle": "shuffle", "prefecth": "prefetch", "collate": "batch", "limit": "take"}
ARGUMENTS: dict[str, tuple[Any, str]] = {
    "num_workers": (lambda: RANGE.map(len, num_workers=2), "did you mean num_parallel_calls?"),
    "n_jobs": (lambda: RANGE.interleave(len, n_jobs=2), "did you mean num_parallel_calls?"),
    "batched": (lambda: RANGE.map(len, batched=True), "map_batches(function, batch_size)"),
    "drop_last": (lambda: RANGE.batch(2, drop_last=True), "did you mean drop_remainder?"),
    "size": (lambda: RANGE.batch(size=2), "did you mean batch_size?"),
    "bufer_size": (lambda: RANGE.shuffle(bufer_size=2), "did you mean buffer_size?"),
    "data": (lambda: td.Dataset.from_tensor_slices(data=[1]), "did you mean tensors?"),  # type: ignore[call-arg]
    "compression": (lambda: td.TextLineDataset("x", compression="GZIP"), "compression_type?"),  # type: ignore[call-arg]
    "num_parallel_calls": (
        lambda: td.DataLoader([1], num_parallel_calls=2),  # type: ignore[call-arg]
        "did you mean num_workers?",
    ),
    "zzz": (lambda: RANGE.take(zzz=2), "it takes count, name"),
}


@pytest.mark.parametrize("wrong", METHODS)
def test_a_method_that_there_is_not(wrong: str) -> None:
    with pytest.raises(AttributeError, match=f"no '{wrong}'; did you mean {METHODS[wrong]}?") as it:
        getattr(RANGE, wrong)
    assert it.value.name == wrong


@pytest.mark.parametrize("wrong", ARGUMENTS)
def test_an_argument_that_there_is_not(wrong: str) -> None:
    call, hint = ARGUMENTS[wrong]
    expected = rf"^\w+(\.\w+)?\(\) got an unexpected keyword argument '{wrong}'; .*"
    with pytest.raises(TypeError, match=expected + re.escape(hint)):
        call()


def test_arguments_that_do_not_fit_are_told_of_the_method_as_it_is_called() -> None:
    with pytest.raises(TypeError, match=r"^Dataset\.map\(\) missing 1 required .* 'map_func'$"):
        RANGE.map()
    with pytest.raises(TypeError, match=r"^Dataset\.take\(\) takes from 2 to 3 positional"):
        RANGE.take(1, None, 3)


def test_an_error_of_a_function_that_a_method_calls_is_its_own() -> None:
    """Only the call of the method is answered for."""

    def fold(state: Any, x: Any) -> Any:
        return helper(state, num_workers=x)  # type: ignore[call-arg]

    def helper(state: Any) -> Any:
        return state

    with pytest.raises(TypeError, match=r"helper\(\) got an unexpected keyword .*'num_workers'"):
        RANGE.reduce(0, fold)


def test_modules_and_options() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'Datset'; did you mean Dataset\?"):
        _ = getattr(td, "Datset")  # noqa: B009 - a checker would refuse the plain form
    with pytest.raises(TypeError, match=r"Options has no 'worker'; did you mean workers\?"):
        td.Options(worker=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Options has no 'num_workers'; did you mean workers\?"):
        td.Options(num_workers=2)  # type: ignore[call-arg]


def test_methods_are_what_they_were_to_those_who_look() -> None:
    plain, answered = vars(MapMethods)["map"], td.Dataset.map

    assert inspect.signature(answered) == inspect.signature(plain)
    assert answered.__doc__ == plain.__doc__
    assert (answered.__qualname__, answered.__globals__) == (plain.__qualname__, plain.__globals__)
    assert inspect.unwrap(answered) is plain
    assert pickle.loads(pickle.dumps(td.Dataset.range)) == td.Dataset.range
    assert not hasattr(RANGE, "__array__")


def test_a_warning_names_the_callers_line() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        RANGE.with_options(td.Options(workers=0)).with_options(td.Options(workers=1))
        td.Options(workers=0).merge(td.Options(workers=1))
        RANGE.snapshot("nowhere", compression="GZIP")
    assert [each.filename for each in told] == [__file__] * 3


def test_an_option_is_suggested_once() -> None:
    options = td.Options()
    with pytest.raises(AttributeError) as caught:
        options.determinstic = True

    assert "".join(traceback.format_exception(caught.value)).count("id you mean") == 1


def test_a_generator_in_place_of_its_function() -> None:
    with pytest.raises(TypeError, match=r"give f, not f\(\)"):
        td.Dataset.from_generator(x for x in [1])  # type: ignore[arg-type]  # that is refused
