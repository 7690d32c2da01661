"""Datasets made by a function, one for each process or replica: `distribute_datasets_from_function`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.calls import check_is
from tundish.distribute.dataset import DistributedDataset
from tundish.distribute.division import batches_below, check_uneven
from tundish.distribute.feeds import ElementFeed
from tundish.distribute.iterator import DistributedIterator, Ending
from tundish.distribute.options import (
    AllMin,
    InputOptions,
    InputReplicationMode,
    checked,
    context_of,
    seed_of,
    with_ahead,
)
from tundish.distribute.state import StateKind
from tundish.distribute.values import Specs
from tundish.loader.dataset import Dataset
from tundish.loader.plan.checks import check_callable
from tundish.loader.plan.inputs import InputContext
from tundish.loader.plan.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, walk
from tundish.loader.run.evaluating.effective import effective

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.run.iterator import Iterator


def distribute_datasets_from_function(
    dataset_fn: Callable[[InputContext], Dataset],
    options: InputOptions | None = None,
    *,
    context: InputContext | None = None,
    replicas: int | None = None,
    uneven: str | None = None,
    all_min: AllMin | None = None,
    mask_key: str = "valid",
) -> DistributedDataset:
    """Make this process's dataset by a function, which divides and batches it itself.

    Parameters
    ----------
    dataset_fn : callable
        Called at once as ``dataset_fn(context)``; returns a `Dataset` whose elements are batches for one
        replica: ``context.get_per_replica_batch_size(n)`` rows. With PER_REPLICA it is called for each
        replica of this process, which is an input pipeline of its own.
    options : InputOptions, optional
        tf.distribute's.
    context : InputContext, optional
        Which process this is. Default: `InputContext.from_environment`.
    replicas : int, optional
        How many replicas this process feeds. Each step takes an element for each.
    uneven : {"drop", "pad", "error", "ignore"}, optional
        As for `distribute_dataset`. Of several processes all but "ignore" need `all_min`, or datasets
        without an end. Default: each process ends by itself, and in its last step replicas that have
        nothing have no rows.
    all_min : callable, optional
        As for `distribute_dataset`.
    mask_key : str
        For "pad".

    Returns
    -------
    DistributedDataset

    Raises
    ------
    TypeError
        The function returned something else; an argument is of another type.
    ValueError
        `uneven` needs what one process does not know.

    Notes
    -----
    A state is this process's own, unless the dataset is divided by `shard_by_process` alone: then it is
    good for any number of processes, as there.

    Examples
    --------
    >>> import tundish as td
    >>> def mine(context):
    ...     ds = td.Dataset.range(8).shard_by_process(context)
    ...     return ds.batch(context.get_per_replica_batch_size(4))
    >>> context = td.InputContext(2, 1, num_replicas_in_sync=2)
    >>> ds = td.distribute.distribute_datasets_from_function(mine, context=context)
    >>> [x.tolist() for x in ds]
    [[1, 3], [5, 7]]
    """
    check_callable("dataset_fn", dataset_fn)
    options = checked(options, all_min, mask_key)
    context = context_of(context, replicas)
    chosen = check_uneven(uneven)
    count, index = context.num_input_pipelines, context.input_pipeline_id
    each = context.num_replicas_in_sync // count
    contexts = [context]
    if options.experimental_replication_mode is InputReplicationMode.PER_REPLICA:
        total = context.num_replicas_in_sync
        contexts = [InputContext(total, each * index + k, total) for k in range(each)]
    made = []
    for one in contexts:
        found = dataset_fn(one)
        check_is(found, Dataset, "dataset_fn must return a Dataset")
        made.append(found)
    endless = all(ds.cardinality() == INFINITE_CARDINALITY for ds in made)
    if chosen in ("drop", "pad", "error") and count > 1 and all_min is None and not endless:
        raise ValueError(
            f"uneven={chosen!r} needs the number of steps of all processes, and a function's dataset does "
            "not tell that of the others. Give all_min=, a function that makes the least of one int of each "
            "process (an all-reduce); or repeat() the dataset and count steps"
        )
    full = batches_below(made[0]._node).batch_size  # noqa: SLF001 - ours; rows of an element that is whole
    if chosen in ("pad", "drop") and full is None:
        raise ValueError(
            f"uneven={chosen!r} needs to know how many rows an element has when it is whole: let the last "
            "operator of the function's dataset be a batch"
        )
    per_element = each // len(made)
    nodes = tuple(ds._node for ds in made)  # noqa: SLF001 - ours
    ahead = tuple(Dataset._of(with_ahead(node, options, per_element)) for node in nodes)  # noqa: SLF001 - ours
    run = tuple(effective(ds._node) for ds in ahead)  # noqa: SLF001 - ours
    shared = all(_shared(root, one) for root, one in zip(nodes, contexts, strict=True))
    kind = StateKind("function", run, run, (count, index), shared and len(made) == 1)
    steady = full if chosen in ("pad", "drop") else None
    specs = Specs(
        lambda: made[0].element_spec,
        (steady,) * each,
        mask_key if chosen == "pad" else None,
        cuts=False,
    )
    ending = Ending(chosen, None, None if endless else all_min, mask_key)

    def opened(iterators: tuple[Iterator, ...]) -> DistributedIterator:
        feed = ElementFeed(iterators, each, full)
        return DistributedIterator(iterators, feed, ending, kind, specs)

    return DistributedDataset.__new__(DistributedDataset)._begin(  # noqa: SLF001 - a constructor
        ahead,
        opened,
        specs,
        context=context,
        options=options,
        cardinality=_steps_of(made, per_element, chosen, all_min),
        seed=seed_of(nodes[0], all_min) if shared else None,
    )


def _steps_of(
    made: list[Dataset], per_element: int, uneven: str | None, all_min: AllMin | None
) -> int:
    counts = [ds.cardinality() for ds in made]
    if all(count == INFINITE_CARDINALITY for count in counts):
        return INFINITE_CARDINALITY
    known = [count for count in counts if count != INFINITE_CARDINALITY]
    if UNKNOWN_CARDINALITY in known or all_min is not None or uneven in ("drop", "error"):
        return UNKNOWN_CARDINALITY
    return max(-(-count // per_element) for count in known)


def _shared(root: Any, context: InputContext) -> bool:
    """Return True if a plan is only divided by `shard_by_process`, so that any process can load its states."""
    shares = [node.share for node in walk(root) if node.share is not None]
    return bool(shares) and all(
        (share.num_input_pipelines, share.input_pipeline_id)
        == (context.num_input_pipelines, context.input_pipeline_id)
        for share in shares
    )
