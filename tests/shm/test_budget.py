"""The budget: limits are found at every level of either cgroup tree, and divided among ranks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tundish.shm.budget import (
    cgroup_cores,
    cgroup_memory_limit,
    default_budget,
    local_ranks,
    parse_bytes,
    usable_cores,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

GB = 10**9
RAM = 64 * GB
V2 = "0::{path}\n"
V1 = "5:memory:{path}\n3:cpu,cpuacct:{path}\n1:name=systemd:/init\n"
V2_MOUNTS = "31 23 0:28 {root} {at} rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNTS = (
    "30 23 0:27 / /proc rw,relatime - proc proc rw\n"
    "32 31 0:29 {root} {at}/cpu,cpuacct rw,relatime shared:10 - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 {root} {at}/memory rw,relatime - cgroup cgroup rw,memory\n"
)


class Machine:
    """A pretended `/proc/self` and the cgroup trees it names."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.trees = folder / "sys fs"  # a blank, which mountinfo writes as \040
        self.proc.mkdir()

    def process(self, cgroup: str, mounts: str, path: str, root: str = "/") -> None:
        at = str(self.trees).replace(" ", "\\040")
        (self.proc / "cgroup").write_text(cgroup.format(path=path))
        (self.proc / "mountinfo").write_text(mounts.format(at=at, root=root))

    def write(self, files: Mapping[str, object]) -> None:
        for name, text in files.items():
            (self.trees / name).parent.mkdir(parents=True, exist_ok=True)
            (self.trees / name).write_text(f"{text}\n")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("limits", "smallest"),
    [
        ({"a/b/memory.max": 5 * GB, "a/memory.max": "max"}, 5 * GB),
        ({"a/b/memory.max": "max", "a/memory.max": 3 * GB}, 3 * GB),
        ({"a/b/memory.max": 5 * GB, "a/memory.max": 3 * GB, "memory.max": 4 * GB}, 3 * GB),
        ({"a/b/memory.max": "max"}, None),
        ({"a/c/memory.max": GB}, None),  # somebody else's
        ({}, None),
    ],
)
def test_memory_in_version_2(
    machine: Machine, limits: Mapping[str, object], smallest: int | None
) -> None:
    machine.process(V2, V2_MOUNTS, "/a/b")
    machine.write(limits)
    assert cgroup_memory_limit(machine.proc) == smallest


@pytest.mark.parametrize(
    ("limits", "smallest"),
    [
        (
            {"memory/a/b/memory.limit_in_bytes": 5 * GB, "cpu,cpuacct/memory.limit_in_bytes": 1},
            5 * GB,
        ),
        ({"memory/a/memory.limit_in_bytes": GB}, GB),
        ({"memory/a/b/memory.limit_in_bytes": 9223372036854771712}, None),
    ],
)
def test_memory_in_version_1(
    machine: Machine, limits: Mapping[str, object], smallest: int | None
) -> None:
    machine.process(V1, V1_MOUNTS, "/a/b")
    machine.write(limits)
    assert cgroup_memory_limit(machine.proc) == smallest


def test_memory_in_a_container_that_sees_the_hosts_path(machine: Machine) -> None:
    machine.process(V1, V1_MOUNTS, "/docker/1f2e", root="/docker/1f2e")
    machine.write({"memory/memory.limit_in_bytes": 2 * GB})
    assert cgroup_memory_limit(machine.proc) == 2 * GB


def test_memory_in_a_group_within_such_a_container(machine: Machine) -> None:
    machine.process(V1, V1_MOUNTS, "/docker/1f2e/job", root="/docker/1f2e")
    limits = {"memory/job/memory.limit_in_bytes": GB, "memory/memory.limit_in_bytes": 2 * GB}
    machine.write(limits)
    assert cgroup_memory_limit(machine.proc) == GB


def test_memory_where_another_tree_is_mounted_that_only_begins_alike(machine: Machine) -> None:
    machine.process(V2, V2_MOUNTS, "/job12", root="/job1")
    machine.write({"memory.max": 2 * GB})
    assert cgroup_memory_limit(machine.proc) == 2 * GB


