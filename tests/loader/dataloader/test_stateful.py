"""Resume anywhere, whoever has the state: the dataset, the sampler, their iterators, or nobody.

For each step of two epochs, their border included: a loader that was not there, with datasets and samplers
that were not there, continues exactly as an unbroken run; and so does another one from where that one was.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from tests.loader.dataloader.datasets import Numbers
from tests.loader.dataloader.stated import SAMPLERS, STREAMS, Counted, Epochs, Steady
from tests.torch.datasets import Resetting

import tundish as td
from tundish.errors import IncompatibleCheckpointError
from tundish.loader.dataloader.torchrandom import default_generator

SIZE, BATCH, EPOCHS = 7, 2, 3
NOT_YET, OVER = -1, -2  # states before the epoch's first batch, and after its end


def made(kind: str, workers: int = 0, **options: Any) -> Any:
    """A loader of datasets and samplers that nobody has used."""
    if workers:
        options |= {"num_workers": workers, "persistent_workers": True}
    if kind in STREAMS:
        return td.DataLoader(STREAMS[kind](SIZE), batch_size=BATCH, **options)
    dataset = Counted(SIZE) if "counted" in kind else list(range(SIZE))
    if "shuffled" in kind:
        return td.DataLoader(dataset, BATCH, shuffle=True, **options)
    if kind == "subset":
        return td.DataLoader(dataset, BATCH, sampler=td.SubsetRandomSampler(range(SIZE)), **options)
    if "seeded" in kind:
        generator = td.TorchGenerator(5)
        return td.DataLoader(dataset, BATCH, shuffle=True, generator=generator, **options)
    sampler = (
        SAMPLERS[kind.split(maxsplit=1)[0]](SIZE) if kind.split(maxsplit=1)[0] in SAMPLERS else None
    )
    return td.DataLoader(dataset, BATCH, sampler=sampler, **options)


def run(loader: Any, epochs: int) -> tuple[list[list[Any]], dict[tuple[int, int], str]]:
    """The batches of each epoch, and the state after each, as text."""
    batches: list[list[Any]] = []
    states = {}
    for epoch in range(epochs):
        batches.append([])
        iterator = iter(loader)
        states[epoch, NOT_YET] = json.dumps(loader.state_dict())
        for batch in iterator:
            batches[-1].append(batch.tolist())
            states[epoch, len(batches[-1])] = json.dumps(loader.state_dict())
        states[epoch, OVER] = json.dumps(loader.state_dict())
    return batches, states


def rest(batches: list[list[Any]], place: tuple[int, int]) -> list[list[Any]]:
    """Return the batches that are to come, epoch by epoch."""
    epoch, step = place
    if step == OVER:
        return batches[epoch + 1 :]
    return [batches[epoch][max(step, 0) :], *batches[epoch + 1 :]]


def resumed(kind: str, state: str, workers: int = 0) -> Any:
    loader = made(kind, workers)
    loader.load_state_dict(json.loads(state))
    return loader


KINDS = [*STREAMS, *SAMPLERS, "plain", "counted", "Turning counted", "seeded", "seeded counted"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_state_continues(kind: str) -> None:
    whole, states = run(made(kind), EPOCHS)
    assert run(made(kind), EPOCHS)[0] == whole, "what is given depends on nothing else"
    for place, state in states.items():
        wanted = rest(whole, place)
        found, again = run(resumed(kind, state), len(wanted))
        assert found == wanted, place
        for other, second in itertools.islice(again.items(), 0, None, 3):
            further = rest(found, other)[:1]
            assert run(resumed(kind, second), len(further))[0] == further, (place, other)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Epochs", "Both", "Turning counted"])
def test_every_state_continues_in_workers(kind: str) -> None:
    whole, states = run(made(kind, 2), EPOCHS)
    for place in [(0, 2), (0, OVER), (1, NOT_YET), (1, 1)]:
        wanted = rest(whole, place)
        assert run(resumed(kind, states[place], 2), len(wanted))[0] == wanted, place


@pytest.mark.parametrize("begun", [False, True], ids=["between epochs", "before the first batch"])
@pytest.mark.parametrize("kind", ["shuffled", "shuffled counted", "subset"])
def test_a_state_has_the_order_that_comes_next(kind: str, *, begun: bool) -> None:
    """Also where nothing of it has been drawn; and wherever the process's generator is when it is loaded."""
    loader = made(kind)
    list(loader)
    iterator: Any = iter(loader) if begun else None
    state = json.dumps(loader.state_dict())
    at = default_generator().state_dict()
    wanted = [[batch.tolist() for batch in iterator or loader]]
    wanted.append([batch.tolist() for batch in loader])

    assert [batch.tolist() for batch in resumed(kind, state)] == wanted[0]
    default_generator().load_state_dict(at)
    again = resumed(kind, state)
    assert [[batch.tolist() for batch in again] for _ in range(2)] == wanted


