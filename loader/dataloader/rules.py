"""Rules that the user has put into torch's table of collate rules, ``default_collate_fn_map``."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

_TABLE = "torch.utils.data._utils.collate"
_OF_WORKERS = "tundish.loader.dataloader.worker"
"""The module of the rule that stands in a worker's table for torch's own of tensors."""

_TORCHS: dict[Any, str] = {
    np.ndarray: "collate_numpy_array_fn",
    (np.bool_, np.number, np.object_): "collate_numpy_scalar_fn",
    float: "collate_float_fn",
    int: "collate_int_fn",
    str: "collate_str_fn",
    bytes: "collate_str_fn",
}
"""Torch's own rules, by name; the rule for tensors is added once torch has been imported."""


def added_rules() -> list[tuple[Any, Any]]:
    """Return the user's rules in this process: for types that torch has none for, and in place of its own.

    One of torch's own rules is the user's, too, where it is put in for another type.

    Returns
    -------
    list of (type or tuple of types, callable)
    """
    collate: Any = sys.modules.get(_TABLE)
    if collate is None:
        return []
    torchs = {**_TORCHS, sys.modules["torch"].Tensor: "collate_tensor_fn"}
    return [
        (kind, rule)
        for kind, rule in collate.default_collate_fn_map.items()
        if rule is not getattr(collate, torchs.get(kind, ""), None)
        and getattr(rule, "__module__", None) != _OF_WORKERS
    ]
