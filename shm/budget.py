"""Limits of this process on memory, cores and transport, and where they come from.

The kernel does not turn exceeding a container's memory into an error: it kills. So the limit
is read here, at every level of the cgroup tree, and pipelines use less than a share of it.

``TUNDISH_PORTABLE=1`` makes Linux use what other systems have: unlinked files, stream sockets,
`select.poll`, no pidfd. ``TUNDISH_MEMORY`` selects one kind of memory and excludes the others.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROC = Path("/proc/self")

# The share of what this process may use that a pipeline takes unless told otherwise.
_SHARE = 0.25

# cgroup v1 says "no limit" with the largest multiple of the page size there is.
_UNLIMITED = 1 << 60

_UNITS = {"": 1, "B": 1}
_UNITS |= {f"{p}{b}": 1000**i for i, p in enumerate("KMGT", 1) for b in ("", "B")}
_UNITS |= {f"{p}IB": 1024**i for i, p in enumerate("KMGT", 1)}

# What launchers call the number of processes they have started on this machine.
RANK_VARIABLES = (
    "LOCAL_WORLD_SIZE",
    "SLURM_NTASKS_PER_NODE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
)


@dataclass(frozen=True, slots=True)
class Budget:
    """The number of bytes that a process's pipelines may hold, and its origin.

    Attributes
    ----------
    nbytes : int
        The budget.
    limit : int
        The machine's RAM or the cgroup's limit; the budget is a share of it.
    source : str
        The origin of the budget, for display.
    ranks : int
        The number of processes of one job on this machine, which share the limit.
    """

    nbytes: int
    limit: int
    source: str
    ranks: int


def default_budget(
    *, environ: Mapping[str, str] = os.environ, proc: Path = PROC, ram: int | None = None
) -> Budget:
    """Return the default budget: ``TUNDISH_BUDGET``, else a share of the limit.

    Parameters
    ----------
    environ, proc, ram : optional
        The environment, this process's folder in ``/proc`` and the machine's bytes of RAM, for
        tests.

    Raises
    ------
    ValueError
        ``TUNDISH_BUDGET`` cannot be parsed.
    """
    ram = _ram() if ram is None else ram
    cgroup = cgroup_memory_limit(proc)
    limit, whose = (ram, "RAM") if cgroup is None or cgroup >= ram else (cgroup, "cgroup limit")
    ranks = local_ranks(environ)
    text = environ.get("TUNDISH_BUDGET")
    if text:
        try:
            return Budget(parse_bytes(text), limit, f"TUNDISH_BUDGET={text}", ranks)
        except ValueError as error:
            raise ValueError(f"TUNDISH_BUDGET: {error}") from None
    source = f"{_SHARE:.0%} of the {whose} of {limit:,} bytes"
    if ranks > 1:
        source += f", divided by {ranks} local ranks"
    return Budget(max(1, int(limit * _SHARE) // ranks), limit, source, ranks)


def _ram() -> int:
    """Return the machine's bytes of RAM."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # Windows
        import psutil  # noqa: PLC0415 - it takes as long to import as all else of this process's start

        return int(psutil.virtual_memory().total)


def parse_bytes(size: str | int) -> int:
    """Return a number of bytes from ``"512MB"``, ``"1.5 GiB"``, ``"4096"`` or an int.

    KB, MB, GB and TB (or K, M, G, T) are powers of 1000; KiB, MiB, GiB and TiB of 1024.
    """
    if isinstance(size, int) and not isinstance(size, bool):
        nbytes = size
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)\s*", str(size), re.ASCII)
        if match is None or match[2].upper() not in _UNITS:
            raise ValueError(f"{size!r} is not a number of bytes such as '512MB' or '1.5 GiB'")
        nbytes = int(float(match[1]) * _UNITS[match[2].upper()])
    if nbytes <= 0:
        raise ValueError(f"{size!r} must be more than zero bytes")
    return nbytes


def local_ranks(environ: Mapping[str, str] = os.environ) -> int:
    """Return how many processes of this job a launcher has started on this machine; 1 if unknown."""
    for name in RANK_VARIABLES:
        text = environ.get(name, "")
        if text.isascii() and text.isdigit() and int(text) > 0:
            return int(text)
    return 1


