"""The traces that a run leaves are told from what a busy machine has not taken back yet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tundish import Dataset
from tundish.loader.run.coordinating import store
from tundish.loader.run.pool.peers import Peer
from tundish.testing import assert_survives_kills


def large(i: Any) -> np.ndarray:
    return np.full(1 << 14, i, np.int64)  # a batch has a slot


@pytest.mark.slow
def test_a_worker_that_is_gone_later_than_closing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    is_gone, late = Peer.is_gone, []

    def gone_later(peer: Peer, wait_s: float) -> bool:
        if peer in late:
            return is_gone(peer, wait_s)
        late.append(peer)
        return False

    monkeypatch.setattr(Peer, "is_gone", gone_later)
    assert_survives_kills(Dataset.range(400).map(large).batch(4).take(20), kills=1)

    assert late
    assert not store._graves
