"""State in a plan that no state of an iterator can hold: found in functions, told by the policy, few false alarms."""

# ruff: noqa: NPY002 - functions that draw from numpy's global generator are what is looked for

from __future__ import annotations

import functools
import io
import itertools
import random
import secrets
import socket
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from random import randint as dice
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.random import rand

import tundish as td
from tundish import Dataset, errors
from tundish.loader.plan.search import Finding, StateSearch
from tundish.loader.run.external import ExternalState, external_state, heed_external_state

RANGE = Dataset.range(3)
POLICY = td.experimental.ExternalStatePolicy

RNG = np.random.default_rng(0)
OLD = np.random.RandomState(0)
BITS = np.random.PCG64(0)
DICE = random.Random(0)
NUMBERS = iter(range(10))
COUNT = itertools.count()
TEXT = io.StringIO("a\nb")
SEVERAL = {"a": random.Random(1)}
CYCLE: list[Any] = []
CYCLE.append(CYCLE)
TABLE = {"a": 1}


class Augment:
    """Holds a generator that it draws from, and one that it does not."""

    def __init__(self) -> None:
        self.rng = random.Random(1)
        self.unused = random.Random(2)
        self.scale = 2

    def __call__(self, x: int) -> float:
        return self._draw()

    def _draw(self) -> float:
        return self.rng.random()

    def double(self, x: int) -> int:
        return x * self.scale

    @property
    def drawn(self) -> float:
        return self.rng.random()


AUGMENT = Augment()


def helper() -> float:
    return random.random()


def draws_from_numpy(x: int) -> Any:
    return x + np.random.rand()


def draws_from_python(x: int) -> Any:
    return x + random.randint(1, 2)


def draws_by_another_name(x: int) -> Any:
    return dice(1, 2) + rand()


def draws_in_a_helper(x: int) -> Any:
    return helper()


def draws_in_an_inner_function(x: int) -> Any:
    return [np.random.rand() for _ in range(3)]


def imports_and_draws(x: int) -> Any:
    import random as r

    return r.gauss(0, 1)


def imports_a_name_and_draws(x: int) -> Any:
    from numpy.random import randn

    return randn()


def imports_a_part_and_draws(x: int) -> Any:
    import numpy.random as npr

    return npr.rand()


def imports_for_an_inner_function(x: int) -> Any:
    from random import random as draw

    def within() -> Any:
        return draw()

    return [within() for _ in range(3)]


def reads_a_generator(x: int) -> Any:
    return RNG.random() + OLD.rand() + DICE.random()


def reads_bits(x: int) -> Any:
    return np.random.Generator(BITS).random()


def has_a_default(x: int, rng: Any = np.random.default_rng(1)) -> Any:  # noqa: B008 - that is the mistake
    return rng.random()


def has_a_keyword(x: int, *, source: Any = NUMBERS) -> Any:
    return next(source)


def reads_a_cycle(x: int) -> Any:
    return CYCLE[0], random.random()


def reads_one_of_several(x: int) -> Any:
    return SEVERAL["a"].random()


def begins_anew(x: int) -> Any:
    return np.random.default_rng().random() + random.Random().random()


def asks_the_system(x: int) -> Any:
    return uuid.uuid4().int + secrets.randbelow(3) + secrets.choice([1, 2])


def reads_an_iterator(x: int) -> Any:
    return next(NUMBERS) + next(COUNT)


def reads_a_file(x: int) -> Any:
    return TEXT.readline()


def uses_an_object(x: int) -> Any:
    return AUGMENT(x)


def uses_a_property(x: int) -> Any:
    return AUGMENT.drawn


@functools.lru_cache
def is_cached(x: int) -> Any:
    return random.random()


def captured() -> Callable[[int], Any]:
    rng = np.random.default_rng(3)

    def draw(x: int) -> Any:
        def within() -> Any:
            return rng.random()

        return within()

    return draw


