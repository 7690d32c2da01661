"""States that tests wait for, with a bound, and functions that they run side by side."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

BOUND_S = 30.0


def until(
    done: Callable[[], Any], what: str = "it did not come about", timeout_s: float = BOUND_S
) -> Any:
    """Wait until a function returns something true, and return that."""
    deadline = time.monotonic() + timeout_s
    while not (found := done()):
        assert time.monotonic() < deadline, what
        time.sleep(0.002)
    return found


def together(*works: Callable[[], Any]) -> list[Any]:
    """Call functions in threads of their own; return what they returned."""
    found: list[Any] = [None] * len(works)

    def run(at: int) -> None:
        found[at] = works[at]()

    threads = [threading.Thread(target=run, args=(at,), daemon=True) for at in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * BOUND_S)
        assert not thread.is_alive()
    return found
