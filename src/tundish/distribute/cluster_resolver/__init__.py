"""Resolvers of a process's place in a cluster: tf.distribute's, for the input of each process.

They read what a cluster says of itself, open no connection and set nothing. `input_context` of each
is what `distribute_dataset` wants.

- `base`: who is in a cluster, and what resolvers have in common;
- `simple`, `slurm`, `kubernetes`: the resolvers.
"""

from __future__ import annotations

from tundish.distribute.cluster_resolver.base import ClusterResolver, ClusterSpec
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

__all__ = [
    "ClusterResolver",
    "ClusterSpec",
    "KubernetesClusterResolver",
    "KubernetesExecutableLocation",
    "SimpleClusterResolver",
    "SlurmClusterResolver",
    "TFConfigClusterResolver",
    "UnionResolver",
]