PLAIN = {
    "draws_from_numpy": "draws_from_numpy calls `np.random.rand`",
    "draws_from_python": "draws_from_python calls `random.randint`",
    "draws_by_another_name": "draws_by_another_name calls `dice` (randint)",
    "draws_in_a_helper": "helper calls `random.random`",
    "draws_in_an_inner_function": "draws_in_an_inner_function calls `np.random.rand`",
    "imports_and_draws": "imports_and_draws calls `random.gauss`",
    "imports_a_name_and_draws": "imports_a_name_and_draws calls `numpy.random.randn`",
    "imports_a_part_and_draws": "imports_a_part_and_draws calls `numpy.random.rand`",
    "imports_for_an_inner_function": "imports_for_an_inner_function calls `draw` (random)",
    "reads_a_generator": "reads_a_generator reads `RNG`, a numpy.random.Generator",
    "reads_bits": "reads_bits reads `BITS`, a numpy.random.PCG64",
    "has_a_default": "has_a_default reads `rng`, a numpy.random.Generator",
    "has_a_keyword": "has_a_keyword reads `source`, a range_iterator",
    "reads_a_cycle": "reads_a_cycle calls `random.random`",
    "reads_one_of_several": "reads_one_of_several reads an item of `SEVERAL`, a random.Random",
    "begins_anew": "begins_anew calls `np.random.default_rng()` without a seed",
    "asks_the_system": "asks_the_system calls `uuid.uuid4`",
    "reads_an_iterator": "reads_an_iterator reads `NUMBERS`, a range_iterator",
    "reads_a_file": "reads_a_file reads `TEXT`, a StringIO",
    "uses_an_object": "Augment._draw reads `self.rng`, a random.Random",
    "uses_a_property": "Augment.drawn reads `self.rng`, a random.Random",
    "is_cached": "is_cached calls `random.random`",
}
OTHERS: list[tuple[Any, str]] = [
    (captured(), "draw reads `rng`, a numpy.random.Generator"),
    (AUGMENT, "Augment._draw reads `self.rng`, a random.Random"),
    (RNG.random, "function is random of a numpy.random.Generator"),
    (np.random.rand, "function is rand of a numpy.random.RandomState"),
    (random.random, "function is random of a random.Random"),
    (functools.partial(has_a_default, rng=RNG), "an argument of function is a numpy.random.Gen"),
    (lambda x: DICE.sample(range(9), 2), "<lambda> reads `DICE`, a random.Random"),
]


def found(dataset: Dataset) -> list[str]:
    return [each.what for each in external_state(dataset._node)]


@pytest.mark.parametrize("name", PLAIN)
def test_a_function_with_state(name: str) -> None:
    assert PLAIN[name] in found(RANGE.map(globals()[name]))


@pytest.mark.parametrize(("function", "what"), OTHERS)
def test_a_callable_with_state(function: Any, what: str) -> None:
    (only,) = found(RANGE.map(function))

    assert what in only


def test_all_of_a_function_is_told() -> None:
    assert found(RANGE.map(reads_a_generator)) == [
        "reads_a_generator reads `RNG`, a numpy.random.Generator",
        "reads_a_generator reads `OLD`, a numpy.random.RandomState",
        "reads_a_generator reads `DICE`, a random.Random",
    ]
    assert len(found(RANGE.map(asks_the_system))) == 3
    assert len(found(RANGE.map(begins_anew))) == 2
    assert len(found(RANGE.map(reads_an_iterator))) == 2


# -- no false alarms -------------------------------------------------------------------------------


def is_given_one(x: int, rng: np.random.Generator) -> Any:
    return rng.random()


def makes_one_with_a_seed(x: int) -> Any:
    return np.random.default_rng((5, x)).random() + random.Random(int(x)).random()


def seeds_the_global_one(x: int) -> Any:
    np.random.seed(int(x))
    random.seed(int(x))
    return np.random.rand() + random.random()


def asks_the_clock(x: int) -> Any:
    return time.time()


def writes_a_log(x: int) -> Any:
    sys.stderr.write(str(x))
    return x


def reads_a_table(x: int) -> Any:
    return TABLE["a"] + x + len(PLAIN)


def makes_iterators(x: int) -> Any:
    return sum(first + second for first, second in zip(range(3), map(abs, range(3)), strict=True))


def opens_a_file(x: int) -> Any:
    with Path(__file__).open(encoding="utf-8") as file:
        return file.readline()


