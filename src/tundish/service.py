"""A data service: pipelines computed on other machines, with tf.data's names.

::

    dispatcher = td.service.DispatchServer(td.service.DispatcherConfig(port=5050))       # one process
    worker = td.service.WorkerServer(td.service.WorkerConfig(dispatcher_address="host:5050"))  # on each machine

    ds = ds.apply(td.service.distribute("distributed_epoch", "tcp://host:5050"))         # in the trainer

The service's machines compute the operators before `distribute` in a pipeline, and the trainer those after it. The
order of elements, and an iterator's state, are the same as without the service.

This module has the public functions; the implementation is in `tundish.loader.service`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tundish.calls import check_is
from tundish.loader.dataset import Dataset
from tundish.loader.operators.repeat import Repeat
from tundish.loader.plan.checks import check_count
from tundish.loader.service.distributing.arguments import (
    CrossTrainerCache,
    check_compression,
    check_copies,
    check_endless,
    check_policy,
    check_service,
    sharing_of,
    terms_of,
)
from tundish.loader.service.distributing.distribute import Copies, Distribute, ShardingPolicy
from tundish.loader.service.distributing.registering import fetched, registered, shares_of
from tundish.loader.service.host.host import host
from tundish.loader.service.jobs.merging import alone, merge_states
from tundish.loader.service.ray.train import get_dataset_shard
from tundish.loader.service.servers.configs import DispatcherConfig, WorkerConfig
from tundish.loader.service.servers.dispatchserver import DispatchServer
from tundish.loader.service.servers.workerserver import WorkerServer

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.service.distributing.distribute import Terms
    from tundish.loader.service.ray.service import RayFleet
    from tundish.loader.service.servers.fleet import Fleet

__all__ = [
    "CrossTrainerCache",
    "DispatchServer",
    "DispatcherConfig",
    "ShardingPolicy",
    "WorkerConfig",
    "WorkerServer",
    "alone",
    "distribute",
    "from_dataset_id",
    "get_dataset_shard",
    "host",
    "merge_states",
    "register_dataset",
    "start",
]

Apply = Callable[[Dataset], Dataset]


def __dir__() -> list[str]:
    """Return the public names alone."""
    return __all__


def distribute(  # noqa: PLR0917 - tf.data's signature
    processing_mode: ShardingPolicy | str,
    service: str | tuple[str, str],
    job_name: str | None = None,
    consumer_index: int | None = None,
    num_consumers: int | None = None,
    max_outstanding_requests: int | None = None,
    data_transfer_protocol: str | None = None,  # noqa: ARG001 - tf.data's signature
    compression: str | None = "AUTO",
    cross_trainer_cache: CrossTrainerCache | None = None,
    target_workers: str = "AUTO",
    *,
    copies: int | None = None,
) -> Apply:
    """Let a service compute all operators before this one; for `Dataset.apply`.

    Parameters
    ----------
    processing_mode : ShardingPolicy or str
        How the service's workers divide the dataset; ``"parallel_epochs"`` is OFF, ``"distributed_epoch"`` is DYNAMIC.
    service : str or (str, str)
        The dispatcher: ``host:port``, or ``DispatchServer.target``. ``grpc://`` means ``tcp://``.
    job_name : str, optional
        The name of a job that several consumers share: each element goes to the consumer that asks first. Each epoch
        is a new job. By default the trainer has its own job.
    consumer_index, num_consumers : int, optional
        The job deals its elements in rounds of `num_consumers` elements, and this consumer gets element number
        `consumer_index` of each round. The dataset must be infinite.
    max_outstanding_requests : int, optional
        The maximum number of blocks in transit at once. A block has several elements, or one batch. In any case,
        `Options.memory_budget` limits their bytes.
    data_transfer_protocol : str, optional
        Accepted as in tf.data, and ignored.
    compression : {"AUTO"} or None
        With both values rows are sent uncompressed; the name of a codec is refused. To send less, let the pipeline
        return uint8 and convert it on the accelerator.
    cross_trainer_cache : CrossTrainerCache, optional
        If given, each of the trainers that share the job gets all of its elements.
    target_workers : {"AUTO", "ANY", "LOCAL"}
        "LOCAL": only workers on this machine. "ANY": only the service's workers. "AUTO": with
        ``num_parallel_calls=AUTOTUNE``, first the cores of this machine and then the service's; otherwise as "ANY".
    copies : int, optional
        The number of copies of the dataset, for OFF only. By default one for each worker that has joined. Not in
        tf.data.

    Returns
    -------
    callable
        A function from a dataset to a dataset.

    Raises
    ------
    TypeError, ValueError
        An argument is invalid, or two arguments contradict each other. When the result is applied: the dataset
        cannot be divided in this way.

    Notes
    -----
    tf.data divides a dataset into splits, and each worker runs the whole pipeline on its own split, so `take`,
    `enumerate`, `zip` and `batch` have other results than in one process. Here one coordinator, in the trainer, decides
    which element comes next, and workers compute it. So the elements, their order and an iterator's state are those of
    the dataset without a service, and the death of a worker costs only time.

    - DYNAMIC: the dataset's elements, in its order. In tf.data: in any order, and at most once.
    - OFF: one pass over the whole dataset for each worker that has joined when the dataset is first read. The passes
      follow one another, each with its own randomness as with `repeat`. Their number is in the state. In tf.data the
      passes are mixed.
    - DATA: the same as DYNAMIC, because an element does not depend on the worker that computes it.
    - FILE: the files are divided into as many shares as the dispatcher has `worker_addresses`, and the shares deliver
      one element each in turn. FILE_OR_DATA: the same, or DATA if files cannot be divided.
    - HINT: the same number of shares, divided where the plan has ``shard(SHARD_HINT, SHARD_HINT)``. They deliver one
      element each in turn.

    A named job runs next to one of the workers. Deliveries are recorded only in the states of its consumers:
    `merge_states` merges them into one state, from which any number of consumers can continue. A job has one dataset;
    in tf.data a second dataset under the same name is silently empty.

    Functions are sent with the plan, as to local workers. Any Python function works, but other machines need the same
    version of Python, the same packages, and the files at the same paths.

    The number of workers is `Options.workers`, or else the largest `num_parallel_calls`; with AUTOTUNE the tuner may
    request more. If neither is set, it is the number of this machine's cores. ``TUNDISH_WORKERS`` and
    ``iterator(workers=0)`` run the pipeline without the service.

    Examples
    --------
    >>> import tundish as td
    >>> dispatcher = td.service.DispatchServer()
    >>> config = td.service.WorkerConfig(dispatcher_address=dispatcher.target.split("://")[1])
    >>> worker = td.service.WorkerServer(config)
    >>> ds = td.Dataset.range(5).map(lambda x: x * x)
    >>> ds = ds.apply(td.service.distribute("distributed_epoch", dispatcher.target))
    >>> [int(x) for x in ds]
    [0, 1, 4, 9, 16]
    """
    policy = check_policy(processing_mode)
    check_copies(copies, policy)
    terms = terms_of(service, target_workers, max_outstanding_requests, compression)
    sharing = sharing_of(job_name, consumer_index, num_consumers, cross_trainer_cache)

    def apply(ds: Dataset) -> Dataset:
        check_is(ds, Dataset, "distribute() must be applied to a Dataset")
        node: Operator = ds._node  # noqa: SLF001 - our own
        if sharing is not None:
            check_endless(node, sharing[1])
        divided = _divided(ds, node, policy, terms, copies)
        made = ds._of(Distribute(divided, terms))  # noqa: SLF001 - our own
        if sharing is None:
            return made
        from tundish.loader.service.distributing.sharing import consumed  # noqa: PLC0415 - few share a job

        return ds._of(consumed(made, terms, sharing))  # noqa: SLF001 - our own

    return apply


def _divided(
    ds: Dataset, node: Operator, policy: ShardingPolicy, terms: Terms, copies: int | None
) -> Operator:
    """Return the plan of all workers' elements."""
    if policy is ShardingPolicy.OFF:
        return Copies(node, None, terms) if copies is None else Repeat(node, copies)
    if policy in (ShardingPolicy.DYNAMIC, ShardingPolicy.DATA):
        return node
    from tundish.distribute.division import hinted  # noqa: PLC0415 - few policies divide, and these import much
    from tundish.distribute.files import NoFilesError, by_files  # noqa: PLC0415 - likewise

    count = shares_of(terms, policy)
    try:
        divide = hinted if policy is ShardingPolicy.HINT else by_files
        shares = [ds._of(divide(node, count, each)) for each in range(count)]  # noqa: SLF001 - our own
    except NoFilesError:
        if policy is ShardingPolicy.FILE:
            raise
        return node
    turns = Dataset.range(count).repeat()
    return Dataset.choose_from_datasets(shares, turns, stop_on_empty_dataset=False)._node  # noqa: SLF001 - our own


