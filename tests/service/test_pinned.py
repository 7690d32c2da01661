"""`Options.service.pinned`: batches of a service in memory that a device's driver has locked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.service.computed import larger
from tests.service.inserted import distributed
from tests.shm.test_pinned import FakeDriver

from tundish import Dataset, Options
from tundish.loader.run.coordinating.store import shared_ring
from tundish.shm import pinned

PINNED = Options()
PINNED.service.pinned = True


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    driver = FakeDriver()
    monkeypatch.setattr(pinned, "_OFFERED", [lambda: None, lambda: driver])
    ring = shared_ring()
    assert ring is not None
    before, ring.pinned = ring.pinned, None
    yield driver
    ring.trim(0)
    ring.pinned = before


def test_slots_are_registered_once(driver: FakeDriver) -> None:
    ds = distributed(Dataset.range(24).map(larger).batch(2)).with_options(PINNED)
    with ds.iterator(workers=2) as iterator:
        for k, batch in enumerate(iterator):
            assert batch[:, 0].tolist() == [2 * k, 2 * k + 1]
            assert sum(driver.registered.values()) >= batch.nbytes
    assert driver.calls.count("register") <= 12


def test_without_a_service_or_the_option_none_are(driver: FakeDriver) -> None:
    plain = Dataset.range(8).map(larger).batch(2)
    for ds in (plain.with_options(PINNED), distributed(plain)):
        with ds.iterator(workers=2) as iterator:
            assert len(list(iterator)) == 4
    assert driver.calls == []


def test_without_a_device_a_warning_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned, "_OFFERED", [lambda: None])
    ds = distributed(Dataset.range(8).map(larger).batch(2)).with_options(PINNED)

    with pytest.warns(UserWarning, match=r"import tundish\.torch where CUDA is available"):
        iterator = ds.iterator(workers=2)
    with iterator:
        assert len(list(iterator)) == 4