def names_a_type(x: Any) -> Any:
    return isinstance(x, (np.random.Generator, random.Random, io.StringIO))


def reads_an_unset_global(x: int) -> Any:
    return NOT_THERE + x  # type: ignore[name-defined]  # noqa: F821 - that is tried


INNOCENT = [
    makes_one_with_a_seed,
    seeds_the_global_one,
    asks_the_clock,
    writes_a_log,
    reads_a_table,
    makes_iterators,
    opens_a_file,
    names_a_type,
    reads_an_unset_global,
    AUGMENT.double,
    len,
    np.square,
    str.upper,
    int,
    functools.partial(reads_a_table),
]


@pytest.mark.parametrize("function", INNOCENT)
def test_an_innocent_function(function: Any) -> None:
    assert found(RANGE.map(function)) == []


def test_a_seeded_map_is_given_its_generator() -> None:
    assert found(RANGE.map(is_given_one, seed=1)) == []
    assert found(RANGE.map(has_a_default, seed=1)) == []
    assert found(RANGE.map(has_a_default)) != []


def test_a_file_that_is_closed_or_written_is_no_state(tmp_path: Path) -> None:
    with (tmp_path / "a").open("w", encoding="utf-8") as written:
        assert found(RANGE.map(lambda x: written.write(str(x)))) == []
        with (tmp_path / "a").open(encoding="utf-8") as read:
            dataset = RANGE.map(lambda x: read.readline())
            assert "a TextIOWrapper" in found(dataset)[0]
        assert found(RANGE.map(lambda x: read.readline())) == []


def test_sockets() -> None:
    mine, theirs = socket.socketpair()
    with mine, theirs:
        assert "reads `mine`, a socket.socket" in found(RANGE.map(lambda x: mine.recv(1)))[0]


def test_torch_is_looked_at_where_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = ModuleType("torch")

    class Generator: ...

    Generator.__module__ = "torch._C"
    held = Generator()
    vars(torch).update(Generator=Generator, rand=len, manual_seed=len, add=len)
    assert found(RANGE.map(lambda x: held)) == []
    monkeypatch.setitem(sys.modules, "torch", torch)

    def seeded(x: int) -> Any:
        torch.manual_seed(x)
        return torch.rand(3)

    assert "calls `torch.rand`" in found(RANGE.map(lambda x: torch.rand(3)))[0]
    assert found(RANGE.map(lambda x: torch.add(3))) == []
    assert found(RANGE.map(lambda x: torch.rand(3, generator=x))) == []
    assert found(RANGE.map(seeded)) == []
    assert "a torch." in found(RANGE.map(lambda x: held))[0]


# -- objects of any kind ---------------------------------------------------------------------------


class Slots:
    """Keeps its generator in a slot."""

    __slots__ = ("rng",)

    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)

    def __call__(self, x: int) -> float:
        return self.rng.random()


class Lazy:
    """Makes its generators when they are asked for."""

    @property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(None)

    @functools.cached_property
    def bits(self) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64())

    def by_property(self, x: int) -> float:
        return self.rng.random()

    def by_cached_property(self, x: int) -> float:
        return self.bits.random()


class Derived(Augment):
    def __call__(self, x: int) -> float:
        return super().__call__(x) + 1


def deep() -> list[Any]:
    inner: list[Any] = []
    for _ in range(100_000):
        inner = [inner]
    return inner


DEEP = deep()


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (Slots(), "Slots.__call__ reads `self.rng`, a numpy.random.Generator"),
        (Lazy().by_property, "Lazy.rng calls `np.random.default_rng()` without a seed"),
        (Lazy().by_cached_property, "Lazy.bits calls `np.random.PCG64()` without a seed"),
        (Derived(), "Augment._draw reads `self.rng`, a random.Random"),
        (lambda x: (DEEP, random.random()), "<lambda> calls `random.random`"),
    ],
)
def test_a_generator_that_is_hard_to_see(function: Any, what: str) -> None:
    assert found(RANGE.map(function)) == [what]


