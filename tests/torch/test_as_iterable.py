"""A dataset of ours in torch's own loader, in its workers too, and resumed by torchdata's."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402 - behind the skip

import tundish as td  # noqa: E402
from tundish.torch import as_iterable  # noqa: E402
from tundish.torch import iterable as module  # noqa: E402

UNSEEDED = td.Dataset.range(10).shuffle(10)


def double(x: int) -> dict[str, Any]:
    return {"x": 2 * x, "name": str(x)}


def ints(elements: Any) -> list[int]:
    return [int(x) for x in elements]


@pytest.fixture(autouse=True)
def _quick_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's class waits so long, now and then, for a worker that is about to end."""
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.5)


def test_it_is_torch_s_and_gives_tensors() -> None:
    found = as_iterable(td.Dataset.range(3).map(double))

    assert isinstance(found, torch.utils.data.IterableDataset)
    assert list(found)[1] == {"x": torch.tensor(2), "name": "1"}
    assert len(found) == 3


def test_tensors_are_views_of_the_slot() -> None:
    ds = td.Dataset.range(3).map(lambda i: np.full(1 << 17, i))
    found = as_iterable(ds.with_options(td.Options(workers=1)))
    it = iter(found)
    held = list(it)

    assert it._it.stats.leased == 3
    assert [t[0].item() for t in held] == [0, 1, 2]
    it.close()


def test_torch_s_loader_passes_batches_on() -> None:
    ds = td.Dataset.range(5).map(double).batch(2).with_options(td.Options(workers=2))
    loader = DataLoader(as_iterable(ds), batch_size=None)

    assert [b["x"].tolist() for b in loader] == [[0, 2], [4, 6], [8]]
    assert len(loader) == 3


def test_torch_s_loader_makes_batches() -> None:
    loader = DataLoader(as_iterable(td.Dataset.range(5).map(double)), batch_size=2)

    assert [b["x"].tolist() for b in loader] == [[0, 2], [4, 6], [8]]
    assert len(loader) == 3


def test_each_pass_in_this_process_is_the_next_iteration() -> None:
    ds = td.Dataset.range(10).shuffle(10, seed=1)
    loader = DataLoader(as_iterable(ds), batch_size=None)
    passes = [ints(loader) for _ in range(3)]

    assert passes == [ints(ds.iterator(iteration=k)) for k in range(3)]
    loader.dataset.set_epoch(1)
    assert ints(loader) == passes[1]


@pytest.mark.slow
@pytest.mark.parametrize("persistent", [False, True])
def test_nothing_comes_twice_in_torch_s_workers(persistent: bool) -> None:
    loader = DataLoader(
        as_iterable(UNSEEDED),
        batch_size=None,
        num_workers=3,
        multiprocessing_context="fork",
        persistent_workers=persistent,
    )
    first, again = ints(loader), ints(loader)
    loader.dataset.set_epoch(1)
    second = ints(loader)

    assert sorted(first) == list(range(10))
    assert first == again  # as with torch's DistributedSampler
    assert sorted(second) == list(range(10))
    assert second != first


def test_copies_in_other_processes_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spawned workers get each its own unpickled copy, and nothing of this process."""
    td.set_seed(7)
    try:
        found = as_iterable(UNSEEDED)
        here = ints(found)
    finally:
        td.set_seed(None)
    there = []
    for worker in range(3):
        copy = pickle.loads(pickle.dumps(found))
        info = SimpleNamespace(id=worker, num_workers=3)
        monkeypatch.setattr(module, "get_worker_info", lambda info=info: info)
        there.append(ints(copy))
        td.set_seed(None)

    assert [there[k % 3][k // 3] for k in range(10)] == here


@pytest.mark.slow
def test_a_torch_worker_computes_its_share_in_its_own_process() -> None:
    ds = td.Dataset.range(6).map(lambda _: __import__("os").getpid())
    loader = DataLoader(
        as_iterable(ds.with_options(td.Options(workers=4))), batch_size=None, num_workers=2
    )
    pids = ints(loader)

    assert len(set(pids)) == 2
    assert pids[0::2] == [pids[0]] * 3


def test_a_length_that_is_not_known() -> None:
    found = as_iterable(td.Dataset.range(5).filter(lambda x: x > 2))
    with pytest.raises(TypeError, match="not known"):
        len(found)
    assert ints(DataLoader(found, batch_size=None)) == [3, 4]


def test_other_things_are_refused() -> None:
    with pytest.raises(TypeError, match="takes a tundish Dataset, not list"):
        as_iterable([1])  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("at", [0, 3, 6])
def test_torchdata_resumes_it(at: int) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    ds = td.Dataset.range(12).shuffle(4, seed=1).batch(2)
    whole = [[b.tolist() for b in ds.iterator(iteration=k)] for k in range(3)]

    loader = stateful(as_iterable(ds), batch_size=None)
    list(loader)
    it = iter(loader)
    seen = [next(it).tolist() for _ in range(at)]
    state = loader.state_dict()
    assert seen == whole[1][:at]

    fresh = stateful(as_iterable(ds), batch_size=None)
    fresh.load_state_dict(state)
    assert [b.tolist() for b in fresh] == whole[1][at:]
    assert [b.tolist() for b in fresh] == whole[2]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
def test_torchdata_resumes_it_in_its_workers() -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    ds = td.Dataset.range(12).shuffle(None, seed=1)

    def loader() -> Any:
        return stateful(as_iterable(ds), batch_size=None, num_workers=2)

    whole = ints(loader())
    first = loader()
    it = iter(first)
    seen = [int(next(it)) for _ in range(5)]
    state = first.state_dict()
    del it
    second = loader()
    second.load_state_dict(state)

    assert whole == ints(ds.iterator())
    assert seen + ints(second) == whole
