"""Torch's generator without torch: numbers recorded from torch 2.13, and what keeps them so.

`tests/torch/test_order_parity.py` compares with torch itself.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import pickle
import random
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

import tundish as td
from tundish.errors import CheckpointError
from tundish.loader.dataloader.generators import BorrowedGenerator, as_generator
from tundish.loader.dataloader.permutation import inside_out, multinomial, swapping
from tundish.loader.dataloader.torchrandom import TorchGenerator, default_generator

WEIGHTS = [0.1, 0.9, 0.4, 0.7, 3.0, 0.6]


class Recorded(NamedTuple):
    """Draws of one torch.Generator, in this order."""

    initial_seed: int
    int64: list[int]
    randperm: list[int]
    randint: list[int]
    large: list[int]
    uniform64: list[float]
    replaced: list[int]
    taken: list[int]
    one: list[int]


RECORDED = {
    0: Recorded(
        0,
        [900450186894289455, 3969543146641149120],
        [3, 0, 1, 6, 5, 4, 7, 2],
        [66, 56, 99, 78, 76],
        [97308044, 172507841, 267012647],
        [0.17679952620371409, 0.35526675833930643],
        [4, 4, 4, 4, 2, 4],
        [3, 4, 1, 5, 2, 0],
        [4],
    ),
    123456789: Recorded(
        123456789,
        [605662376642686620, 629709215729850329],
        [2, 4, 1, 0, 6, 3, 7, 5],
        [91, 73, 56, 84, 72],
        [155413359, 122545102, 15108068],
        [0.3892189261016731, 0.38506155540999976],
        [4, 3, 4, 1, 1, 4],
        [2, 4, 5, 1, 3, 0],
        [4],
    ),
    -1: Recorded(
        18446744073709551615,
        [1800993050274709794, 7607120784305990727],
        [4, 2, 6, 7, 5, 1, 3, 0],
        [87, 22, 23, 95, 58],
        [196500621, 120454231, 36082390],
        [0.3767160307597136, 0.9624984127586781],
        [3, 4, 3, 3, 3, 4],
        [1, 5, 4, 3, 2, 0],
        [4],
    ),
}
# blake2b of torch.randperm(n) with seed 7: around a block of ours, and several.
DIGESTS = {
    2**15: "ee663207fa4895ea",
    2**15 + 1: "74eca0d0bae4677e",
    2**15 + 2: "fa992467a9e5f44c",
    10**5: "ef2008ea14b8d20c",
}


@pytest.fixture(autouse=True)
def no_seed_is_left() -> Iterator[None]:
    yield
    td.set_seed(None)


@pytest.mark.parametrize("seed", RECORDED)
def test_recorded_draws(seed: int) -> None:
    g, known = TorchGenerator().manual_seed(seed), RECORDED[seed]

    assert [g.int64() for _ in known.int64] == known.int64
    assert g.randperm(8).tolist() == known.randperm
    assert g.randint(100, 5).tolist() == known.randint
    assert g.randint(2**28, 3).tolist() == known.large
    assert g.uniform64(2).tolist() == known.uniform64
    assert g.multinomial(WEIGHTS, 6, replacement=True).tolist() == known.replaced
    assert g.multinomial(WEIGHTS, 6).tolist() == known.taken
    assert g.multinomial(WEIGHTS, 1, replacement=True).tolist() == known.one
    assert g.initial_seed() == known.initial_seed


@pytest.mark.parametrize("n", DIGESTS)
def test_recorded_permutations(n: int) -> None:
    order = TorchGenerator(7).randperm(n)
    digest = hashlib.blake2b(order.astype("<i8").tobytes(), digest_size=8).hexdigest()

    assert order.dtype == np.int64
    assert digest == DIGESTS[n]


def test_the_seed_of_a_generator_nobody_has_seeded() -> None:
    assert TorchGenerator().initial_seed() == 67280421310721
    assert TorchGenerator().randperm(5).tolist() == [0, 1, 4, 3, 2]


def test_seeds() -> None:
    """The low 32 bits make the stream; what is no seed is refused, and nothing has changed."""
    first = TorchGenerator(5).randperm(50).tolist()

    assert TorchGenerator(5 + 2**32).randperm(50).tolist() == first
    assert TorchGenerator(5 - 2**63).randperm(50).tolist() == first
    assert TorchGenerator(np.int64(5)).randperm(50).tolist() == first
    assert TorchGenerator(6).randperm(50).tolist() != first
    g = TorchGenerator(5)
    for wrong in (2**64, -(2**63) - 1):
        with pytest.raises(ValueError, match="seed must lie"):
            g.manual_seed(wrong)
    for other in (1.5, "5", None):
        with pytest.raises(TypeError):
            g.manual_seed(other)  # type: ignore[arg-type] # that is the point
    assert g.initial_seed() == 5
    assert g.randperm(50).tolist() == first


def test_seed_draws_from_the_system() -> None:
    g = TorchGenerator()
    seeds = [g.seed() for _ in range(3)]

    assert len(set(seeds)) == 3
    assert g.initial_seed() == seeds[-1]
    assert g.int64() == TorchGenerator(seeds[-1]).int64()


@pytest.mark.parametrize("n", [0, 1])
def test_what_needs_no_draw_takes_none(n: int) -> None:
    g = TorchGenerator(1)

    assert g.randperm(n).tolist() == list(range(n))
    assert g.randint(5, 0).tolist() == g.uniform64(0).tolist() == []
    assert g.state_dict() == TorchGenerator(1).state_dict()


def swapped(n: int, draws: list[int]) -> list[int]:
    """One step after the other, as `swapping` says."""
    values = list(range(n))
    for i in range(n - 1):
        j = i + draws[i] % (n - i)
        values[i], values[j] = values[j], values[i]
    return values


def grown(n: int, draws: list[int]) -> list[int]:
    """One step after the other, as `inside_out` says."""
    values: list[int] = []
    for i in range(n):
        j = draws[i] % (i + 1)
        values.append(values[j] if j < i else i)
        values[j] = i
    return values


@pytest.mark.parametrize("block", [1, 2, 3, 7, 16, 1000])
@pytest.mark.parametrize(("shuffle", "plainly"), [(swapping, swapped), (inside_out, grown)])
def test_blocks_do_not_show(
    shuffle: Callable[..., np.ndarray], plainly: Callable[..., list[int]], block: int
) -> None:
    rng = np.random.default_rng(block)
    for n in (0, 1, 2, 3, 4, 10, 100):
        for spread in (2, 5, 2**32) * 3:  # a small spread draws the same places again and again
            draws = rng.integers(0, spread, n + 1, dtype=np.uint64)
            rest = draws
            taken = 0

            def draw(count: int) -> np.ndarray:
                nonlocal rest, taken
                first, rest = rest[:count], rest[count:]
                taken += count
                return first

            assert shuffle(n, draw, block).tolist() == plainly(n, draws.tolist())
            assert taken == max(0, n - 1 if shuffle is swapping else n)


def test_a_long_permutation_is_drawn_in_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 214,748,364 on; that length was compared with torch's once, by hand, and is equal."""
    from tundish.loader.dataloader import torchrandom

    assert torchrandom.HUGE == 214_748_364
    monkeypatch.setattr(torchrandom, "HUGE", 20)
    pairs = TorchGenerator(3).random_raw32(40).reshape(20, 2).tolist()

    assert TorchGenerator(3).randperm(20).tolist() == grown(20, [a << 32 | b for a, b in pairs])
    assert TorchGenerator(3).randperm(19).tolist() == swapped(
        19, TorchGenerator(3).random_raw32(18).tolist()
    )


