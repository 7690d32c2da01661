"""Elements on their way from a job to a consumer: arrays as they lie in memory, everything else encoded.

An element is one or more blobs: its structure, the memory of each array, and all other leaves encoded together.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np

from tundish.loader.protocols.failure import dumps_exception, loads_exception
from tundish.loader.protocols.items import Failure, Made
from tundish.loader.protocols.raised import carried
from tundish.shm.layout import Encoded, decode, is_fixed
from tundish.spec import flatten, leaf_key, unflatten

Blobs = Sequence[Any]


def written(element: Any) -> tuple[list[Any], int]:
    """Return an element's blobs and how many bytes they have; arrays are not copied."""
    leaves, tree = flatten(element)
    keys = tuple(_key(leaf) for leaf in leaves)
    blobs: list[Any] = [_form(tree, keys)]
    others = []
    for leaf, key in zip(leaves, keys, strict=True):
        if key is None:
            others.append(leaf)
        else:
            blobs.append(_memory(leaf))
    if others:
        blobs.append(Encoded(others).to_bytes())
    return blobs, sum(len(blob) for blob in blobs)


def written_error(error: BaseException) -> tuple[list[Any], int]:
    """Return the blobs of an error in an element's place."""
    blobs = [b"", dumps_exception(error)]
    return blobs, len(blobs[1])


def read(blobs: Blobs, ref: int) -> Made | Failure:
    """Return the item that blobs stand for; its arrays lie in them, and are writable if they are."""
    form, *parts = blobs
    if not form:
        return Failure(ref, carried(loads_exception(bytes(parts[0]))))
    tree, keys = _formed(bytes(form))
    others = iter(decode(parts.pop()) if None in keys else ())
    leaves = [
        next(others) if key is None else np.ndarray((1, *key[1]), key[0], parts.pop(0))[0]
        for key in keys
    ]
    return Made(ref, unflatten(tree, leaves))


def joined(elements: Sequence[Blobs]) -> tuple[list[list[int]], Blobs]:
    """Return the sizes by which `parted` separates elements, and the blobs to send.

    Several elements are joined into one blob; the blobs of a single element are sent as they are.
    """
    if len(elements) == 1:
        return [], elements[0]
    return [[len(blob) for blob in blobs] for blobs in elements], [
        b"".join(chain.from_iterable(elements))
    ]


def parted(sizes: Sequence[Sequence[int]], blobs: Blobs) -> list[Blobs]:
    """Return the blobs of each element, in memory of its own."""
    if not sizes:
        return [blobs]
    elements: list[Blobs] = []
    view, at = memoryview(blobs[0]), 0
    for each in sizes:
        parts = []
        for nbytes in each:
            parts.append(bytearray(view[at : at + nbytes]))
            at += nbytes
        elements.append(parts)
    return elements


def _key(leaf: Any) -> tuple[np.dtype, tuple[int, ...]] | None:
    """Return the dtype and shape of an array that is sent as raw memory; None for a leaf that is encoded."""
    key = leaf_key(leaf)
    if isinstance(leaf, (np.ndarray, np.generic)) and is_fixed(key):
        return key
    return None


def _memory(leaf: Any) -> memoryview:
    array = np.ascontiguousarray(leaf).reshape(-1)
    return array.view(np.uint8).data if array.nbytes else memoryview(b"")


@lru_cache(256)
def _form(tree: Any, keys: Any) -> bytes:
    return Encoded((tree, keys)).to_bytes()


@lru_cache(256)
def _formed(form: bytes) -> Any:
    return decode(form)  # after both ends have proven who they are
