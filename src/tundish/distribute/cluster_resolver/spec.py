"""Who is in a cluster: jobs, and the addresses of their tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Tasks = list[str] | dict[int, str]


class ClusterSpec:
    """The jobs of a cluster, and the network addresses of their tasks.

    Parameters
    ----------
    cluster : mapping or ClusterSpec
        Of each job a list of addresses, or a dict of them by the task's number.

    Raises
    ------
    TypeError
        It is something else.

    Notes
    -----
    tf.train.ClusterSpec, without protocol buffers.

    Examples
    --------
    >>> cluster = ClusterSpec({"worker": ["a:1", "b:1"], "ps": {3: "c:1"}})
    >>> cluster.num_tasks("worker"), cluster.task_address("ps", 3)
    (2, 'c:1')
    """

    def __init__(self, cluster: Any) -> None:
        if isinstance(cluster, ClusterSpec):
            cluster = cluster.as_dict()
        if not isinstance(cluster, Mapping):
            what = f"{type(cluster).__name__} ({cluster!r})"
            raise TypeError(f"cluster must be a dict of jobs and their addresses, not {what}")
        self._jobs = {str(job): _by_number(job, tasks) for job, tasks in cluster.items()}

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterSpec) and self._jobs == other._jobs

    def __hash__(self) -> int:
        return hash(tuple(sorted((job, tuple(sorted(x.items()))) for job, x in self._jobs.items())))

    def __repr__(self) -> str:
        return f"ClusterSpec({dict(sorted(self.as_dict().items()))!r})"

    def as_dict(self) -> dict[str, Tasks]:
        """Of each job a list of addresses; a dict where numbers are left out."""
        return {
            job: [tasks[k] for k in range(len(tasks))]
            if set(tasks) == set(range(len(tasks)))
            else dict(tasks)
            for job, tasks in self._jobs.items()
        }

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs."""
        return list(self._jobs)

    def num_tasks(self, job_name: str) -> int:
        """How many tasks a job has.

        Parameters
        ----------
        job_name : str
            Which job.
        """
        return len(self._tasks(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """The numbers of a job's tasks.

        Parameters
        ----------
        job_name : str
            Which job.
        """
        return sorted(self._tasks(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        """The address of a task.

        Parameters
        ----------
        job_name : str
            Which job.
        task_index : int
            Which of its tasks.

        Raises
        ------
        ValueError
            There is no such job, or no such task in it.
        """
        tasks = self._tasks(job_name)
        if task_index not in tasks:
            raise ValueError(f"job {job_name!r} has no task {task_index!r}; it has {sorted(tasks)}")
        return tasks[task_index]

    def job_tasks(self, job_name: str) -> list[str | None]:
        """The addresses of a job's tasks; None where a number is left out.

        Parameters
        ----------
        job_name : str
            Which job.
        """
        tasks = self._tasks(job_name)
        return [tasks.get(k) for k in range(max(tasks, default=-1) + 1)]

    def _tasks(self, job: str) -> dict[int, str]:
        if job not in self._jobs:
            raise ValueError(
                f"the cluster has no job {job!r}; it has {', '.join(self._jobs) or 'none'}"
            )
        return self._jobs[job]


def _by_number(job: Any, tasks: Any) -> dict[int, str]:
    if isinstance(tasks, (list, tuple)):
        return dict(enumerate(map(str, tasks)))
    if isinstance(tasks, Mapping):
        return {int(number): str(address) for number, address in tasks.items()}
    raise TypeError(
        f"the tasks of job {job!r} must be a list of addresses, or a dict of them by number, not {tasks!r}"
    )
