"""Attributes and globals with the names of torch's modules do not keep a dataset from being sent."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
import torch
import tundish as td
from tundish.torch import DataLoader

NAME = ["cat", "dog"]
ops = [1]

class Photos(torch.utils.data.Dataset):
    def __init__(self):
        self.NAME = NAME

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.zeros(2) + index, self.NAME.index("dog") + ops[0]

def load(x):
    return torch.ones(2).numpy() * len(NAME)

if __name__ == "__main__":
    loader = DataLoader(Photos(), batch_size=2, num_workers=1)
    print(*(labels.tolist() for _, labels in loader))
    ds = td.Dataset.range(2).map(load)
    print(*(int(each.sum()) for each in ds.iterator(workers=1)))
"""


@pytest.mark.parametrize("name", ["classes", "backends", "_VF"])
def test_a_script_that_uses_a_name_of_torchs(name: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("NAME", name))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["[2, 2] [2, 2]", "4 4"], done.stderr
