"""Keys of any kind on their way to workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tundish as td

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = """
import collections, dataclasses, enum
from tundish import DataLoader
from tests.loader.dataloader.test_keys import Named

class Colour(enum.Enum):
    RED = 3

@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    value: int

Point = collections.namedtuple("Point", "value")

class Known(Named):
    kinds = (Colour, Place, Point)

    def __getitem__(self, key):
        return [type(key) is kind for kind in self.kinds].count(True) * super().__getitem__(key)

keys = [Colour.RED, Place(4), Point(5)]
for dataset in (Named(), Known()):
    print([batch.tolist() for batch in DataLoader(dataset, 2, sampler=keys, num_workers=1)])
"""


class Named:
    """Gives the value of its key."""

    def __getitem__(self, key: object) -> int:
        return getattr(key, "value", 9)

    def __len__(self) -> int:
        return 3


def test_keys_of_classes_of_the_script(tmp_path: Path) -> None:
    """The dataset may refer to these classes or not; if it does, the keys are of the same ones."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    root = Path(__file__).parents[3]
    environment = {"PYTHONPATH": f"{root / 'src'}:{root}"}
    command = [sys.executable, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    assert done.stdout.splitlines() == ["[[3, 4], [5]]"] * 2, done.stderr


@pytest.mark.parametrize("workers", [0, 1])
def test_a_key_may_be_none(workers: int) -> None:
    loader = td.DataLoader(Named(), None, sampler=[None, 3, None], num_workers=workers)

    assert list(loader) == [9, 9, 9]


class OneList:
    """A batch sampler that fills one list, or one array, for every batch."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def __iter__(self) -> Iterator[Any]:
        keys = self.kind([0, 0])
        for first in range(0, 400, 2):
            keys[0], keys[1] = first, first + 1
            yield keys


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("kind", [list, np.array])
def test_a_sampler_that_fills_one_list(kind: Any, workers: int) -> None:
    loader = td.DataLoader(range(400), batch_sampler=OneList(kind), num_workers=workers)

    assert [int(i) for batch in loader for i in batch] == list(range(400))