def register_dataset(
    service: str | tuple[str, str],
    dataset: Dataset,
    compression: str | None = "AUTO",
    dataset_id: str | None = None,
) -> str:
    """Register a dataset with a service, so that others can read it by its id.

    Parameters
    ----------
    service : str or (str, str)
        The dispatcher, as for `distribute`.
    dataset : Dataset
        The dataset.
    compression : {"AUTO"} or None
        As for `distribute`.
    dataset_id : str, optional
        Its id. By default it depends on the fingerprint, the seed of `set_seed`, and the globals that are sent along.

    Returns
    -------
    str
        The id. Equal datasets have the same id and are stored only once.

    Raises
    ------
    TypeError
        Something in the dataset cannot be pickled; the error names it.
    FingerprintError
        No `dataset_id` was given, and a function holds an object without a fingerprint.
    ValueError
        Another dataset has this id.
    ChangedGlobalsError
        A global that functions read was changed, and `Options.globals` is "error".
    TimeoutError
        No dispatcher answers there.

    Warns
    -----
    UserWarning
        A global that functions read was changed; its value is sent along.

    Notes
    -----
    In tf.data a dataset with Python functions cannot be registered; here the functions are sent with it. A process that
    reads the dataset needs the packages that the functions use, and runs the functions: both must be trusted.

    Examples
    --------
    >>> import tundish as td
    >>> dispatcher = td.service.DispatchServer()
    >>> config = td.service.WorkerConfig(dispatcher_address=dispatcher.target.split("://")[1])
    >>> worker = td.service.WorkerServer(config)
    >>> number = td.service.register_dataset(dispatcher.target, td.Dataset.range(3))
    >>> [int(x) for x in td.service.from_dataset_id("distributed_epoch", dispatcher.target, number)]
    [0, 1, 2]
    """
    target = check_service(service)
    check_compression(compression)
    check_is(dataset, Dataset, "dataset must be a Dataset")
    if dataset_id is not None:
        check_is(dataset_id, str, "dataset_id must be a str")
    return registered(target, dataset, dataset_id)