@pytest.mark.parametrize("path", ["/docker/1f2e", "/../../other", "/.."])
def test_memory_where_the_path_is_not_in_the_mounted_tree(machine: Machine, path: str) -> None:
    machine.process(V2, V2_MOUNTS, path)
    machine.write({"memory.max": 2 * GB})
    (machine.trees.parent / "memory.max").write_text("1\n")  # outside the tree: not ours
    assert cgroup_memory_limit(machine.proc) == 2 * GB


def test_both_versions_at_once(machine: Machine) -> None:
    machine.process(V1 + V2, V1_MOUNTS + V2_MOUNTS.replace("{at}", "{at}/unified"), "/a")
    machine.write({"memory/a/memory.limit_in_bytes": 4 * GB, "unified/a/memory.max": 3 * GB})
    assert cgroup_memory_limit(machine.proc) == 3 * GB


@pytest.mark.parametrize(
    ("cgroup", "mounts", "files", "cores"),
    [
        (V2, V2_MOUNTS, {"a/b/cpu.max": "150000 100000"}, 1.5),
        (V2, V2_MOUNTS, {"a/b/cpu.max": "max 100000", "a/cpu.max": "400000 100000"}, 4),
        (V2, V2_MOUNTS, {"a/b/cpu.max": "300000 100000", "a/cpu.max": "50000 20000"}, 2.5),
        (V2, V2_MOUNTS, {"a/b/cpu.max": "max 100000"}, None),
        (
            V1,
            V1_MOUNTS,
            {
                "cpu,cpuacct/a/b/cpu.cfs_quota_us": -1,
                "cpu,cpuacct/a/b/cpu.cfs_period_us": 100000,
                "cpu,cpuacct/a/cpu.cfs_quota_us": 50000,
                "cpu,cpuacct/a/cpu.cfs_period_us": 100000,
            },
            0.5,
        ),
        (V1, V1_MOUNTS, {"cpu,cpuacct/a/b/cpu.cfs_quota_us": 50000}, None),
    ],
)
def test_cores(
    machine: Machine, cgroup: str, mounts: str, files: Mapping[str, object], cores: float | None
) -> None:
    machine.process(cgroup, mounts, "/a/b")
    machine.write(files)
    assert cgroup_cores(machine.proc) == cores


def test_without_cgroups_there_is_no_limit(tmp_path: Path) -> None:
    assert cgroup_memory_limit(tmp_path) is None
    assert cgroup_cores(tmp_path) is None


def test_the_budget_is_a_share_of_the_smaller_limit(machine: Machine) -> None:
    budget = default_budget(environ={}, proc=machine.proc, ram=RAM)
    assert (budget.nbytes, budget.limit, budget.ranks) == (RAM // 4, RAM, 1)
    assert budget.source == "25% of the RAM of 64,000,000,000 bytes"
    machine.process(V2, V2_MOUNTS, "/a")
    machine.write({"a/memory.max": 8 * GB})
    budget = default_budget(environ={"LOCAL_WORLD_SIZE": "4"}, proc=machine.proc, ram=RAM)
    assert (budget.nbytes, budget.limit, budget.ranks) == (GB // 2, 8 * GB, 4)
    assert (
        budget.source == "25% of the cgroup limit of 8,000,000,000 bytes, divided by 4 local ranks"
    )
    machine.write({"a/memory.max": 2 * RAM})
    assert default_budget(environ={}, proc=machine.proc, ram=RAM).limit == RAM


def test_the_budget_that_was_asked_for_is_taken(machine: Machine) -> None:
    environ = {"TUNDISH_BUDGET": "512MB", "LOCAL_WORLD_SIZE": "4"}
    budget = default_budget(environ=environ, proc=machine.proc, ram=RAM)
    assert (budget.nbytes, budget.source) == (512_000_000, "TUNDISH_BUDGET=512MB")
    with pytest.raises(ValueError, match="TUNDISH_BUDGET: 'lots' is not a number of bytes"):
        default_budget(environ={"TUNDISH_BUDGET": "lots"}, proc=machine.proc, ram=RAM)


def test_the_budget_here() -> None:
    budget = default_budget(environ={})
    assert 0 < budget.nbytes <= budget.limit // 4 <= psutil.virtual_memory().total // 4


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("4096", 4096),
        (8192, 8192),
        ("512MB", 512 * 10**6),
        ("512M", 512 * 10**6),
        ("1.5 GiB", 3 << 29),
        ("1gb", 10**9),
        (" 2 KiB ", 2048),
        (".5kB", 500),
        ("1TB", 10**12),
        ("3B", 3),
    ],
)
def test_bytes_are_read(text: str | int, nbytes: int) -> None:
    assert parse_bytes(text) == nbytes


