"""Operators that keep what was computed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from tundish.loader.plan.node import Node, Unary


@dataclass(frozen=True, eq=False)
class Cache(Unary):
    """The elements of the first pass, kept in memory for later ones."""

    computing = dynamic = True
    positional = False


class StoringMethods:
    """Methods of `Dataset` that keep what was computed."""

    def _then(self, kind: Callable[..., Node], *args: Any, **kwargs: Any) -> Self:
        raise NotImplementedError

    def cache(self, filename: str | os.PathLike[str] = "", name: str | None = None) -> Self:
        """Keep the elements in memory once a whole pass has been read.

        Later passes (of a `repeat`, or of another iterator of this dataset in this process) are
        served from memory. What lies below runs in pass 0 whenever it runs: later passes have the
        same order and the same augmentations, served or recomputed.

        Parameters
        ----------
        filename : path, optional
            tf.data's cache in files: that is to come with `snapshot`.
        name : str, optional
            For tf.data's sake; ignored.

        Raises
        ------
        NotImplementedError
            A `filename` was given.

        Notes
        -----
        At most as many bytes as the memory budget are kept (16 GiB without workers), in the
        consumer's process and beside what the budget counts. Past them nothing is kept, and each
        pass is computed anew, with one warning. A failed element is an element: it fails in each
        pass (in tf.data it is missing from later ones). An iterator restored in another process
        reads its pass again from the start.

        Examples
        --------
        >>> import tundish as td
        >>> ds = td.Dataset.range(2).cache().repeat(2)
        >>> [int(x) for x in ds]
        [0, 1, 0, 1]
        """
        if not isinstance(filename, (str, os.PathLike)):
            raise TypeError(
                "filename must be a path, or '' for a cache in memory, not "
                f"{type(filename).__name__} ({filename!r})"
            )
        if os.fspath(filename):
            raise NotImplementedError(
                f"cache({os.fspath(filename)!r}): elements are kept in files by `snapshot`, which "
                "is to come; cache() keeps them in memory"
            )
        return self._then(Cache)
