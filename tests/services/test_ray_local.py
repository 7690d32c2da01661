"""A service on a Ray cluster of this machine alone, which ends with the process that started it."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.services.raycluster import ENVIRONMENT, strays

pytestmark = [pytest.mark.untidy, pytest.mark.slow]

SCRIPT = """
import os, sys
import tundish as td

fleet = td.service.start(1, 2, address="auto")
ds = td.Dataset.range(50).map(lambda n: n * n).batch(5)
far = ds.apply(td.service.distribute("distributed_epoch", fleet.target))
with far.iterator(workers=2) as it:
    assert [b.tolist() for b in it] == [b.tolist() for b in ds.iterator(workers=0)]
assert "ray" not in sys.modules
print("done", flush=True)
if sys.argv[1] == "stop":
    fleet.stop()
elif sys.argv[1] == "kill":
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def environ() -> Iterator[dict[str, str]]:
    """Yield the environment of a machine that is in no cluster."""
    if find_spec("ray") is None:
        pytest.skip("needs ray")
    folder = Path(tempfile.mkdtemp(prefix="td-ray-", dir="/tmp"))  # short: there are sockets in it
    token = folder / "token"
    token.touch(0o600)
    token.write_text(secrets.token_hex())
    own = {"TUNDISH_SERVICE_TOKEN_FILE": str(token), "TMPDIR": str(folder)}
    yield {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"} | ENVIRONMENT | own
    for pid in strays(folder):
        os.kill(pid, 9)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_cluster_of_this_machine_alone(environ: dict[str, str], end: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, end],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
        env=environ,
    )

    assert run.stdout == "done\n", run.stderr
    assert run.returncode == (0 if end == "stop" else -9), run.stderr
    until = time.monotonic() + 30
    while left := list(strays(Path(environ["TMPDIR"]))):
        assert time.monotonic() < until, [Path(f"/proc/{p}/cmdline").read_text() for p in left]
        time.sleep(0.1)
