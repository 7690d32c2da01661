"""``tundish inspect``: every operator is there, as text and as a picture that parses."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import tundish as td
from tundish.cli import main
from tundish.cli.drawing import draw
from tundish.cli.inspect import show_spec
from tundish.cli.outline import outline

PIPELINE = """
import tundish as td

def load(index):
    raise RuntimeError("inspect runs no function")

def keep(x, y):
    return True

def data():
    left = td.Dataset.range(100).map(load, num_parallel_calls=3).shuffle(None, seed=1)
    right = td.Dataset.range(5).repeat()
    joined = td.Dataset.zip((left, right)).filter(keep).shuffle(50, seed=2)
    return joined.batch(8).cache().prefetch(1)

class holder:
    inner = td.Dataset.range(7)

nothing = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline_to_inspect.py"
    path.write_text(PIPELINE)
    return path


def test_text_and_picture(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    svg = file.with_suffix(".svg")

    assert main(["inspect", f"{file}:data", "--svg", str(svg)]) == 0

    text = capsys.readouterr().out
    words = {word.text for word in ET.parse(svg).iter("{http://www.w3.org/2000/svg}text")}
    for operator in ("range", "map", "shuffle", "repeat", "zip", "filter", "batch", "cache"):
        assert operator in text
        assert operator in words
    assert "3: num_parallel_calls says so" in text
    assert "the 50 elements of a shuffle's window are computed again" in text


def test_a_dataset_within_something(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", f"{file}:holder.inner"]) == 0
    assert "int64" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["nothing", "missing", "holder.missing", ""])
def test_what_is_no_dataset(file: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", f"{file}:{name}"]) == 2
    assert str(file) in capsys.readouterr().out


def test_what_is_computed_in_one_go_is_one_stage() -> None:
    ds = td.Dataset.range(9).map(abs).shuffle(None).batch(3).map(np.sum, num_parallel_calls=2)
    step = outline(ds).last
    found = []
    while True:
        found.append((step.name, step.stage))
        if not step.inputs:
            break
        (step,) = step.inputs

    assert found[::-1] == [("range", 0), ("map", 1), ("shuffle", 0), ("batch", 1), ("map", 2)]


def test_text_in_pictures_is_escaped() -> None:
    picture = draw(outline(td.Dataset.range(3).map(lambda x: x)), "<&>", "a < b")

    assert ET.fromstring(picture).findtext("{http://www.w3.org/2000/svg}title") == "<&>"


def test_specs_in_one_line() -> None:
    spec = {"image": td.ArraySpec((None, 3), "uint8"), "both": (td.ArraySpec((), str), None)}

    assert show_spec(spec) == "{image: uint8 [None, 3], both: (str, None)}"
