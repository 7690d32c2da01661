"""A runtime folder for host processes of each test's own, processes to kill, and a seed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.service.hosted import await_end, forked_host
from tests.service.jobprocesses import Processes, processes

import tundish as td
from tundish.loader.service.host import starting as hoststarting

MEMORY = Path("/dev/shm")


@pytest.fixture
def seeded() -> Iterator[None]:
    """Seed operators, as a program does."""
    td.set_seed(7)
    yield
    td.set_seed(None)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime folder of the test's own, in which nothing is left, and no host process."""
    above = Path(tempfile.mkdtemp(prefix="td-host-"))
    folder = above / "run"
    monkeypatch.setenv("TUNDISH_RUNTIME_DIR", str(folder))
    before = {*MEMORY.iterdir()}
    yield folder
    await_end(folder)
    left = list(folder.iterdir()) if folder.exists() else []
    shutil.rmtree(above)
    assert not left
    assert not [path for path in {*MEMORY.iterdir()} - before if "tundish" in path.name]


@pytest.fixture
def forks_hosts(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Host processes are forks of the test's process, which begin at once."""
    monkeypatch.setattr(hoststarting, "start_host", forked_host)
    return runtime


@pytest.fixture(scope="session")
def program() -> Iterator[Processes]:
    """A program that starts processes which tests kill; it has imported what they need."""
    with processes() as found:
        yield found


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Close what a test enters, in the end."""
    with ExitStack() as stack:
        yield stack
