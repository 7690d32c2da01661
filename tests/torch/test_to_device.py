"""Batches copied ahead of the loop: on the CPU, and with streams and events written down."""

from __future__ import annotations

import contextlib
import gc
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.torch.datasets import Numbers  # noqa: E402

import tundish as td  # noqa: E402 - behind the skip
from tundish.torch import DataLoader, to_device  # noqa: E402
from tundish.torch import device as module  # noqa: E402

BATCHES = td.Dataset.range(12).map(lambda x: {"x": x, "name": "a"}).batch(2)


def lists(batches: Any) -> list[Any]:
    return [batch["x"].tolist() for batch in batches]


@pytest.mark.parametrize("depth", [0, 2])
def test_nests_of_arrays_become_tensors(depth: int) -> None:
    with to_device(iter(BATCHES), "cpu", depth) as it:
        first = next(it)

        assert first["x"].device.type == "cpu"
        assert first["x"].tolist() == [0, 1]
        assert first["name"].tolist() == ["a", "a"]
        assert lists(it) == [[2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]


def test_resumes_behind_the_batch_the_loop_was_given() -> None:
    with to_device(BATCHES.iterator(workers=2), "cpu", 3) as it:
        seen = [next(it)["x"].tolist() for _ in range(2)]
        state = it.state_dict()
    with to_device(BATCHES.iterator(workers=0), "cpu", 1) as it:
        it.load_state_dict(state)

        assert seen + lists(it) == [[k, k + 1] for k in range(0, 12, 2)]


def test_a_torch_loader_and_a_batch_that_moves_itself() -> None:
    class Own:
        def __init__(self, x: Any) -> None:
            self.x = x

        def to(self, device: Any) -> Own:
            return Own([x.to(device) for x in self.x])

    loader = torch.utils.data.DataLoader(torch.arange(4), batch_size=2, collate_fn=Own)
    with to_device(loader, "meta") as it:
        assert [batch.x[0].device.type for batch in it] == ["meta", "meta"]


def test_a_packed_sequence_moves_itself() -> None:
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    (moved,) = to_device([{"text": packed}], "meta")

    assert moved["text"].data.device.type == "meta"
    assert moved["text"].batch_sizes.device.type == "cpu"


def test_the_cpu_is_given_no_copies() -> None:
    array = np.zeros(4)
    (tensor,) = to_device([array], "cpu")
    array[0] = 5

    assert tensor[0] == 5


class Fake:
    """A device's module: what is done on which stream is written down."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.on = "current"
        self.ended: set[int] = set()
        self.events = 0

    def Stream(self, device: Any) -> FakeStream:  # noqa: N802 - torch's name
        return FakeStream(self, "copies")

    def current_stream(self, device: Any) -> FakeStream:
        return FakeStream(self, "current")

    @contextlib.contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        self.on = stream.name
        yield
        self.on = "current"


class FakeStream:
    def __init__(self, fake: Fake, name: str) -> None:
        self.fake, self.name = fake, name

    def record_event(self) -> FakeEvent:
        assert self.fake.on == self.name
        self.fake.events += 1
        self.fake.log.append(("event", self.fake.events))
        return FakeEvent(self.fake, self.fake.events)

    def wait_event(self, event: FakeEvent) -> None:
        self.fake.log.append((self.name, "waits for", event.number))

    def synchronize(self) -> None:
        self.fake.log.append((self.name, "synchronized"))


class FakeEvent:
    def __init__(self, fake: Fake, number: int) -> None:
        self.fake, self.number = fake, number

    def query(self) -> bool:
        return self.number in self.fake.ended


class FakeTensor:
    """A tensor on the device that remembers what it is a copy of, not more."""

    def __init__(self, fake: Fake, value: Any) -> None:
        self.fake, self.value = fake, value

    def record_stream(self, stream: FakeStream) -> None:
        self.fake.log.append(("used on", stream.name, self.value))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """A device with streams, where there is none."""
    found = Fake()

    def move(batch: Any, device: Any) -> Any:
        assert found.on == "copies"
        found.log.append(("copy", batch.tolist()))
        return FakeTensor(found, batch.tolist())

    monkeypatch.setattr(module, "move", move)
    monkeypatch.setattr(module, "lane_to", lambda device: module._Streamed(device, found))
    return found


def test_copies_run_on_their_own_stream_and_the_current_one_waits(fake: Fake) -> None:
    with to_device(td.Dataset.range(8).batch(2), "cuda:0", depth=1) as it:
        assert next(it).value == [0, 1]
        assert fake.log == [
            ("copy", [0, 1]),
            ("event", 1),
            ("copy", [2, 3]),
            ("event", 2),
            ("current", "waits for", 1),
            ("used on", "current", [0, 1]),
        ]
        fake.log.clear()
        assert next(it).value == [2, 3]
        assert fake.log == [
            ("copy", [4, 5]),
            ("event", 3),
            ("current", "waits for", 2),
            ("used on", "current", [2, 3]),
        ]
        fake.ended |= {1, 2, 3}
        fake.log.clear()
        assert [b.value for b in it] == [[4, 5], [6, 7]]
        fake.ended.add(4)
    assert ("copies", "synchronized") in fake.log  # close does not look at events


def test_host_memory_is_kept_until_its_copy_has_ended(fake: Fake) -> None:
    ds = td.Dataset.range(6).map(lambda i: np.full(1 << 17, i))
    with ds.iterator(workers=1) as source:
        it = to_device(source, "cuda:0", depth=0)
        for _ in range(3):
            next(it)
        gc.collect()
        assert source.stats.leased >= 3
        fake.ended |= {1, 2}
        next(it)  # looks: the first two are let go, the next ones not
        gc.collect()
        lane: Any = it._lane
        assert len(lane._copying) == 2
        it.close()
        assert not lane._copying


def test_going_elsewhere_waits_for_what_is_under_way(fake: Fake) -> None:
    it = to_device(td.Dataset.range(8).batch(2).iterator(), "cuda:0", depth=1)
    next(it)
    state = it.state_dict()
    fake.log.clear()
    it.load_state_dict(state)
    assert fake.log == [("copies", "synchronized")]
    assert next(it).value == [2, 3]


def test_an_iterator_that_is_dropped_waits_for_its_copies(fake: Fake) -> None:
    it = to_device(td.Dataset.range(8).batch(2).iterator(), "cuda:0")
    next(it)
    fake.log.clear()
    del it
    gc.collect()
    assert fake.log == [("copies", "synchronized")]


def test_a_failed_copy_is_raised_at_its_batch(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    def move(batch: Any, device: Any) -> Any:
        if 2 in batch.tolist():
            raise RuntimeError("out of memory")
        return FakeTensor(fake, batch.tolist())

    monkeypatch.setattr(module, "move", move)
    with to_device(td.Dataset.range(6).batch(2), "cuda:0", depth=2) as it:
        assert next(it).value == [0, 1]
        with pytest.raises(RuntimeError, match="out of memory"):
            next(it)
        assert next(it).value == [4, 5]


def test_which_devices_have_streams() -> None:
    assert type(module.lane_to(torch.device("cpu"))) is module._ImmediateCopies
    assert type(module.lane_to(torch.device("meta"))) is module._ImmediateCopies
    assert next(to_device([np.zeros(2)], "meta")).device.type == "meta"


@pytest.mark.parametrize("workers", [0, 1])
def test_our_loader_behind_it_resumes_too(workers: int) -> None:
    def loader() -> Any:
        return DataLoader(
            Numbers(12),
            batch_size=2,
            shuffle=True,
            num_workers=workers,
            generator=torch.Generator().manual_seed(1),
        )

    whole = [batch.tolist() for batch in loader()]
    with to_device(loader(), "cpu", depth=2) as it:
        seen = [next(it).tolist() for _ in range(2)]
        state = json.loads(json.dumps(it.state_dict()))
    with to_device(loader(), "cpu", depth=1) as it:
        it.load_state_dict(state)
        assert seen + [batch.tolist() for batch in it] == whole