@pytest.mark.parametrize("drawn", [0, 1, 623, 624, 625, 2000])
def test_a_state_goes_on_anywhere(drawn: int) -> None:
    g = TorchGenerator(9)
    g.random_raw32(drawn)
    text = json.dumps(g.state_dict())
    copies = [TorchGenerator(1), copy.deepcopy(g), pickle.loads(pickle.dumps(g))]
    copies[0].load_state_dict(json.loads(text))
    expected = (g.randperm(700).tolist(), g.int64())

    assert len(text) < 4096
    for other in copies:
        assert json.dumps(other.state_dict()) == text
        assert (other.randperm(700).tolist(), other.int64()) == expected
        assert other.initial_seed() == 9


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "philox"},
        {"position": 625},
        {"position": -1},
        {"position": "here"},
        {"words": "AAAA"},
        {"words": "AAAAAAAAAAAAAAAAAAAAAA=="},
        {"words": "?" * 3328},
        {"words": None},
        {"seed": None},
    ],
)
def test_what_is_no_state_is_refused(change: dict[str, Any]) -> None:
    g = TorchGenerator(1)
    before = g.state_dict()
    with pytest.raises(CheckpointError, match="not a"):
        g.load_state_dict({**before, **change})
    with pytest.raises(CheckpointError, match="not a"):
        g.load_state_dict({})

    assert g.state_dict() == before


