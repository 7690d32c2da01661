"""A lack of descriptors is told as that, and none is lost; whoever has workers has some left."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.laws.otherwise import NOT_FORKED

SCRIPT = """
import errno, gc, os, resource
from tests.laws.functions import pure
from tundish import Dataset
from tundish.loader.run.starting.launcher import launcher

def used(): return len(os.listdir("/proc/self/fd")) - 1

def attempt():
    with Dataset.range(40).map(pure).batch(10).iterator(workers=2) as it:
        first = next(it)
        try:
            for descriptor in [os.open(os.devnull, os.O_RDONLY) for _ in range(2)]:
                os.close(descriptor)
        except OSError:
            raise AssertionError("none is left to the consumer") from None
        return sum(map(len, [first, *it]))

list(Dataset.range(1).map(pure).iterator(workers=0))
if {warm}:
    attempt()
resource.setrlimit(resource.RLIMIT_NOFILE, (128, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
told, leaks = [], []
for room in range(16):
    before, taken = used(), []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    for _ in range(room):
        os.close(taken.pop())
    try:
        told.append(attempt())
    except OSError as error:
        assert error.errno == errno.EMFILE, error
        assert "workers" in str(error) or error.filename, error
        told.append("EMFILE")
        del error
    for descriptor in taken:
        os.close(descriptor)
    gc.collect()
    leaks.append(used() - before)
enough = told.index(40)
assert set(told[:enough]) == {{"EMFILE"}}, told
assert set(told[enough:]) == {{40}}, told
# The process's zygote and board stay, and what was kept for the zygote's start is let go.
assert sum(leaks) <= (0 if {warm} else 3), leaks
"""


@NOT_FORKED
@pytest.mark.slow
@pytest.mark.parametrize("warm", [True, False])
def test_where_descriptors_run_out(warm: bool) -> None:
    told = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(warm=warm)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (told.returncode, told.stderr) == (0, "")