def from_dataset_id(  # noqa: PLR0917 - tf.data's signature
    processing_mode: ShardingPolicy | str,
    service: str | tuple[str, str],
    dataset_id: str,
    element_spec: Any = None,  # noqa: ARG001 - tf.data's signature
    job_name: str | None = None,
    consumer_index: int | None = None,
    num_consumers: int | None = None,
    max_outstanding_requests: int | None = None,
    data_transfer_protocol: str | None = None,
    cross_trainer_cache: CrossTrainerCache | None = None,
    target_workers: str = "AUTO",
    *,
    copies: int | None = None,
) -> Dataset:
    """Read a dataset that was registered with `register_dataset`.

    Parameters
    ----------
    processing_mode, service
        As for `distribute`.
    dataset_id : str
        The id that `register_dataset` returned.
    element_spec : nest of ArraySpec, optional
        Ignored; the registered dataset has it.
    job_name, consumer_index, num_consumers, max_outstanding_requests, data_transfer_protocol
        As for `distribute`.
    cross_trainer_cache, target_workers, copies
        As for `distribute`.

    Returns
    -------
    Dataset

    Raises
    ------
    FileNotFoundError
        No dataset of this id is registered.
    TimeoutError
        No dispatcher answers there.
    TypeError, ValueError
        As for `distribute`.

    Warns
    -----
    UserWarning
        A global's value in this process differs from the one where the dataset was registered.
    """
    apply = distribute(
        processing_mode,
        service,
        job_name,
        consumer_index,
        num_consumers,
        max_outstanding_requests,
        data_transfer_protocol,
        "AUTO",
        cross_trainer_cache,
        target_workers,
        copies=copies,
    )
    check_is(dataset_id, str, "dataset_id must be what register_dataset returned, a str")
    return apply(fetched(check_service(service), dataset_id))


