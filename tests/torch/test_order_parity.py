"""Our samplers beside torch's: the same indices, and generators left at the same place.

Every check runs over many random configurations, always the same ones. A failure shows the
configuration: it stands on both sides of the comparison.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tundish as ours
from tundish.loader.dataloader.generators import as_generator
from tundish.loader.dataloader.torchrandom import TorchGenerator, default_generator
from tundish.loader.plan.node import set_seed

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("torch.utils.data")

EPOCHS = 3
SEEDS = (0, 1, 7, 123456789, 2**32 - 1, 2**32 + 5, -1, 2**63 + 11)


@pytest.fixture(autouse=True)
def seeds_are_given_back() -> Iterator[None]:
    """Global generators, torch's and ours, are as they were before the test."""
    with torch.random.fork_rng():
        yield
    set_seed(None)


def position(generator: Any) -> dict[str, Any]:
    """Return where a generator stands, torch's or ours."""
    return as_generator(generator).state_dict()


def generators(kind: str, seed: int) -> tuple[Any, Any, Callable[[], tuple[Any, Any]]]:
    """A generator for us, one for torch, and what shows where both stand."""
    if kind == "global":
        set_seed(seed % 2**63)
        torch.manual_seed(seed % 2**63)
        return None, None, lambda: (position(None), position(torch.default_generator))
    own = TorchGenerator(seed) if kind == "own" else torch.Generator().manual_seed(seed)
    other = torch.Generator().manual_seed(seed)
    return own, other, lambda: (position(own), position(other))


def epochs(sampler: Any, stops: list[int | None]) -> Iterator[list[Any]]:
    """Yield what each epoch gives, up to where it is broken off."""
    for stop in stops:
        given: list[Any] = []
        for index in sampler:
            if len(given) == stop:
                break
            given.append(index)
        yield given


def compare(
    config: dict[str, Any],
    own: Any,
    other: Any,
    stops: list[int | None],
    where: Callable[[], tuple[Any, Any]],
) -> None:
    """Epoch by epoch: the same length, the same items of the same types, the same position."""
    assert (config, len(own)) == (config, len(other))
    for mine, torchs in zip(epochs(own, stops), epochs(other, stops), strict=True):
        assert (config, mine) == (config, torchs)
        assert {type(item) for item in mine} <= {int, list}
        place, torchs_place = where()
        assert (config, place) == (config, torchs_place)


def size(draw: random.Random) -> int:
    """Mostly small; at times more than a block of permutation, or of Python ints."""
    return draw.choice(
        [1, 2, draw.randint(1, 50), draw.randint(51, 700), draw.randint(3000, 40000)]
    )


def stops(draw: random.Random, count: int) -> list[int | None]:
    """Return where epochs are broken off; the last is not."""
    return [draw.choice([None, 0, draw.randint(0, count)]) for _ in range(EPOCHS - 1)] + [None]


def test_every_draw() -> None:
    """Any sequence of draws gives what torch gives, and leaves the same state."""
    draw = random.Random(1)
    for number in range(120):
        seed = draw.choice(SEEDS)
        own, other = TorchGenerator(seed), torch.Generator().manual_seed(seed)
        borrowed = torch.Generator().manual_seed(seed)
        for _ in range(8):
            kind = draw.choice(["int64", "randperm", "randint", "uniform64", "multinomial"])
            arguments: tuple[Any, ...] = ()
            if kind == "int64":
                expected = torch.empty((), dtype=torch.int64).random_(generator=other).item()
            elif kind == "randperm":
                arguments = (draw.choice([0, 1, 2, size(draw), 2**15, 2**15 + 1, 2**15 + 2]),)
                expected = torch.randperm(*arguments, generator=other).tolist()
            elif kind == "randint":
                high = draw.choice([1, 7, 2**28 - 1, 2**28, 2**32, 2**40 + 3, 2**63 - 1])
                arguments = (high, draw.randint(0, 700))
                expected = torch.randint(high, arguments[1:], generator=other).tolist()
            elif kind == "uniform64":
                arguments = (draw.randint(0, 700),)
                expected = torch.rand(*arguments, dtype=torch.float64, generator=other).tolist()
                torch.rand(*arguments, dtype=torch.float64, generator=borrowed)
            else:
                weights = [draw.random() ** 3 for _ in range(draw.randint(1, 700))]
                arguments = (weights, draw.randint(1, len(weights)), draw.random() < 0.5)
                vector = torch.tensor(weights, dtype=torch.float64)
                expected = torch.multinomial(vector, *arguments[1:], generator=other).tolist()
            generators = (own, as_generator(borrowed))
            for generator in generators[: 1 if kind == "uniform64" else 2]:
                given = np.asarray(getattr(generator, kind)(*arguments)).tolist()

                assert (number, kind, given) == (number, kind, expected)
                assert (number, kind, position(generator)) == (number, kind, position(other))
            assert own.initial_seed() == other.initial_seed()


