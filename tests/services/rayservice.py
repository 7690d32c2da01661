"""A service on the tests' Ray cluster, and whether a process of it runs."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.services.raycluster import ENVIRONMENT, RayCluster

from tundish.loader.service.ray.service import RayFleet, start_on_ray


@contextlib.contextmanager
def service(
    cluster: RayCluster, folder: Path, name: str, agents: int, **given: Any
) -> Iterator[RayFleet]:
    """Start agents with two seats, away from the head, and their dispatcher."""
    token = folder / "token"
    token.touch(0o600)
    token.write_text(secrets.token_hex())
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in {**ENVIRONMENT, "TUNDISH_SERVICE_TOKEN_FILE": str(token)}.items():
            patch.setenv(variable, value)
        patch.setenv("TMPDIR", str(cluster.folder))
        with start_on_ray(
            agents,
            2,
            cluster.address,
            name=name,
            work_dir=str(folder / "dispatcher"),
            options={"resources": {"far": 1}, "num_cpus": 0},
            **given,
        ) as made:
            yield made


def runs(pid: int) -> bool:
    """Return True unless a process has ended; its raylet may not have heard yet."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
