"""Which process of a cluster this is: tf.distribute's resolvers, for the input of each.

They read what a cluster says of itself, open no connection and set nothing. `input_context` of each
is what `distribute_dataset` wants.

- `spec`: who is in a cluster; `base`: what resolvers have in common;
- `simple`, `tfconfig`, `slurm`, `kubernetes`, `union`: the resolvers;
- `hostlist`: Slurm's lists of hosts.
"""

from __future__ import annotations

from tundish.distribute.cluster_resolver.base import ClusterResolver
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
from tundish.distribute.cluster_resolver.spec import ClusterSpec

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
