"""Errors that a function raises are its element's; those that a signal brings about are the consumer's."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import tundish as td
from tundish.loader.protocols.raised import is_interrupt

HOW = pytest.mark.parametrize(
    "how", [{"workers": 0}, {"workers": 2}, {"workers": 2, "executor": "thread"}], ids=str
)


def outcomes(it: Any) -> list[Any]:
    """Numbers, and of errors the type and the arguments."""
    found: list[Any] = []
    while True:
        try:
            found.append(int(next(it)))
        except StopIteration:
            return found
        except BaseException as error:  # noqa: BLE001 - what is looked at
            found.append((type(error), error.args))


def quits(x: Any) -> Any:
    match int(x):
        case 1:
            sys.exit(3)
        case 2:
            raise KeyboardInterrupt("the function's own")
        case 3:
            raise asyncio.CancelledError
        case 4:
            raise GeneratorExit
    return x


EXPECTED = [
    0,
    (SystemExit, (3,)),
    (KeyboardInterrupt, ("the function's own",)),
    (asyncio.CancelledError, ()),
    (GeneratorExit, ()),
    5,
]


@HOW
def test_it_stands_at_its_element_s_place(how: dict[str, Any]) -> None:
    with td.Dataset.range(6).map(quits).iterator(**how) as it:
        assert outcomes(it) == EXPECTED
        assert it.stats.restarts == 0


@HOW
def test_it_says_where_it_happened(how: dict[str, Any]) -> None:
    with td.Dataset.range(6).map(quits).iterator(**how) as it, pytest.raises(SystemExit) as caught:
        list(it)
    assert "map#1, element 1" in caught.value.__notes__[0]
    if how.get("workers"):
        assert "in quits" in str(caught.value.__cause__)


@pytest.mark.parametrize("workers", [0, 2])
def test_policies_leave_out_what_except_exception_catches(workers: int) -> None:
    ds = td.Dataset.range(6).map(quits)
    for kept in (td.Dataset.range(6).map(quits, on_error="skip"), ds.ignore_errors()):
        with kept.iterator(workers=workers) as it:
            assert outcomes(it) == EXPECTED


def test_whoever_asks_for_one_element_gets_it() -> None:
    ds = td.Dataset.range(6).map(quits)
    with pytest.raises(SystemExit, match="3"):
        ds[1]
    with pytest.raises(SystemExit, match="3"):
        _ = td.Dataset.range(1, 6).map(quits).element_spec


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sample_s_and_a_collate_function_s(workers: int) -> None:
    loader = td.DataLoader(Samples(), 2, num_workers=workers, collate_fn=collate)
    found: list[Any] = []
    it = iter(loader)
    while True:
        try:
            found.append(next(it))
        except StopIteration:
            break
        except BaseException as error:  # noqa: BLE001 - what is looked at
            found.append((type(error), error.args))
    assert found == [(SystemExit, (3,)), (KeyboardInterrupt, (2,)), [4, 5]]


class Samples:
    """Sample 1 ends the program."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        return sys.exit(3) if index == 1 else index


def collate(samples: list[int]) -> list[int]:
    if 2 in samples:
        raise KeyboardInterrupt(2)
    return samples


# -- interrupts


@contextmanager
def handler(number: int, function: Callable[..., Any]) -> Iterator[None]:
    before = signal.signal(number, function)
    try:
        yield
    finally:
        signal.signal(number, before)


def stop(number: int, frame: object) -> None:
    del frame
    sys.exit(128 + number)


class Hit:
    """A function that a signal hits once, while it computes an element."""

    def __init__(
        self, number: int = signal.SIGINT, within: Callable[..., Any] | None = None
    ) -> None:
        self.number, self.within, self.hit = number, within, False

    def __call__(self, x: Any) -> Any:
        if x == 2 and not self.hit:
            self.hit = True
            if self.within is not None:
                return self.within(self.number)
            signal.raise_signal(self.number)
        return x


def tidied(number: int) -> None:
    """Tidy up and leave, as a program may."""
    try:
        signal.raise_signal(number)
    except KeyboardInterrupt:
        raise SystemExit(1) from None


def in_a_loop(number: int) -> None:
    async def waits() -> None:
        signal.raise_signal(number)
        await asyncio.sleep(60)

    asyncio.run(waits())


def grouped(number: int) -> None:
    try:
        signal.raise_signal(number)
    except KeyboardInterrupt as error:
        raise BaseExceptionGroup("all", [error]) from None


@pytest.mark.parametrize(
    ("within", "kind"),
    [
        (None, KeyboardInterrupt),
        (tidied, SystemExit),
        (in_a_loop, KeyboardInterrupt),
        (grouped, BaseExceptionGroup),
    ],
)
def test_a_ctrl_c_is_the_consumer_s(within: Any, kind: type[BaseException]) -> None:
    """No policy leaves it out, and the element that it hit comes again."""
    ds = td.Dataset.range(5).map(Hit(within=within), on_error="skip").shuffle(3, seed=1)
    expected = outcomes(iter(td.Dataset.range(5).shuffle(3, seed=1)))
    with handler(signal.SIGINT, signal.default_int_handler), ds.iterator(workers=0) as it:
        with pytest.raises(kind):
            next(it)
        assert outcomes(it) == expected


@pytest.mark.parametrize("function", [stop, lambda *_: sys.exit()])
def test_what_a_handler_raises_is_the_consumer_s(function: Any) -> None:
    ds = td.Dataset.range(5).map(Hit(signal.SIGTERM)).batch(5)
    with handler(signal.SIGTERM, function), ds.iterator(workers=0) as it:
        with pytest.raises(SystemExit):
            next(it)
        assert next(it).tolist() == [0, 1, 2, 3, 4]


def test_what_nothing_interrupted_is_no_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        raise KeyboardInterrupt
    assert not is_interrupt(caught.value)
    assert not is_interrupt(BaseExceptionGroup("some", [caught.value]))


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):  # noqa: N818 - as users write them
    code: int


class Asked(Exception):  # noqa: N818
    """Raises something else when it is asked for an attribute."""

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


class Closed(Exception):  # noqa: N818
    """Allows no attribute to be set."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise RuntimeError("no attributes here")


class Leaving(Exception):  # noqa: N818
    def __reduce__(self) -> Any:
        raise SystemExit(3)


ODD: dict[str, Callable[[], BaseException]] = {
    "frozen": lambda: Frozen(7),
    "asked": Asked,
    "closed": Closed,
    "syntax": lambda: SyntaxError("bad", ("file", 3, "7", "text")),  # type: ignore[arg-type]
    "leaving": Leaving,
}


class RaisesOdd:
    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, x: Any) -> Any:
        if x == 1:
            error = ODD[self.name]()
            raise error
        return x


@HOW
@pytest.mark.parametrize("name", ODD)
def test_a_class_of_errors_may_refuse_anything(name: str, how: dict[str, Any]) -> None:
    found: list[Any] = []
    with td.Dataset.range(3).map(RaisesOdd(name)).iterator(**how) as it:
        for _ in range(3):
            try:
                found.append(int(next(it)))
            except Exception as raised:  # noqa: BLE001 - what is looked at
                found.append(raised)
    error = found.pop(1)
    assert found == [0, 2]
    # What raises as it is pickled is told by name.
    expected = "TransformError" if name == "leaving" and how["workers"] == 2 else None
    assert type(error).__name__ in {type(ODD[name]()).__name__, expected}
    if name != "asked":
        assert any("map#1, element 1" in note for note in error.__notes__)
