"""Resolvers of a process's place in a cluster: tf.distribute's, for the input of each process.

They read what a cluster says of itself and set nothing; of Google Cloud they ask the metadata server, and who is in
a group. `input_context` of each is what `distribute_dataset` wants.

- `base`: who is in a cluster, and what resolvers have in common;
- `simple`, `slurm`, `kubernetes`, `gce`, `tpu`: the resolvers;
- `google`: how the last two ask.
"""

from __future__ import annotations

from tundish.distribute.cluster_resolver.base import ClusterResolver, ClusterSpec
from tundish.distribute.cluster_resolver.gce import GCEClusterResolver
from tundish.distribute.cluster_resolver.kubernetes import (
    KubernetesClusterResolver,
    KubernetesExecutableLocation,
)
from tundish.distribute.cluster_resolver.simple import (
    SimpleClusterResolver,
    TFConfigClusterResolver,
    UnionResolver,
)
from tundish.distribute.cluster_resolver.slurm import SlurmClusterResolver
from tundish.distribute.cluster_resolver.tpu import TPUClusterResolver

__all__ = [
    "ClusterResolver",
    "ClusterSpec",
    "GCEClusterResolver",
    "KubernetesClusterResolver",
    "KubernetesExecutableLocation",
    "SimpleClusterResolver",
    "SlurmClusterResolver",
    "TFConfigClusterResolver",
    "TPUClusterResolver",
    "UnionResolver",
]
