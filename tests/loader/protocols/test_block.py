"""Rows of a block that are asked for as copies have nothing in the block's memory."""

from __future__ import annotations

from collections import UserDict
from typing import Any

import numpy as np

from tundish.loader.protocols.block import Block
from tundish.shm.layout import Layout


def held(array: np.ndarray) -> Any:
    """An object and an array of objects that hold an array."""
    objects = np.empty(1, object)
    objects[0] = array
    return UserDict(alone=array, within=objects)


def is_apart(found: Any, root: np.ndarray) -> bool:
    parts = (found["alone"], found["within"][0])
    return not any(np.shares_memory(part, root) for part in parts)


def test_a_copy_of_an_object_does_not_keep_the_memory() -> None:
    root = np.zeros(200_000, np.uint8)
    block = Block(0, range(2), None)
    block.root, block.layout = root, Layout(None, (object,), 2)
    block.extras = {0: {row: held(root) for row in range(2)}}

    assert not is_apart(block.element(0), root)
    assert is_apart(block.element(0, copy=True), root)
    assert all(is_apart(found, root) for found in block.batch(0, 2, copy=True))


def test_nor_does_a_copy_of_a_row_without_a_layout() -> None:
    root = np.zeros(200_000, np.uint8)
    block = Block(0, range(2), None)
    block.elements = {0: {"x": held(root)}, 1: root}

    assert not is_apart(block.element(0)["x"], root)
    assert is_apart(block.element(0, copy=True)["x"], root)
    assert not np.shares_memory(block.element(1, copy=True), root)