def test_a_table_of_tables_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most so many items are looked at, however many there are: half a million took 30 s."""
    table = [[[[0] * 60 for _ in range(60)] for _ in range(60)] for _ in range(4)]
    search = StateSearch(seeded=False)
    looked: list[Any] = []
    look = search._value

    def counted(*each: Any) -> None:
        looked.append(each)
        look(*each)

    monkeypatch.setattr(search, "_value", counted)
    search.value(lambda x: table[x], Finding("function"))
    search.run()

    assert 100 < len(looked) < 3000


ASKED: list[str] = []


def asked(name: str) -> Any:
    def method(*_: Any) -> Any:
        ASKED.append(name)
        raise RuntimeError(name)

    return method


class Meta(type):
    __eq__ = asked("== of the class")
    __hash__ = asked("hash of the class")
    __instancecheck__ = asked("isinstance")


class Proxy(metaclass=Meta):
    """A proxy like those that connect, or import, at the first look."""

    __class__ = property(asked("__class__"))
    __dict__ = property(asked("__dict__"))
    __wrapped__ = property(asked("__wrapped__"))
    value = property(asked("value"))

    def __getattribute__(self, name: str) -> Any:
        ASKED.append(name)
        raise RuntimeError(name)

    __eq__ = asked("==")
    __hash__ = asked("hash")
    __len__ = asked("len")
    __repr__ = asked("repr")

    def __call__(self, x: int) -> int:
        return x


class Table(dict[str, Any]):
    __len__ = asked("len of a dict")
    values = asked("values")


class Row(list[Any]):
    __len__ = asked("len of a list")
    __iter__ = asked("iter of a list")


class Stream(io.RawIOBase):
    closed = property(asked("closed"))
    name = property(asked("name"))
    readable = asked("readable")
    __hash__ = asked("hash of a file")

    def __del__(self) -> None:
        """Not as it is inherited, which asks whether it is closed."""


def test_nothing_of_an_object_is_asked() -> None:
    for held in (Proxy(), Table(a=RNG), Row([RNG]), Stream()):

        def by_name(x: int, held: Any = held) -> Any:
            return held.value, held.other.value, held(x)

        class Holder:
            def __init__(self) -> None:
                self.held = held  # noqa: B023 - used at once

            def __call__(self, x: int) -> Any:
                return self.held

        for function in (by_name, Holder(), functools.partial(pow, held), held):
            if callable(function):
                ASKED.clear()
                what = external_state(RANGE.map(function)._node)
                assert ASKED == []
                assert bool(what) == (type(held) is not Proxy and function is not held)


# -- nodes -----------------------------------------------------------------------------------------


class Photos:
    """A source of the user's, whose file is read by number."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.file = io.BytesIO(b"abc")

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        self.file.seek(index)
        return self.file.read(1), self.rng.random()


class Quiet(Photos):
    def __getitem__(self, index: int) -> Any:
        return index


def yields() -> Iterator[float]:
    for _ in range(3):
        yield random.random()


def yields_the_same() -> Iterator[float]:
    rng = np.random.default_rng(1)
    for _ in range(3):
        yield rng.random()


FLOAT = td.ArraySpec((), float)


def test_every_operator_is_looked_into() -> None:
    generated = Dataset.from_generator(yields, output_signature=FLOAT)
    replayed = Dataset.from_generator(yields_the_same, output_signature=FLOAT)

    assert external_state(generated.map(float)._node) == (
        ExternalState(
            "from_generator#0",
            "yields calls `random.random`",
            "its state belongs to this process, and each worker has its own",
            "make a generator with a seed inside it: np.random.default_rng(1)",
        ),
    )
    assert found(replayed) == []
    (photos,) = external_state(Dataset.from_source(Photos())._node)
    assert photos.what == "Photos.__getitem__ reads `self.rng`, a numpy.random.Generator"
    assert "default_rng((1, index))" in photos.instead
    assert found(Dataset.from_source(Quiet())) == []
    (kept,) = external_state(RANGE.shuffle(3).filter(draws_from_python).batch(2)._node)
    assert kept.node == "filter#2"
    assert kept.instead == "draw in a map(..., seed=) before it"
    (mapped,) = external_state(RANGE.map(draws_from_python)._node)
    assert mapped.instead == "take rng= and give map(..., seed=)"
    assert str(mapped) == (
        "map#1: draws_from_python calls `random.randint`: its state belongs to this process, and each worker "
        "has its own. Instead: take rng= and give map(..., seed=)"
    )
    for dataset in (
        RANGE.flat_map(lambda x: Dataset.range(dice(1, 3))),
        RANGE.interleave(lambda x: Dataset.range(3).map(draws_from_numpy)),
        RANGE.scan(0, lambda s, x: (s, random.random())),
        RANGE.take_while(draws_from_numpy),
        RANGE.group_by_window(draws_from_python, lambda k, d: d.batch(2), 2),
        RANGE.bucket_by_sequence_length(draws_from_python, [1], [1, 1]),
    ):
        assert len(found(dataset)) == 1, dataset
    assert found(RANGE.shuffle(3).repeat(2).rejection_resample(bool, [0.5, 0.5])) == []


