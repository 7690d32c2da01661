"""The manifests in `examples/service`: their commands are ones that there are, and the one for Slurm runs."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tundish.cli import parser

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "service"


def commands() -> list[list[str]]:
    """The arguments of ``tundish`` in the manifest for Kubernetes."""
    text = (FOLDER / "kubernetes.yaml").read_text(encoding="utf-8")
    found = [json.loads(each) for each in re.findall(r"^ *args: (\[.*\])$", text, re.MULTILINE)]
    return [[re.sub(r"\$\(CORES\)", "8", part) for part in each] for each in found]


def test_commands_for_kubernetes() -> None:
    actions = [parser().parse_args(each).action for each in commands()]

    assert actions == ["dispatcher", "worker"]


def test_ports_of_policies_are_those_of_commands() -> None:
    text = (FOLDER / "kubernetes.yaml").read_text(encoding="utf-8")
    ports = {each[each.index("--port") + 1] for each in commands()}

    assert ports == set(re.findall(r"\{port: (\d+)\}$", text, re.MULTILINE))
    assert ports == set(re.findall(r"containerPort: (\d+)", text))


TRAIN = """
import os, time
from tundish.loader.service.dispatching.client import DispatcherClient
from tundish.loader.service.connections.credentials import Credentials
with DispatcherClient(os.environ["SERVICE"], Credentials.find()) as client:
    while not client.status()["agents"]:
        time.sleep(0.05)
    print("workers:", [each["name"] for each in client.status()["agents"]])
"""

SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
exec "$@"
"""


@pytest.mark.slow
def test_the_script_for_slurm_runs(tmp_path: Path) -> None:
    """With a `srun` that runs everything here."""
    binaries = tmp_path / ".venv" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "activate").write_text(
        f'export PATH="{binaries}:{Path(sys.executable).parent}:$PATH"'
    )
    for name, text in (("srun", SRUN), ("hostname", "#!/bin/bash\necho 127.0.0.1\n")):
        (binaries / name).write_text(text, encoding="ascii")
        (binaries / name).chmod(stat.S_IRWXU)
    (tmp_path / "train.py").write_text(TRAIN, encoding="ascii")
    environ = {**os.environ, "SLURM_JOB_ID": "7"}
    environ.pop("TUNDISH_SERVICE_TOKEN_FILE", None)

    process = subprocess.Popen(
        ["bash", str(FOLDER / "slurm.sh")],
        cwd=tmp_path,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        told = ""
        for line in process.stdout:
            told += line
            if line.startswith("workers:"):
                break
        assert "workers: ['127.0.0.1']" in told
        assert process.wait(60) == 0
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # as Slurm does with a job that has ended
        process.stdout.close()
        process.wait()
    assert not (tmp_path / ".service-7").exists()