def start(
    workers: int | None = None,
    cpus_per_worker: int = 1,
    address: str | None = "auto",
    *,
    name: str = "tundish",
    work_dir: str | None = None,
    options: Mapping[str, Any] | None = None,
    dispatcher: Mapping[str, Any] | None = None,
    token_file: str | None = None,
) -> RayFleet | Fleet:
    """Start a dispatcher and workers on a Ray cluster, or as processes of this machine.

    Parameters
    ----------
    workers : int, optional
        The number of workers. By default as many as the trainers need, and none while there is no trainer.
    cpus_per_worker : int
        The number of CPUs of each worker, and of the processes that it runs.
    address : str, optional
        The address of the cluster. ``"auto"``: the cluster of ``RAY_ADDRESS``, or the one that this machine belongs
        to, or else a new one on this machine, which ends with this process. ``"local"``: always a new one. None:
        processes on this machine, without Ray.
    name : str
        The name of the service in the cluster: a second call with it finds the same service.
    work_dir : str, optional
        For Ray only: the folder of the dispatcher's journal, which must be reachable from all nodes that it may move to. By
        default a folder on the machine of the cluster's head.
    options : mapping, optional
        For Ray only: its options for workers, such as ``resources`` or ``label_selector``, to have them with the trainers'
        nodes, or apart. By default they are spread over all nodes.
    dispatcher : mapping, optional
        For Ray only: its options for the dispatcher. By default it is on the head's node while that is there, so that its
        address stays the same.
    token_file : str, optional
        For Ray only: the file of the token that trainers prove. By default this user's own.

    Returns
    -------
    Fleet or RayFleet
        Has `target`, for `distribute`, ``scale(workers)`` and ``stop()``, and is a context manager.

    Raises
    ------
    ImportError
        Ray is not installed.
    RuntimeError
        The service did not start on Ray; the message has the reason.
    TypeError, ValueError
        A number is too small or no integer, or an argument for Ray was given with ``address=None``.

    Notes
    -----
    Not in tf.data, where servers are started one by one. Neither a trainer nor the caller of this function imports Ray: a
    separate process joins the cluster. On an existing cluster, the service continues when this process ends.

    Examples
    --------
    >>> import tundish as td
    >>> with td.service.start(workers=1, address=None) as fleet:
    ...     ds = td.Dataset.range(3).apply(td.service.distribute("distributed_epoch", fleet.target))
    ...     [int(x) for x in ds]
    [0, 1, 2]
    """
    given: dict[str, Any] = {
        "work_dir": work_dir,
        "options": options,
        "dispatcher": dispatcher,
        "token_file": token_file,
    }
    if workers is not None:
        check_count("workers", workers, least=0)
    check_count("cpus_per_worker", cpus_per_worker, least=1)
    if address is None:
        wrong = [each for each, value in given.items() if value is not None]
        if wrong:
            raise ValueError(
                f"{' and '.join(wrong)} of start() is for Ray; address=None starts processes of this machine"
            )
        from tundish.loader.service.servers.localengine import local_fleet  # noqa: PLC0415 - one of the two

        return local_fleet(workers, cpus_per_worker)
    from tundish.loader.service.ray.service import start_on_ray  # noqa: PLC0415 - as above

    return start_on_ray(workers, cpus_per_worker, address, name=name, **given)