def test_a_long_permutation() -> None:
    own, other = TorchGenerator(5), torch.Generator().manual_seed(5)

    assert np.array_equal(own.randperm(10**6), torch.randperm(10**6, generator=other).numpy())
    assert position(own) == position(other)


def test_waits_are_torchs_to_the_last_bit() -> None:
    """Weights like torch's own waits make every chance 1, and then it is by number."""
    for seed in SEEDS:
        other = torch.Generator().manual_seed(seed)
        waits = torch.empty(3000, dtype=torch.float64).exponential_(generator=other)

        assert TorchGenerator(seed).multinomial(waits, 3000).tolist() == list(range(3000))


def test_states_cross_over() -> None:
    """A state of torch's generator goes on in ours and the other way round."""
    for drawn in (0, 1, 2, 623, 624, 625, 1000):
        other = torch.Generator().manual_seed(3)
        torch.randint(10, (drawn,), generator=other)
        own = TorchGenerator()
        own.load_state_dict(position(other))
        back = torch.Generator()
        torch.randn(3, generator=back)  # leaves half a pair behind, which is not the new state's
        as_generator(back).load_state_dict(own.state_dict())

        assert torch.equal(torch.randn(9, generator=back), torch.randn(9, generator=other))
        back.set_state(torch.Generator().manual_seed(3).get_state())
        torch.randint(10, (drawn,), generator=back)
        assert own.randperm(2000).tolist() == torch.randperm(2000, generator=back).tolist()
        assert own.initial_seed() == back.initial_seed() == 3


def test_what_as_generator_gives_advances_torchs_own() -> None:
    mine, other = torch.Generator().manual_seed(4), torch.Generator().manual_seed(4)
    as_generator(mine).randperm(9)
    torch.randperm(9, generator=other)

    assert torch.equal(mine.get_state(), other.get_state())
    weights = np.ones(4)
    weights.flags.writeable = False
    assert sorted(as_generator(mine).multinomial(weights, 4)) == [0, 1, 2, 3]
    as_generator(mine).manual_seed(6)
    assert mine.initial_seed() == 6


def test_random_sampler() -> None:
    draw = random.Random(2)
    for _ in range(150):
        n = size(draw)
        config: dict[str, Any] = {
            "n": n,
            "replacement": draw.random() < 0.4,
            "num_samples": draw.choice([None, 1, 31, 32, n, n + 1, 2 * n, draw.randint(1, 3 * n)]),
            "kind": draw.choice(["global", "own", "torch"]),
            "seed": draw.choice(SEEDS),
        }
        own, other, where = generators(config["kind"], config["seed"])
        arguments = (range(n), config["replacement"], config["num_samples"])
        ends = stops(draw, n)
        compare(
            config,
            ours.RandomSampler(*arguments, generator=own),
            theirs.RandomSampler(*arguments, generator=other),
            ends,
            where,
        )


def test_subset_random_sampler() -> None:
    draw = random.Random(3)
    for _ in range(100):
        indices = [draw.randint(0, 10**6) for _ in range(size(draw) - 1)]
        config: dict[str, Any] = {
            "n": len(indices),
            "kind": draw.choice(["global", "own", "torch"]),
            "seed": draw.choice(SEEDS),
        }
        own, other, where = generators(config["kind"], config["seed"])
        compare(
            config,
            ours.SubsetRandomSampler(indices, own),
            theirs.SubsetRandomSampler(indices, other),
            stops(draw, len(indices)),
            where,
        )


