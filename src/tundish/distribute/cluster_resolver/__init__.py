"""Resolvers of a process's place in a cluster: tf.distribute's, for the input of each process.

A resolver reads what the cluster's environment says, and sets nothing. Those for Google Cloud ask its metadata server,
and which machines are in a group. Pass a resolver's `input_context` to `distribute_dataset` as ``context=``.
"""

# `base`: who is in a cluster, and what resolvers have in common; `simple`, `slurm`, `kubernetes`, `gce`, `tpu`: the
# resolvers; `google`: how the last two ask.

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
