"""Batches taken directly from a dataset's columns, without making samples.

They equal the batches of samples by the default rules, if the dataset's columns are known. With a
`collate_fn`, added rules or keys that are not plain integers, samples are made.
"""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.dataloader.columns import as_ruled
from tundish.loader.dataloader.dtypes import NUMPY, is_tensor
from tundish.loader.dataloader.recipe import sample_getter
from tundish.loader.dataloader.rules import added_rules
from tundish.loader.dataloader.wire import TensorLeaf
from tundish.loader.protocols.foreign import columns_of, has_columns

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.dataloader.recipe import Recipe
    from tundish.loader.protocols.plain import Allocate

_INTEGERS = {int}


class Tabular:
    """The columns of a loader's dataset.

    Parameters
    ----------
    recipe : Recipe
        The loader's recipe.
    rule : callable
        Returns the default rule for a list of values, when it is needed.
    """

    def __init__(self, recipe: Recipe, rule: Callable[[Recipe], Callable[[Any], Any]]) -> None:
        self._recipe, self._rule = recipe, rule
        plain = recipe.batched and recipe.collate is None
        dataset = recipe.dataset
        self._applies = plain and has_columns(dataset) and sample_getter(dataset) is None

    def batch(self, keys: Any, allocate: Allocate | None) -> Any:
        """Return the batch of keys.

        Parameters
        ----------
        keys : object
            The keys, used if they are a list.
        allocate : callable or None
            Allocates columns, in a worker.

        Returns
        -------
        nest or None
            None if samples have to be made, also to find an error.
        """
        if not self._applies or (self._recipe.tensors and added_rules()):
            return None
        at = _places(keys)
        if at is None:
            return None
        try:
            columns = columns_of(self._recipe.dataset, at, allocate, together=True)
            return None if columns is None else self._batch(columns, allocate)
        except Exception:  # noqa: BLE001 - it comes again, with a sample's index
            return None

    def _batch(self, columns: Any, allocate: Allocate | None) -> Any:
        """Return columns as the default rules leave them: a tuple becomes a list."""
        if isinstance(columns, tuple):
            return [self._batch(each, allocate) for each in columns]
        if isinstance(columns, dict):
            return {key: self._batch(each, allocate) for key, each in columns.items()}
        if isinstance(columns, list):
            return self._rule(self._recipe)(columns)
        if is_tensor(columns):
            return columns if self._recipe.tensors else as_ruled(columns, NUMPY)
        if not self._recipe.tensors:
            return columns
        torch: Any = sys.modules["torch"] if allocate is None else None
        return TensorLeaf(columns) if torch is None else torch.from_numpy(columns)


def _places(keys: Any) -> np.ndarray | None:
    if type(keys) is not list or not keys or set(map(type, keys)) != _INTEGERS:
        return None
    try:
        return np.frombuffer(array("q", keys), np.int64)
    except OverflowError:
        return None