def with_gradient(weights: list[float]) -> Any:
    """Return a weight as a model has it that has learnt it."""
    return torch.tensor(weights, dtype=torch.float64, requires_grad=True)


def test_weighted_random_sampler() -> None:
    draw = random.Random(4)
    for _ in range(120):
        n = min(size(draw), 3000)
        weights = [draw.random() * 10 ** draw.uniform(-9, 9) for _ in range(n)]
        replacement = draw.random() < 0.5
        zeros = draw.randint(0, n - 1) if draw.random() < 0.5 else 0
        for at in draw.sample(range(n), zeros):
            weights[at] = 0.0
        count = draw.randint(1, 2 * n if replacement else n - zeros)
        config: dict[str, Any] = {
            "n": n,
            "count": draw.choice([1, count]),
            "replacement": replacement,
            "kind": draw.choice(["global", "own", "torch"]),
            "seed": draw.choice(SEEDS),
        }
        own, other, where = generators(config["kind"], config["seed"])
        form = draw.choice([list, tuple, np.array, torch.tensor, with_gradient])
        arguments = (form(weights), config["count"], replacement)
        compare(
            config,
            ours.WeightedRandomSampler(*arguments, generator=own),
            theirs.WeightedRandomSampler(*arguments, generator=other),
            stops(draw, config["count"]),
            where,
        )


def test_batch_sampler() -> None:
    """Over every other sampler: the batches, and how far the generator has come at each."""
    draw = random.Random(5)
    for _ in range(120):
        n = min(size(draw), 700)
        config: dict[str, Any] = {
            "n": n,
            "batch_size": draw.choice([1, 2, draw.randint(1, 2 * n), n]),
            "drop_last": draw.random() < 0.5,
            "shuffle": draw.random() < 0.7,
            "replacement": draw.random() < 0.5,
            "kind": draw.choice(["global", "own", "torch"]),
            "seed": draw.choice(SEEDS),
        }
        own, other, where = generators(config["kind"], config["seed"])
        made = [
            home.RandomSampler(range(n), config["replacement"], generator=generator)
            if config["shuffle"]
            else home.SequentialSampler(range(n))
            for home, generator in ((ours, own), (theirs, other))
        ]
        rest = (config["batch_size"], config["drop_last"])
        mine, torchs = ours.BatchSampler(made[0], *rest), theirs.BatchSampler(made[1], *rest)
        compare(config, mine, torchs, stops(draw, n), where)
        for batch, torchs_batch in zip(mine, torchs, strict=True):
            assert (config, batch, where()[0]) == (config, torchs_batch, where()[1])


def test_distributed_sampler() -> None:
    draw = random.Random(6)
    before = position(default_generator())
    for _ in range(200):
        n = draw.choice([0, 1, 2, size(draw) - 1])
        replicas = draw.choice([1, 2, 3, draw.randint(1, 20)])
        config: dict[str, Any] = {
            "num_replicas": replicas,
            "rank": draw.randrange(replicas),
            "shuffle": draw.random() < 0.7,
            "seed": draw.choice([0, 5, 123456789, 2**33]),
            "drop_last": draw.random() < 0.5,
        }
        own = ours.DistributedSampler(range(n), **config)
        other = theirs.DistributedSampler(range(n), **config)
        for name in ("num_samples", "total_size", "epoch", *config):
            assert (config, name, getattr(own, name)) == (config, name, getattr(other, name))
        for epoch in (None, draw.randint(1, 3), draw.randint(4, 9), 0):
            if epoch is not None:
                own.set_epoch(epoch)
                other.set_epoch(epoch)
            torchs = list(other)
            mine = list(own)

            assert (n, config, epoch, len(own), mine) == (n, config, epoch, len(other), torchs)
            assert {type(index) for index in mine} <= {int}
            assert own.share(0)[0].tolist() == torchs
    assert position(default_generator()) == before


