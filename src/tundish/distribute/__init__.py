"""The input half of tf.distribute: one dataset for several processes, each with several replicas.

Nothing here knows a device or a strategy. It decides which process gets which rows, keeps the processes in step,
and saves their position.
"""

# `distribution`: the two ways to distribute; `dataset`: what they make, and is iterated; `iterator`: the steps of
# one process; `feeds`: where they come from; `state`: whose a state is; `division`: which plan a process runs;
# `files`: a plan divided by files; `values`: what replicas get; `options`: tf.distribute's words, and the
# arguments of both ways; `cluster_resolver`: which process of a cluster this is.

from __future__ import annotations

from tundish.distribute import cluster_resolver
from tundish.distribute.cluster_resolver import (
    ClusterResolver,
    ClusterSpec,
    GCEClusterResolver,
    KubernetesClusterResolver,
    SimpleClusterResolver,
    SlurmClusterResolver,
    TFConfigClusterResolver,
    TPUClusterResolver,
    UnionResolver,
)
from tundish.distribute.dataset import DistributedDataset
from tundish.distribute.distribution import distribute_dataset, distribute_datasets_from_function
from tundish.distribute.iterator import DistributedIterator
from tundish.distribute.options import InputOptions, InputReplicationMode
from tundish.distribute.values import DistributedValues, local_results
from tundish.loader.plan.inputs import InputContext

__all__ = [
    "ClusterResolver",
    "ClusterSpec",
    "DistributedDataset",
    "DistributedIterator",
    "DistributedValues",
    "GCEClusterResolver",
    "InputContext",
    "InputOptions",
    "InputReplicationMode",
    "KubernetesClusterResolver",
    "SimpleClusterResolver",
    "SlurmClusterResolver",
    "TFConfigClusterResolver",
    "TPUClusterResolver",
    "UnionResolver",
    "cluster_resolver",
    "distribute_dataset",
    "distribute_datasets_from_function",
    "experimental_distribute_dataset",
    "experimental_local_results",
    "local_results",
]

_STRATEGIES = "there are no strategies here: see docs/guide/distribute.md for what to use instead"


def __getattr__(name: str) -> object:
    hint = f"; {_STRATEGIES}" if "Strategy" in name else ""
    raise AttributeError(f"td.distribute has no {name!r}{hint}", name=name)


# A strategy's methods, so that ``strategy.`` becomes ``td.distribute.``.
experimental_distribute_dataset = distribute_dataset
experimental_local_results = local_results