@pytest.mark.parametrize(
    "text", ["", "MB", "-5MB", "5 parsecs", "1e9", "0x10", "1.2.3", "nan", True]
)
def test_what_is_no_number_of_bytes_is_refused(text: str | int) -> None:
    with pytest.raises(ValueError, match="is not a number of bytes such as '512MB'"):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["0B", 0, -1, "0.4B"])
def test_nothing_is_not_enough(text: str | int) -> None:
    with pytest.raises(ValueError, match="must be more than zero bytes"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("environ", "ranks"),
    [
        ({}, 1),
        ({"LOCAL_WORLD_SIZE": "8"}, 8),
        ({"SLURM_NTASKS_PER_NODE": "4"}, 4),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, 2),
        ({"MPI_LOCALNRANKS": "3"}, 3),
        ({"LOCAL_WORLD_SIZE": "2", "SLURM_NTASKS_PER_NODE": "4"}, 2),
        ({"LOCAL_WORLD_SIZE": "", "SLURM_NTASKS_PER_NODE": "4"}, 4),
        ({"LOCAL_WORLD_SIZE": "0"}, 1),
        ({"LOCAL_WORLD_SIZE": "many"}, 1),
    ],
)
def test_ranks(environ: Mapping[str, str], ranks: int) -> None:
    assert local_ranks(environ) == ranks


@pytest.mark.parametrize(
    ("mine", "parents", "ranks", "cores"),
    [
        (16, 16, 1, 16),
        (16, 16, 4, 4),
        (4, 16, 4, 4),  # bound to cores of its own: the launcher has divided already
        (4, 16, 1, 4),
        (2, 2, 8, 1),
    ],
)
def test_cores_by_affinity(
    monkeypatch: pytest.MonkeyPatch, mine: int, parents: int, ranks: int, cores: int
) -> None:
    affinity = {0: set(range(mine)), os.getppid(): set(range(parents))}
    monkeypatch.setattr(os, "sched_getaffinity", affinity.__getitem__, raising=False)
    environ = {"LOCAL_WORLD_SIZE": str(ranks)}
    assert usable_cores(environ=environ, proc=Path("/nonexistent")) == cores


@pytest.mark.parametrize(
    ("quota", "ranks", "cores"),
    [(600_000, 1, 6), (250_000, 1, 2), (50_000, 1, 1), (600_000, 4, 1), (9_900_000, 1, 16)],
)
def test_cores_by_quota(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, quota: int, ranks: int, cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    machine.process(V2, V2_MOUNTS, "/a")
    machine.write({"a/cpu.max": f"{quota} 100000"})
    environ = {"LOCAL_WORLD_SIZE": str(ranks)}
    assert usable_cores(environ=environ, proc=machine.proc) == cores


def test_where_affinity_is_unknown_all_cores_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    assert usable_cores(environ={}, proc=tmp_path) == 12


@pytest.mark.parametrize("name", [b"caf\xe9", "a\x85b".encode(), b"a\x1cb"])
def test_what_else_is_mounted_may_have_any_name(name: bytes, machine: Machine) -> None:
    machine.process(V2, V2_MOUNTS, "/a")
    machine.write({"a/memory.max": GB})
    mounts = (machine.proc / "mountinfo").read_bytes()
    other = b"33 23 8:1 / /mnt/" + name + b" rw - ext4 /dev/sda1 rw\n"
    (machine.proc / "mountinfo").write_bytes(other + mounts)
    assert cgroup_memory_limit(machine.proc) == GB
