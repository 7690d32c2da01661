"""The environment of a worker: what it shares with its consumer, and what it must not share.

Working directory, environment, ``sys.path`` and ``sys.argv`` are the consumer's as its iterator was made. The sizes
of thread pools and the visibility of accelerators are not; malloc and the hashes of texts are configured before the
interpreter starts.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_THREAD_VARIABLES = (
    "BLIS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "OPENCV_FOR_THREADS_NUM",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def command(executable: str, path: Sequence[str], statement: str) -> list[str]:
    """Return the command line of an interpreter like this one that runs one statement.

    Parameters
    ----------
    executable : str
        The interpreter.
    path : sequence of str
        Its ``sys.path``, in place before anything is imported.
    statement : str
        The code to run; it may use the names of `tundish.loader.run.starting.zygote`.
    """
    flags = sys.flags
    extra: dict[str, str | bool] = sys._xoptions  # noqa: SLF001 - documented, in spite of its name
    options = {
        "-I": flags.isolated,
        "-E": flags.ignore_environment,
        "-s": flags.no_user_site,
        "-S": flags.no_site,
        "-P": flags.safe_path,
        "-B": flags.dont_write_bytecode,
        "-b": flags.bytes_warning,
        "-O": flags.optimize,
    }
    return [
        executable,
        *(option for option, count in options.items() for _ in range(count)),
        *(f"-W{option}" for option in sys.warnoptions),
        *(f"-X{key}" if value is True else f"-X{key}={value}" for key, value in extra.items()),
        "-c",
        f"import sys;sys.path[:]={list(path)!a};from tundish.loader.run.starting.zygote import *;{statement}",
    ]


_MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": (-3, 32 << 20),
    "MALLOC_TRIM_THRESHOLD_": (-1, 256 << 20),
    "MALLOC_TOP_PAD_": (-2, 16 << 20),
}
"""By the variable's name: the parameter of ``mallopt``, and the value."""


def exec_environ() -> dict[str, str]:
    """Return the environment variables that a new interpreter needs before it starts, where the user has set no others.

    - By default glibc's malloc returns every freed image to the system, and the next one costs hundreds of page faults.
      All three variables are needed. The price: a worker keeps up to 256 MB that it has freed.
    - The hashes of texts, and so the order of a set of them, are the same in all workers, and in those of a resumed run.
    """
    malloc = {name: str(value) for name, (_, value) in _MALLOC.items()}
    return {**malloc, "PYTHONHASHSEED": "0"}


def malloc_settings() -> list[tuple[int, int]]:
    """Return the same settings for a running process, as arguments of ``mallopt``."""
    return [setting for name, setting in _MALLOC.items() if name not in os.environ]


def worker_environ(threads: int) -> dict[str, str]:
    """Return the environment variables that are set in workers, overriding the user's.

    Parameters
    ----------
    threads : int
        The number of threads that a library may use. Workers share the machine, and results must not depend on how
        many threads add up a sum.
    """
    count = str(threads)
    return {
        **dict.fromkeys(_THREAD_VARIABLES, count),
        "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false",
        # Accelerators are the consumer's: a context in each worker would fill their memory.
        "CUDA_VISIBLE_DEVICES": "",
        "HIP_VISIBLE_DEVICES": "-1",
        "ROCR_VISIBLE_DEVICES": "-1",
        "JAX_PLATFORMS": "cpu",
        # Arrow's allocator would start a thread, and a zygote forks.
        "JE_ARROW_MALLOC_CONF": "background_thread:false",
    }


def interpreter() -> str:
    """Return the path of the Python interpreter; raise `RuntimeError` if it is unknown."""
    named = sys.executable or ""
    inside = f"{sys.exec_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (named, inside):
        # A frozen program, or one that embeds Python, names itself: that must not be run.
        if "py" in Path(path).name.lower() and os.access(path, os.X_OK) and not frozen():
            return path
    raise RuntimeError(
        f"worker processes need a Python interpreter, and sys.executable is {named!r}; "
        "set sys.executable to one, or use workers=0"
    )


def frozen() -> bool:
    """Return True in a frozen program, which has no interpreter to start."""
    return bool(getattr(sys, "frozen", False))


def import_path() -> list[str]:
    """Return ``sys.path``, including the folder this package was imported from."""
    path = [str(entry) for entry in sys.path if isinstance(entry, str)]  # type: ignore[redundant-expr]
    home = str(Path(__file__).parents[4])
    return path if home in path else [*path, home]


def working_directory() -> str | None:
    """Return the working directory; None if it was deleted."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return None


def enter(cwd: str | None, path: Sequence[str]) -> None:
    """Take another process's working directory and import path, as far as they exist here; the path follows this one's."""
    if cwd is not None:
        with contextlib.suppress(OSError):
            os.chdir(cwd)
    theirs = [each or os.getcwd() for each in path]  # noqa: PTH109 - here and below quick
    sys.path += [each for each in theirs if each not in sys.path and os.path.exists(each)]  # noqa: PTH110
    importlib.invalidate_caches()


@dataclass(frozen=True)
class Surroundings:
    """The part of a worker's environment that is its consumer's: the same for all workers of an iterator, whenever they start."""

    environ: Mapping[str, str]
    path: Sequence[str]
    argv: Sequence[str]
    cwd: str | None

    @classmethod
    def here(cls) -> Surroundings:
        """Return those of this process now."""
        argv = [str(argument) for argument in sys.argv]
        return cls(dict(os.environ), import_path(), argv, working_directory())


def standard_stream(fd: int) -> int:
    """Return a copy of a standard stream's descriptor, or one of /dev/null if it is closed."""
    try:
        return os.dup(fd)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Exclude objects that are created in the block from garbage collection, during the block and later.

    Modules and the dataset live until the process ends. Collections would take a fifth of the time of torch's import,
    and two thirds of that of building a list of 60,000 lists; later ones would copy the pages that forked
    workers share.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was:
            gc.enable()


_SETTERS = {
    "openblas": tuple(
        f"{prefix}openblas_set_num_threads{suffix}"
        for prefix in ("scipy_", "")
        for suffix in ("64_", "")
    ),
    "mkl_rt": ("MKL_Set_Num_Threads",),
    "blis": ("bli_thread_set_num_threads",),
    "libgomp": ("omp_set_num_threads",),
    "libomp": ("omp_set_num_threads",),
    "libiomp": ("omp_set_num_threads",),
}
"""By a part of a library's file name: what sets how many threads it uses."""

_MODULES = {"torch": "set_num_threads", "cv2": "setNumThreads", "pyarrow": "set_cpu_count"}


def find_pools() -> list[Callable[[int], Any]]:
    """Return functions that set the number of threads of loaded libraries.

    Call them in each worker, not in the process that forks workers: some start their threads then.
    """
    found = []
    for path in _loaded():
        names = next((names for part, names in _SETTERS.items() if part in Path(path).name), ())
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(path) if names else None
            found += [getattr(library, name) for name in names if hasattr(library, name)][:1]
    for module, name in _MODULES.items():
        setter = getattr(sys.modules.get(module), name, None)
        if setter is not None:
            found.append(setter)
    return found


def _loaded() -> list[str]:
    """Return the mapped files of this process that may be libraries."""
    with Path("/proc/self/maps").open(encoding="utf-8", errors="replace") as maps:
        paths = {line.split(maxsplit=5)[-1].rstrip("\n") for line in maps if ".so" in line}
    return sorted(paths)