@pytest.mark.parametrize("kind", ["shuffled", "subset"])
@pytest.mark.parametrize("others", ["draw", "seed"])
def test_asking_for_a_state_changes_nothing(kind: str, others: str) -> None:
    """Not even if others draw, or the process is seeded, before the next batch."""

    def run_of(*, asked: bool) -> Any:
        default_generator().manual_seed(3)
        loaders = made(kind), made(kind)
        found = []
        for turn in range(3):
            iterators: list[Any] = []
            for step in range(2):
                if asked:
                    for loader in loaders:
                        loader.state_dict()
                if others == "seed":
                    default_generator().manual_seed(turn * 2 + step)
                iterators = iterators or [iter(loader) for loader in loaders]
            found += [[batch.tolist() for batch in iterator] for iterator in iterators]
        return found, default_generator().state_dict()

    assert run_of(asked=True) == run_of(asked=False)


def test_a_generator_that_is_seeded_between_epochs_is_in_the_state_as_it_is() -> None:
    loader = made("seeded")
    list(loader)
    loader.state_dict()
    loader.generator.manual_seed(8)
    state = json.dumps(loader.state_dict())

    assert [b.tolist() for b in resumed("seeded", state)] == [b.tolist() for b in loader]


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0)])
@pytest.mark.parametrize("kind", ["counted", "Epochs"])
def test_copies_with_a_state_are_as_many_as_they_were(kind: str, before: int, after: int) -> None:
    loader = made(kind, before)
    next(iter(loader))
    other = resumed(kind, json.dumps(loader.state_dict()), after)

    with pytest.raises(IncompatibleCheckpointError, match="replica"):
        next(iter(other))
    with pytest.raises(AssertionError):  # torchdata's
        next(iter(resumed(kind, json.dumps(loader.state_dict()), after)))


class Faulty(Epochs):
    """One of its numbers raises; the iteration can be continued."""

    def __iter__(self) -> Any:
        numbers = super().__iter__()

        def following() -> Any:
            found = next(numbers, None)
            if found is not None and found % 1000 == 3:
                raise ValueError(found)
            return found

        return iter(following, None)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_loses_no_state(workers: int) -> None:
    def loader() -> Any:
        return td.DataLoader(
            Faulty(SIZE), batch_size=1, num_workers=workers, persistent_workers=bool(workers)
        )

    def outcomes(loader: Any) -> list[Any]:
        found, iterator = [], iter(loader)
        while True:
            try:
                found.append(next(iterator).tolist())
            except ValueError as error:
                found.append(error.args)
            except StopIteration:
                return found

    whole = loader()
    first, second = outcomes(whole), outcomes(whole)
    assert first[3] == (3,)
    broken = loader()
    iterator = iter(broken)
    for _ in range(3):
        next(iterator)
    with pytest.raises(ValueError, match="3"):
        next(iterator)
    again = loader()
    again.load_state_dict(json.loads(json.dumps(broken.state_dict())))
    assert outcomes(again) == first[4:]
    assert outcomes(again) == second


OLD = json.loads(Path(__file__).with_name("states-0.1.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", OLD)
def test_a_state_that_an_earlier_version_wrote(name: str) -> None:
    """Earlier states lack the keys that have come since."""
    old = OLD[name]
    workers = old["workers"]
    if old["make"] == "stream":
        loader = td.DataLoader(Resetting((5, 3), "tundish"), 2, num_workers=workers)
    elif old["make"] == "sampler":
        loader = td.DataLoader(Numbers(11), 2, sampler=Steady(11), num_workers=workers)
    else:
        generator = td.TorchGenerator(9) if old["make"] == "seeded" else None
        loader = td.DataLoader(
            Numbers(11), 2, shuffle=True, generator=generator, num_workers=workers
        )
    loader.load_state_dict(old["state"])
    if old["state"]["ended"]:
        whole = {"stream": 5, "sampler": 11, "seeded": 11}[old["make"]]
        assert sum(len(batch) for batch in loader) == whole, "the next epoch"
    else:
        assert [batch.tolist() for batch in loader] == old["rest"]