CHANGED = [(10, 9), (10, 7), (10, 11), (10, 12), (9, 8), (9, 10), (9, 12), (3, 0)]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("before", "after"), CHANGED)
def test_a_dataset_that_changes_its_length(before: int, after: int, drop_last: bool) -> None:
    results: list[Any] = []
    for home in (ours, theirs):
        data = list(range(before))
        sampler = home.DistributedSampler(data, 2, 1, shuffle=False, drop_last=drop_last)
        data[:] = range(after)
        try:
            results.append(list(sampler))
        except (AssertionError, ZeroDivisionError):
            results.append("refused")

    assert results[0] == results[1]


WRONG: list[Callable[[Any], Any]] = [
    lambda home: list(home.Sampler()),
    lambda home: home.Sampler([1]),
    lambda home: len(home.Sampler()),
    lambda home: home.RandomSampler(range(0)),
    lambda home: home.RandomSampler(range(3), replacement=1),
    lambda home: home.RandomSampler(range(3), num_samples=0),
    lambda home: home.RandomSampler(range(3), num_samples=2.0),
    lambda home: home.RandomSampler(range(3), num_samples=np.int64(2)),
    lambda home: home.RandomSampler(iter("abc")),
    lambda home: list(home.RandomSampler(range(0), num_samples=4)),
    lambda home: list(home.RandomSampler(range(0), True, num_samples=4)),
    lambda home: home.SubsetRandomSampler(),
    lambda home: home.WeightedRandomSampler([[1.0]], 2),
    lambda home: home.WeightedRandomSampler(1.0, 2),
    lambda home: home.WeightedRandomSampler(["a"], 2),
    lambda home: home.WeightedRandomSampler([1.0], 0),
    lambda home: home.WeightedRandomSampler([1.0], True),
    lambda home: home.WeightedRandomSampler([1.0], 1.5),
    lambda home: home.WeightedRandomSampler([1.0], 2, replacement=1),
    lambda home: list(home.WeightedRandomSampler([1.0], 2, replacement=False)),
    lambda home: list(home.WeightedRandomSampler([0.0, 0.0], 2)),
    lambda home: list(home.WeightedRandomSampler([0.0, 0.0], 1, False)),
    lambda home: list(home.WeightedRandomSampler([1.0, -1.0], 2)),
    lambda home: list(home.WeightedRandomSampler([1.0, float("nan")], 2, False)),
    lambda home: list(home.WeightedRandomSampler([1.0, float("inf")], 2)),
    lambda home: list(home.WeightedRandomSampler([], 1)),
    lambda home: home.BatchSampler(range(3), 0, False),
    lambda home: home.BatchSampler(range(3), True, False),
    lambda home: home.BatchSampler(range(3), 1.0, False),
    lambda home: home.BatchSampler(range(3), 2, 1),
    lambda home: len(home.BatchSampler(iter("abc"), 2, False)),
    lambda home: home.DistributedSampler(range(3)),
    lambda home: home.DistributedSampler(range(3), 2),
    lambda home: home.DistributedSampler(range(3), 2, 2),
    lambda home: home.DistributedSampler(range(3), 2, -1),
    lambda home: home.DistributedSampler(range(3), 0, 0),
    lambda home: home.DistributedSampler(iter("abc"), 2, 0),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_what_torch_refuses(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the same type of exception."""
    for variable in ("WORLD_SIZE", "RANK"):
        monkeypatch.delenv(variable, raising=False)
    types = []
    for home in (theirs, ours):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - its type is what is compared
            WRONG[number](home)
        types.append(caught.type)

    assert types[0] is types[1]


def test_names_and_defaults() -> None:
    """The constructors take what torch's take, in the same order, with the same defaults."""
    from inspect import signature

    names = [name for name in ours.__all__ if name.endswith("Sampler")]
    for name in names:
        own = signature(getattr(ours, name).__init__).parameters
        other = signature(getattr(theirs, name).__init__).parameters
        extra = {"uneven"} if name == "DistributedSampler" else set()

        assert [key for key in own if key not in extra] == list(other)
        assert all(own[key].default == other[key].default for key in other)
        assert all(own[key].kind is own[key].KEYWORD_ONLY for key in extra)
    assert len(names) == 7
