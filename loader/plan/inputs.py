"""The number of this process among several input pipelines."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from tundish.loader.plan.checks import check_count
from tundish.loader.plan.launchers import identity


@dataclass(frozen=True)
class InputContext:
    """The number of this process among several input pipelines.

    Parameters
    ----------
    num_input_pipelines, input_pipeline_id : int
        The number of reading processes, and the number of this one.
    num_replicas_in_sync : int
        The number of replicas that share a global batch.

    Raises
    ------
    ValueError
        A count is below 1, or the id is not below the number of pipelines.

    Examples
    --------
    >>> context = InputContext(num_input_pipelines=2, input_pipeline_id=1, num_replicas_in_sync=8)
    >>> context.get_per_replica_batch_size(64)
    8
    """

    num_input_pipelines: int = 1
    input_pipeline_id: int = 0
    num_replicas_in_sync: int = 1

    def __post_init__(self) -> None:
        check_count("num_input_pipelines", self.num_input_pipelines, least=1)
        check_count("input_pipeline_id", self.input_pipeline_id, least=0)
        check_count("num_replicas_in_sync", self.num_replicas_in_sync, least=1)
        if self.input_pipeline_id >= self.num_input_pipelines:
            raise ValueError(
                f"input_pipeline_id must be below num_input_pipelines: it is {self.input_pipeline_id} of "
                f"{self.num_input_pipelines}"
            )

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Divide a global batch size over the replicas.

        Parameters
        ----------
        global_batch_size : int
            The size for all replicas together.

        Raises
        ------
        ValueError
            It is not a multiple of the number of replicas.
        """
        check_count("global_batch_size", global_batch_size, least=0)
        size, rest = divmod(global_batch_size, self.num_replicas_in_sync)
        if rest:
            raise ValueError(
                f"global_batch_size must be a multiple of the {self.num_replicas_in_sync} replicas, not "
                f"{global_batch_size}"
            )
        return size

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Read the number of processes, and this one's number, as the launcher has set them; else 1 and 0.

        Each process counts as one replica.

        Parameters
        ----------
        environ : mapping, optional
            Replaces this process's environment.

        Raises
        ------
        ValueError
            A variable is not a number or out of range, only one of a pair is set, or two launchers contradict each
            other. The message names the variables and their values.

        Notes
        -----
        Read, in this order:

        ============== ======================================================================
        torchrun       ``RANK``, ``WORLD_SIZE``
        JAX            `jax.distributed` if this process has initialised it (JAX is not imported
                       for it); ``JAX_PROCESS_ID`` or ``JAX_PROCESS_INDEX``, and
                       ``JAX_NUM_PROCESSES`` or ``JAX_PROCESS_COUNT``
        MPI            ``OMPI_COMM_WORLD_RANK``, ``_SIZE``; ``PMI_RANK``, ``PMI_SIZE``
        Slurm          ``SLURM_PROCID``, ``SLURM_STEP_NUM_TASKS`` or ``SLURM_NTASKS``, as srun
                       sets them; the script of a job of several tasks is refused
        TensorFlow     ``TF_CONFIG``: chief, then workers
        Kubernetes     ``JOB_COMPLETION_INDEX`` of an indexed job, and ``JOB_COMPLETIONS``, which
                       you set in the pod's template (``JAX_PROCESS_COUNT`` will do)
        ============== ======================================================================

        Several launchers may agree, and one may have been started by each task of another: torchrun with 8
        processes on each of 2 Slurm tasks is 16.

        Examples
        --------
        >>> InputContext.from_environment({"RANK": "2", "WORLD_SIZE": "4"})
        InputContext(num_input_pipelines=4, input_pipeline_id=2, num_replicas_in_sync=4)
        """
        found = identity(os.environ if environ is None else environ)
        return cls() if found is None else cls(found.count, found.index, found.count)
