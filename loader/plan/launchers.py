"""The environment variables of launchers that number the processes of a job.

Each launcher is a row of a table with the names of its variables. If several are set, they have to agree, or one must
have been started inside the other: torchrun on every task of a Slurm job.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

MOST = 1_000_000
"""A larger number of processes is taken for a mistake."""

Environment = Mapping[str, str]


@dataclass(frozen=True)
class Identity:
    """A process's number, the number of processes, and the variables they came from.

    Attributes
    ----------
    count, index : int
        The number of processes, and the number of this one.
    said : str
        The variables and their values, for messages.
    local : int, optional
        The number of processes on this machine, if the launcher says.
    """

    count: int
    index: int
    said: str
    local: int | None = None

    def inside(self, other: Identity) -> bool:
        """Return True if this launcher may have been started by a task of the other one."""
        return self.local is not None and self.count == other.count * self.local


@dataclass(frozen=True)
class _Launcher:
    """The names of a launcher's variables; of several names for one value the first that is set counts.

    A launcher that is not `shy` sets both values or neither; a shy one sets one of them for other launchers as well.
    """

    index: tuple[str, ...]
    count: tuple[str, ...]
    local_index: str = ""
    local_count: str = ""
    shy: bool = False

    def __call__(self, environ: Environment) -> Identity | None:
        index = next((name for name in self.index if name in environ), None)
        count = next((name for name in self.count if name in environ), None)
        if index is None or count is None:
            if self.shy or index is count:
                return None
            there, missing = (index, self.count) if index else (count, self.index)
            raise ValueError(
                f"{there}={_shown(environ[there or ''])} is set and {' or '.join(missing)} is not: both are "  # one of them is
                "needed to know which process this is, and of how many. Set both, or give an InputContext"
            )
        found = _identity(environ, index, count)
        return Identity(found.count, found.index, found.said, self._local(environ, found))

    def _local(self, environ: Environment, found: Identity) -> int | None:
        if not self.local_count or self.local_count not in environ:
            return None
        local = _number(environ, self.local_count)
        if not 1 <= local <= found.count:
            raise ValueError(
                f"{self.local_count} must be from 1 to {found.count} ({found.said}), not {local}"
            )
        if self.local_index in environ:
            at = _number(environ, self.local_index)
            if at >= local:
                raise ValueError(
                    f"{self.local_index}={at} must be below {self.local_count}={local}"
                )
        return local


def identity(environ: Environment) -> Identity | None:
    """Return this process's identity from all launchers; None if no launcher has set variables.

    Parameters
    ----------
    environ : mapping
        The environment.

    Raises
    ------
    ValueError
        A variable is not a number or out of range, one of a pair is missing, or launchers contradict each other; the
        message names the variables and their values.
    """
    if "TORCHELASTIC_RUN_ID" in environ:  # torchrun has started this very process
        return _TORCHRUN(environ)
    found = [each for each in (say(environ) for say in _LAUNCHERS) if each is not None]
    for inner, outer in pairwise(found):
        if (inner.count, inner.index) != (outer.count, outer.index) and not inner.inside(outer):
            raise ValueError(
                f"the environment contradicts itself: {inner.said} against {outer.said}. Unset the wrong ones, or pass the rank and the number: InputContext(count, index)"
            )
    if found:
        return found[0]
    _check_started(environ)
    return _job(environ)


def _identity(environ: Environment, index: str, count: str) -> Identity:
    i, n = _number(environ, index), _number(environ, count)
    if n < 1:
        raise ValueError(f"{count} must be at least 1, not {n}")
    if i >= n:
        raise ValueError(f"{index}={i} must be below {count}={n}: processes are numbered from 0")
    return Identity(n, i, f"{index}={i}, {count}={n}")


def _number(environ: Environment, name: str) -> int:
    return number_of(name, environ[name])


def number_of(name: str, text: str) -> int:
    """Parse a variable's value as a number.

    Parameters
    ----------
    name, text : str
        The variable's name, and its value.

    Raises
    ------
    ValueError
        It is not a number from 0 to `MOST`.
    """
    digits = text.strip()
    if not (digits.isascii() and digits.isdecimal()):
        raise ValueError(f"{name} must be a number from 0 on, not {_shown(text)!r}")
    if len(digits.lstrip("0")) > len(str(MOST)) or int(digits) > MOST:
        raise ValueError(f"{name} must be at most {MOST:,}, not {_shown(text)}")
    return int(digits)


def _shown(text: str) -> str:
    return text if len(text) < 200 else text[:200] + "..."


def _jax(_: Environment) -> Identity | None:
    """Return the identity that JAX has in this process, if JAX is initialized; does not import or initialize it."""
    jax: Any = sys.modules.get("jax")
    if jax is None:
        return None
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    count: Any = getattr(state, "num_processes", None)
    index: Any = getattr(state, "process_id", None)
    if not isinstance(count, int) or getattr(state, "client", None) is None:
        bridge = sys.modules.get("jax._src.xla_bridge")
        begun: Callable[[], bool] = getattr(bridge, "backends_are_initialized", lambda: False)
        if not begun():
            return None  # to ask it would begin to use the accelerators
        count, index = jax.process_count(), jax.process_index()
    if count == 1:
        return None  # JAX says so in every process that is not one of several
    said = f"jax.process_index()={index}, jax.process_count()={count}"
    return Identity(int(count), int(index), said)


def tf_config(text: str) -> dict[str, Any]:
    """Parse ``TF_CONFIG``; check that its `cluster` and `task`, if present, are dicts.

    Parameters
    ----------
    text : str
        Its value.

    Raises
    ------
    ValueError
        It is not JSON, or not of that form.
    """
    try:
        config = json.loads(text.strip() or "{}")
    except (ValueError, RecursionError) as problem:
        why = problem if isinstance(problem, json.JSONDecodeError) else "it is too large"
        raise ValueError(f"TF_CONFIG must be JSON, not {_shown(text)} ({why})") from None
    if isinstance(config, dict):
        said: dict[str, Any] = {key: value for key, value in config.items() if value is not None}
        if all(isinstance(said.get(part, {}), dict) for part in ("cluster", "task")):
            return said
    raise ValueError(f"TF_CONFIG must be JSON with a cluster and a task, not {_shown(text)}")


def tf_tasks(config: Mapping[str, Any]) -> dict[str, dict[int, str]]:
    """Return the tasks in ``TF_CONFIG``'s cluster: for each job the addresses by task number.

    Parameters
    ----------
    config : mapping
        The result of `tf_config`.

    Raises
    ------
    ValueError
        The tasks of a job are neither a list nor a dict by number.
    """
    found: dict[str, dict[int, str]] = {}
    for job, tasks in config.get("cluster", {}).items():
        if isinstance(tasks, list):
            found[job] = dict(enumerate(map(str, tasks)))
        elif isinstance(tasks, dict):
            found[job] = {
                number_of(f"TF_CONFIG: a task of job {job!r}", number): str(address)
                for number, address in tasks.items()
            }
        else:
            raise ValueError(  # noqa: TRY004 - it is a text that is wrong
                f"TF_CONFIG: the tasks of job {job!r} must be a list of addresses, or a dict of them by "
                f"number, not {_shown(repr(tasks))}"
            )
    return found


def tf_task(config: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """Return the job and the number of this task in ``TF_CONFIG``.

    Parameters
    ----------
    config : mapping
        The result of `tf_config`.

    Raises
    ------
    ValueError
        The type is not a str, or the index is not a number.
    """
    task = config.get("task", {})
    kind, index = task.get("type"), task.get("index")
    if kind is not None and not isinstance(kind, str):
        shown = _shown(repr(kind))
        raise ValueError(f"TF_CONFIG: the task's type must be a str, not {shown}")
    if index is None:
        return kind, None
    return kind, number_of("TF_CONFIG: the task's index", str(index))


def _tf_config(environ: Environment) -> Identity | None:
    """Return the identity in ``TF_CONFIG``, where the chief and the workers read, in this order, and an evaluator alone."""
    config = tf_config(environ.get("TF_CONFIG", ""))
    cluster = tf_tasks(config)
    if not cluster:
        return None
    kind, index = tf_task(config)
    counts = {job: len(tasks) for job, tasks in cluster.items()}
    if kind is None or index is None:
        raise ValueError(
            f"TF_CONFIG has a cluster of {counts} but no task: type and index must say which task this is"
        )
    said = f"TF_CONFIG task {kind} {index} of {counts}"
    if kind not in counts:
        raise ValueError(f"{said}: there is no such job in the cluster")
    if index not in cluster[kind]:
        numbers = sorted(cluster[kind])
        raise ValueError(f"{said}: index must be one of {', '.join(map(str, numbers)) or 'none'}")
    index = sorted(cluster[kind]).index(index)
    if kind == "ps":
        raise ValueError(f"{said}: a parameter server reads no input")
    if kind == "evaluator":
        return Identity(counts[kind], index, said)
    readers = [job for job in ("chief", "master", "worker") if job in counts]
    if kind not in readers:
        raise ValueError(f"{said}: chief, master, worker and evaluator read input")
    before = sum(counts[job] for job in readers[: readers.index(kind)])
    return Identity(sum(counts[job] for job in readers), before + index, said)


def _job(environ: Environment) -> Identity | None:
    """Return the identity in an indexed Kubernetes job, which tells a pod its number but not their count."""
    name = "JOB_COMPLETION_INDEX"
    if name not in environ:
        return None
    count = next((each for each in _COMPLETIONS if each in environ), None)
    if count is None:
        raise ValueError(
            f"{name}={_shown(environ[name])} is set: this is a pod of an indexed job, but Kubernetes does not say how many there are. Set {_COMPLETIONS[0]} in the pod's template to .spec.completions, or "
            "give an InputContext: InputContext(count, index), or InputContext() if pods do not share their input"
        )
    return _identity(environ, name, count)


def _slurm(environ: Environment) -> Identity | None:
    """Return the identity of a task that srun has started."""
    if _STEP not in environ and environ.get("SLURM_PROCID", "").strip() == "0":
        return None  # a batch script: it has the number 0, and its job's number of tasks
    return _SLURM(environ)


def _check_started(environ: Environment) -> None:
    """Raise in the script of a Slurm job of several tasks, none of which has been started."""
    found = None if _STEP in environ else _SLURM(environ)
    if found is not None and found.count > 1:
        raise ValueError(
            f"{found.said} and no {_STEP}: this is the script of a job of {found.count} tasks, of which one copy runs. "
            "Start the processes with srun or torchrun; or give an InputContext: InputContext() if this one reads alone"
        )


_STEP = "SLURM_STEP_NUM_TASKS"
# In a shell that salloc opens only the count is set, and no task has begun.
_SLURM = _Launcher(("SLURM_PROCID",), (_STEP, "SLURM_NTASKS"), shy=True)
_TORCHRUN = _Launcher(("RANK",), ("WORLD_SIZE",), "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_COMPLETIONS = ("JOB_COMPLETIONS", "JAX_PROCESS_COUNT", "JAX_NUM_PROCESSES")

_LAUNCHERS: tuple[Callable[[Environment], Identity | None], ...] = (
    _TORCHRUN,
    _jax,
    _Launcher(
        ("JAX_PROCESS_ID", "JAX_PROCESS_INDEX"),
        ("JAX_NUM_PROCESSES", "JAX_PROCESS_COUNT"),
        shy=True,
    ),
    _Launcher(
        ("OMPI_COMM_WORLD_RANK",),
        ("OMPI_COMM_WORLD_SIZE",),
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    _Launcher(("PMI_RANK",), ("PMI_SIZE",)),
    _slurm,
    _tf_config,
)
"""Launchers, innermost first: each may have been started by those after it."""