class Odd:
    """Whose attributes cannot be asked for."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


def test_an_odd_object_keeps_nothing_from_being_saved() -> None:
    odd = Odd()

    def asks(x: int) -> Any:
        return odd.anything

    assert found(RANGE.map(asks)) == []
    assert found(RANGE.map(asks).map(draws_from_numpy)) != []


# -- the policy ------------------------------------------------------------------------------------


def test_it_is_warned_of_once() -> None:
    ds = RANGE.map(draws_from_numpy)
    with pytest.warns(UserWarning, match=r"state_dict\(\) does not include .* map#1: draws_f") as w:
        iter(ds).state_dict()
    assert [each.filename for each in w] == [__file__]

    iter(ds).state_dict()  # no warning, or it would be an error here
    with pytest.warns(UserWarning, match="map#1"):
        iter(RANGE.map(draws_from_numpy)).state_dict()


def test_saving_and_sending_a_plan_warn_too(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"state_dict\(\) does not include"):
        iter(RANGE.map(draws_from_numpy)).save(tmp_path / "state.json")
    with pytest.warns(UserWarning, match=r"to_bytes\(\) does not include"):
        RANGE.map(draws_from_numpy).to_bytes()


@pytest.mark.parametrize("policy", [POLICY.IGNORE, "ignore", POLICY.WARN, POLICY.FAIL, "FAIL"])
def test_nothing_is_said_of_a_plan_without(policy: Any) -> None:
    options = td.Options(external_state_policy=policy)
    ds = RANGE.map(is_given_one, seed=1).with_options(options)

    iter(ds).state_dict()
    assert ds.to_bytes()


def test_it_is_ignored() -> None:
    ds = RANGE.map(draws_from_numpy).with_options(td.Options(external_state_policy="ignore"))  # type: ignore[arg-type]  # a word

    iter(ds).state_dict()
    assert ds.to_bytes()


def test_it_fails(tmp_path: Path) -> None:
    ds = RANGE.map(draws_from_numpy).filter(reads_an_iterator)
    ds = ds.with_options(td.Options(external_state_policy=POLICY.FAIL))
    it = iter(ds)

    with pytest.raises(errors.ExternalStateError):
        it.state_dict()
    with pytest.raises(errors.CheckpointError, match=r"map#1: draws_from_numpy .*") as caught:
        it.state_dict()  # every time
    assert isinstance(caught.value, errors.ExternalStateError)
    assert [line.partition(":")[0] for line in caught.value.states] == ["map#1"] + ["filter#2"] * 2
    assert "take rng= and give map(..., seed=)" in str(caught.value)
    assert "'warn' and 'ignore' save it nevertheless" in str(caught.value)
    with pytest.raises(errors.ExternalStateError):
        it.save(tmp_path / "state.json")
    assert not (tmp_path / "state.json").exists()
    with pytest.raises(errors.ExternalStateError, match=r"to_bytes\(\) would not include"):
        ds.to_bytes()


def test_asking_again_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    node = RANGE.map(is_given_one, seed=1)._node
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        heed_external_state(node, "state_dict()")
        monkeypatch.setattr("tundish.loader.run.external.walk", None)  # nothing is walked again
        heed_external_state(node, "state_dict()")
        assert external_state(node) == ()
