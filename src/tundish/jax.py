"""tundish for JAX: batches as arrays on devices, ahead of the loop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

try:
    import jax
except ModuleNotFoundError as missing:
    if missing.name != "jax":
        raise
    raise ImportError(
        "tundish.jax needs JAX, which is not installed: pip install jax", name="jax"
    ) from missing

from tundish.nests import map_nest
from tundish.prefetching import Prefetcher

__all__ = ["JaxIterator", "to_device"]


def to_device(it: Iterable[Any], sharding: Any = None, depth: int = 2) -> JaxIterator:
    """Put batches of numpy arrays on devices ahead of the loop.

    Parameters
    ----------
    it : iterator or iterable
        An iterator of a `Dataset`, a `tundish.DataLoader`, or anything that yields nests of arrays.
        An iterable is iterated over once.
    sharding : jax.Device, jax.sharding.Sharding, or a nest of these, optional
        The destination. With a sharding, an array is *this process's part* of the global array; with a single
        process it is the whole. A nest has the structure of a batch. Default: JAX's default device.
    depth : int
        The number of batches that are transferred ahead of the loop.

    Returns
    -------
    JaxIterator
        Yields the batches as ``jax.Array``, in the same nests; anything but arrays of numbers (``str``,
        objects, times) stays unchanged. If the source has a state, so has this, *after the last batch that
        the loop was given*. It also has ``close`` and ``with``.

    Notes
    -----
    On the CPU a ``jax.Array`` may share the memory of the numpy array, which then stays in use as long as the
    ``jax.Array`` lives. So do not pass an iterator that overwrites arrays that it has delivered.

    JAX's rules for dtypes apply: without ``jax_enable_x64`` an int64 becomes an int32.

    Examples
    --------
    >>> import tundish as td
    >>> from tundish.jax import to_device
    >>> with to_device(iter(td.Dataset.range(4).batch(2))) as batches:
    ...     [int(x.sum()) for x in batches]
    [1, 5]
    """
    return JaxIterator(it, sharding, depth)


class JaxIterator(Prefetcher):
    """Batches as JAX's arrays; made by `to_device`."""

    def __init__(self, source: Iterable[Any], sharding: Any, depth: int) -> None:
        super().__init__(source, depth)
        self._sharding = sharding

    def _begin(self, element: Any) -> Any:
        return place(element, self._sharding)


def place(batch: Any, sharding: Any) -> Any:
    """A nest with its arrays on devices; the transfers have started, and may not be complete."""
    if sharding is None or isinstance(sharding, (jax.Device, jax.sharding.Sharding)):
        return map_nest(lambda leaf: _put(leaf, sharding), batch)
    return jax.tree.map(_put, batch, sharding)


def _put(leaf: Any, where: Any) -> Any:
    if not isinstance(leaf, (np.ndarray, np.generic, jax.Array)):
        return leaf
    if not jax.numpy.issubdtype(leaf.dtype, np.number) and leaf.dtype != np.bool_:
        return leaf
    if isinstance(where, jax.sharding.Sharding):
        return jax.make_array_from_process_local_data(where, np.asarray(leaf))
    return jax.device_put(leaf, where)
