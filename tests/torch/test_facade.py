"""The names of `tundish.torch`: each from its home, documented, imported on first use."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("torch")

import tundish.torch


@pytest.mark.parametrize("name", tundish.torch.__all__)
def test_every_name_resolves_in_its_home_and_is_documented(name: str) -> None:
    value = getattr(tundish.torch, name)

    assert value is getattr(import_module(tundish.torch._HOME[name]), name)
    assert inspect.getdoc(value)
    assert name in dir(tundish.torch)


def test_all_is_the_table() -> None:
    assert sorted(tundish.torch.__all__) == sorted(tundish.torch._HOME)


def test_a_misspelt_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'DataLoadr'"):
        _ = getattr(tundish.torch, "DataLoadr")  # noqa: B009 - a checker would refuse the plain form


def test_importing_it_loads_no_part_of_ours(tmp_path: Path) -> None:
    code = "import sys, tundish.torch; print(*(n for n in sys.modules if n.startswith('tundish')))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ["tundish", "tundish.torch"]