def test_numbers_that_cannot_be_drawn() -> None:
    """By torch's type of exception; the generator has not moved."""
    g = TorchGenerator(1)
    draws: list[Callable[[], object]] = [
        lambda: g.randperm(-1),
        lambda: g.randint(0, 3),
        lambda: g.multinomial(WEIGHTS, 0),
        lambda: g.multinomial(WEIGHTS, 7),
        lambda: g.multinomial([], 1),
        lambda: g.multinomial([[1.0]], 1),
        lambda: g.multinomial([1.0, -1.0], 1),
        lambda: g.multinomial([1.0, float("nan")], 2, replacement=True),
        lambda: g.multinomial([1.0, float("inf")], 2, replacement=True),
        lambda: g.multinomial([0.0, 0.0], 2, replacement=True),
        lambda: g.multinomial(np.ones(2**24 + 1), 1),
    ]
    for draw in draws:
        with pytest.raises(RuntimeError):
            draw()

    assert g.state_dict() == TorchGenerator(1).state_dict()


def test_a_number_on_a_boundary_is_the_lower_weights() -> None:
    given = np.array([0.0, 0.25, 0.2500001, 0.5, 0.9999999])
    drawn = multinomial(np.array([1.0, 1.0, 2.0]), 5, True, lambda count: given)

    assert drawn.tolist() == [0, 0, 1, 1, 2]


def test_waits_are_the_c_librarys_to_the_last_bit() -> None:
    """Weights like the waits make every chance 1: then it is by number, else nearly never."""
    uniform = np.random.default_rng(1).random(5000)
    weights = np.array([-math.log1p(-float(u)) for u in uniform])

    assert multinomial(weights, 5000, False, lambda count: uniform).tolist() == list(range(5000))


def test_weights_of_zero_come_last() -> None:
    drawn = TorchGenerator(1).multinomial([0, 1, 0, 2, 0], 5).tolist()

    assert sorted(drawn[:2]) == [1, 3]
    assert drawn[2:] == [0, 2, 4]
    many = np.tile([0.0, 1.0, 0.0], 1000)
    assert np.array_equal(
        TorchGenerator(1).multinomial(many, 3000)[1000:], np.flatnonzero(many == 0)
    )
    assert set(TorchGenerator(1).multinomial([0, 1, 0], 99, replacement=True).tolist()) == {1}


def test_the_default_generator_follows_set_seed() -> None:
    td.set_seed(5)
    first = default_generator()
    drawn = [first.int64() for _ in range(3)]
    again = default_generator()
    later = again.int64()
    td.set_seed(5)  # the same seed: from the beginning, as torch.manual_seed does

    assert again is first
    assert later not in drawn
    assert [default_generator().int64() for _ in range(3)] == drawn
    assert drawn[0] == TorchGenerator(5).int64()
    td.set_seed(None)
    unseeded = [default_generator().initial_seed() for _ in range(2)]
    assert unseeded[0] == unseeded[1] != 5
    td.set_seed(None)
    assert default_generator().initial_seed() != unseeded[0]


def test_no_global_state_is_touched() -> None:
    before = random.getstate(), pickle.dumps(np.random.get_state())  # noqa: NPY002
    td.set_seed(5)
    default_generator().randperm(10)
    TorchGenerator().seed()
    TorchGenerator(4).multinomial(WEIGHTS, 3)

    assert random.getstate() == before[0]
    assert pickle.dumps(np.random.get_state()) == before[1]  # noqa: NPY002


def test_as_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours as it is, none as the default, torch's borrowed; torch is never imported for it."""

    class Alike:
        """An object that looks like a torch.Generator."""

        def get_state(self) -> None: ...
        def manual_seed(self, seed: int) -> None: ...

    own = TorchGenerator()
    monkeypatch.delitem(sys.modules, "torch", raising=False)

    assert as_generator(own) is own
    assert as_generator(None) is default_generator()
    for wrong in (Alike(), np.random.RandomState(1), 5, random.Random()):
        with pytest.raises(TypeError, match=r"a torch\.Generator"):
            as_generator(wrong)
    assert "torch" not in sys.modules
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    alike = Alike()
    borrowed = as_generator(alike)
    assert isinstance(borrowed, BorrowedGenerator)
    assert borrowed.generator is alike
    assert as_generator(borrowed) is borrowed
    with pytest.raises(TypeError, match="RandomState"):
        as_generator(np.random.RandomState(1))
