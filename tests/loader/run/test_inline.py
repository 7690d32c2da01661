"""Refs that were taken of a stream and put back come again, and marks count them as not taken."""

from __future__ import annotations

import random

import pytest

from tundish import Dataset
from tundish.loader.protocols.context import Context
from tundish.loader.protocols.items import End
from tundish.loader.protocols.positional import Positions, listed
from tundish.loader.run.inline.stage import RewindableRefs

COUNT = 500


@pytest.mark.parametrize("seed", range(8))
def test_what_is_put_back_comes_again(seed: int) -> None:
    rng = random.Random(seed)
    node = Dataset.range(COUNT).shuffle(None, seed=3)._node
    context = Context(node, 0, 1, None)
    every = listed(node.refs_at(range(COUNT), 0, context))
    stream = RewindableRefs(Positions(node, 0, context))
    found: list[int] = []

    while len(found) < COUNT:
        assert stream.mark() == len(found)
        refs = stream.take(rng.choice((1, 7, 90)))
        if refs is None:
            found.append(stream.next())
            continue
        kept = rng.randint(0, len(refs))
        found += listed(refs)[:kept]
        if kept < len(refs):
            stream.put(refs[kept:], rng.randint(0, len(refs) - kept))

    assert found == every
    with pytest.raises(End):
        stream.next()
    with pytest.raises(End):
        stream.take(3)
