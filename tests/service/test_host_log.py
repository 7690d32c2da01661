"""The log of a host process: what functions print there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.service.waiting import until

import tundish as td
from tundish.loader.service.host.host import host


def talkative(i: Any) -> Any:
    print(f"element {int(i)}", "." * 2000)  # noqa: T201 - what is tested
    print(f"warned of {int(i)}", file=sys.stderr)  # noqa: T201 - as above
    return i


@pytest.mark.parametrize("workers", [0, 1])
def test_what_functions_print_is_in_a_file_that_a_consumer_finds(
    runtime: Path, workers: int
) -> None:
    options = td.Options()
    options.workers = workers
    ds = td.Dataset.range(1500).map(talkative).with_options(options)
    with iter(host(ds, "prints", linger=0.0)) as it:
        next(it)
        assert it.log is not None
        log = it.log
        # It is copied beside the elements, maybe after the first.
        until(lambda: "warned of 0\n" in log.read_text(), "the log has the first warning")
        assert "element 0 ." in log.read_text()
        with iter(host(ds, "prints", linger=0.0)) as other:
            for _ in other:
                continue
        until(lambda: "warned of 1499\n" in log.read_text(), "the log has the last warning")
        assert log.stat().st_size < 2 << 20
        assert "element 0 ." not in log.read_text()
    assert it.log is None
