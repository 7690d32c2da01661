"""Arrays as tensors: over the same memory, or a copy where torch cannot stand on it."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tundish.torch import as_tensors  # noqa: E402 - behind the skip

Pair = collections.namedtuple("Pair", "a b")  # noqa: PYI024 - the plain kind, too


def test_over_the_same_memory() -> None:
    array = np.arange(6.0).reshape(2, 3)
    tensor = as_tensors(array)
    array[0, 0] = 7

    assert tensor[0, 0] == 7
    assert tensor.dtype is torch.float64


def test_nests_keep_their_types() -> None:
    nest: dict[str, Any] = {
        "pair": Pair(np.zeros(1), [np.ones(1), "text"]),
        "ordered": collections.OrderedDict(x=np.int64(3)),
        "rest": (b"bytes", 4, None, np.array(["a"], object), np.array(["2026-01-01"], "M8[D]")),
    }
    found = as_tensors(nest)

    assert type(found["pair"]) is Pair
    assert torch.is_tensor(found["pair"].a)
    assert type(found["pair"].b) is list
    assert found["pair"].b[1] == "text"
    assert type(found["ordered"]) is collections.OrderedDict
    assert found["ordered"]["x"].shape == ()
    assert found["ordered"]["x"].dtype is torch.int64
    assert found["rest"][:3] == nest["rest"][:3]
    assert found["rest"][3] is nest["rest"][3]
    assert found["rest"][4] is nest["rest"][4]


@pytest.mark.filterwarnings("error")
def test_what_torch_cannot_stand_on_is_copied() -> None:
    read_only = np.arange(3)
    read_only.flags.writeable = False
    tensor = as_tensors(read_only)
    tensor[0] = 9

    assert read_only[0] == 0
    assert as_tensors(np.arange(3)[::-1]).tolist() == [2, 1, 0]
    assert as_tensors(np.arange(3, dtype=">i4")).tolist() == [0, 1, 2]
    assert as_tensors(np.uint16(3)).item() == 3