def usable_cores(*, environ: Mapping[str, str] = os.environ, proc: Path = PROC) -> int:
    """Return how many cores this process may keep busy, at least 1.

    This is the smaller of two numbers, the cores in its affinity and its cgroup's CPU quota, both divided by the number
    of local ranks and rounded down (the consumer needs the rest of the quota). The affinity is not divided if the
    launcher has bound each rank to its own cores.
    """
    ranks = local_ranks(environ)
    mine = _affinity(0)
    cores = mine if mine < _affinity(os.getppid()) else mine // ranks
    quota = cgroup_cores(proc)
    if quota is not None:
        cores = min(cores, int(quota / ranks))
    return max(1, cores)


def cgroup_memory_limit(proc: Path = PROC) -> int | None:
    """Return the smallest memory limit of this process's cgroup and its parents, or None."""
    limits = []
    for folder in _cgroups("memory", proc):
        for name in ("memory.max", "memory.limit_in_bytes"):
            words = _words(folder / name)
            if len(words) == 1 and words[0].isdigit() and int(words[0]) < _UNLIMITED:
                limits.append(int(words[0]))
    return min(limits, default=None)


def cgroup_cores(proc: Path = PROC) -> float | None:
    """Return the smallest CPU quota, in cores, of this process's cgroup and its parents, or None."""
    quotas = []
    for folder in _cgroups("cpu", proc):
        words = _words(folder / "cpu.max") or (
            _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
        )
        if len(words) == 2 and words[0].isdigit():  # "max", "-1": no quota
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def _cgroups(controller: str, proc: Path) -> tuple[Path, ...]:
    """Return the folders of this process's cgroup and its parents, v2 and v1."""
    return _folders(controller, tuple(_lines(proc / "cgroup")), tuple(_lines(proc / "mountinfo")))


@lru_cache(maxsize=16)
def _folders(controller: str, cgroups: Sequence[str], mounts: Sequence[str]) -> tuple[Path, ...]:
    """Return the folders of cgroups, from the contents of the system's files.

    The existing files show which of v1 and v2 has a limit; if both are mounted (systemd's hybrid), a controller is in one
    of them.
    """
    paths: dict[str, str] = {}  # controller -> cgroup, from its tree's root; v2's controller is ""
    for line in cgroups:
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    found: list[Path] = []
    for line in mounts:
        fields, _, tail = line.partition(" - ")
        kind, _, options = tail.split(" ", 2)
        root, mount = (_unescaped(field) for field in fields.split(" ")[3:5])
        is_v1 = kind == "cgroup" and controller in options.split(" ")[-1].split(",")
        own = paths.get("" if kind == "cgroup2" else controller)
        if own is None or not (is_v1 or kind == "cgroup2"):
            continue
        # In a container without a cgroup namespace the path is the host's, and what is mounted
        # is the container's own part of it; a path outside of the namespace begins with "..".
        here = PurePosixPath(own)
        within = here.is_relative_to(root) and ".." not in here.parts
        folder = Path(mount, here.relative_to(root)) if within else Path(mount)
        found += [each for each in (folder, *folder.parents) if each.is_relative_to(mount)]
    return tuple(found)


def _affinity(pid: int) -> int:
    try:
        return len(os.sched_getaffinity(pid))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


def _lines(file: Path) -> list[str]:
    # What is mounted may have any name: bytes that are no text, or what `str.splitlines` takes for an end.
    try:
        return [line for line in os.fsdecode(file.read_bytes()).split("\n") if line]
    except OSError:
        return []


def _words(file: Path) -> list[str]:
    return " ".join(_lines(file)).split()


def _unescaped(field: str) -> str:
    return re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), field)


MEMORY_KINDS = ("memfd", "dev-shm", "tmpdir")  # in the order they are tried


def portable() -> bool:
    """Return True if only features of every Unix are to be used."""
    return os.environ.get("TUNDISH_PORTABLE", "0") not in ("", "0")


def forced_memory() -> str | None:
    """Return the kind of memory that the environment selects, or None for the best one.

    Raises
    ------
    ValueError
        ``TUNDISH_MEMORY`` is none of ``memfd``, ``dev-shm``, ``tmpdir`` and ``none``.
    """
    kind = os.environ.get("TUNDISH_MEMORY", "")
    if kind and kind != "none" and kind not in MEMORY_KINDS:
        choices = ", ".join((*MEMORY_KINDS, "none"))
        raise ValueError(f"TUNDISH_MEMORY is {kind!r}; it must be one of {choices}")
    return kind or None
