"""``tundish inspect``: every operator is there, as text and as a picture that parses."""

from __future__ import annotations

import random
import re
import signal
import sys
import time
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
    assert str(file) in capsys.readouterr().err


def test_the_program_finds_its_own_arguments_and_no_worker_runs_it_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "with_arguments.py"
    file.write_text(
        "import sys\nimport tundish as td\nprint('run with', sys.argv[1:])\n"
        "def double(x): return 2 * x\n"
        "data = td.Dataset.range(int((sys.argv + [8])[1])).map(double, num_parallel_calls=2)\n"
    )
    before = sys.argv[:]

    assert main(["inspect", "--run", "0.2", f"{file}:data"]) == 0
    first = capfd.readouterr().out
    assert main(["inspect", f"{file}:data", "16"]) == 0
    second = capfd.readouterr().out

    assert first.count("run with") == second.count("run with") == 1
    assert "run with []" in first
    assert "run with ['16']" in second
    assert "16 elements" in second
    assert sys.argv == before


def test_a_program_that_fails_is_shown_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "failing.py"
    file.write_text("import tundish as td\ndata = td.Dataset.list_files('nothing/*.jpg')\n")

    assert main(["inspect", f"{file}:data"]) == 2

    text = capsys.readouterr().err
    assert f'File "{file}", line 2' in text
    assert "nothing matches 'nothing/*.jpg'" in text
    assert str(td.__path__[0]) not in text


def test_a_first_element_that_fails_has_no_spec(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with file.open("a") as text:
        text.write("\nimport tundish\ndef refusing(x):\n    raise KeyError(x)\n")
        text.write("refused = tundish.Dataset.range(3).map(refusing).batch(2)\n")

    assert main(["inspect", f"{file}:refused", "--spec"]) == 1
    told = capsys.readouterr()
    assert "element    the first one failed: KeyError" in told.out
    assert "raise KeyError(x)" in told.err
    assert str(td.__path__[0]) not in told.err


def test_a_dataset_that_is_divided_already(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with file.open("a") as text:
        text.write(
            "\nimport tundish\ndivided = tundish.distribute.distribute_dataset(holder.inner.batch(2))\n"
        )

    assert main(["inspect", f"{file}:divided"]) == 2
    assert "DistributedDataset: name the one that it divides" in capsys.readouterr().err


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


@pytest.mark.parametrize("name", ["take_while", "unique", "sort_key"])
def test_what_an_operator_asks_about_elements_ends_their_stage(name: str) -> None:
    """So what follows it runs elsewhere, as the stages of an iterator's stats say."""
    ds = td.Dataset.range(9).map(abs)
    asking = {
        "take_while": ds.take_while(bool),
        "unique": ds.unique(),
        "sort_key": ds.sort_within(3, key=abs),
    }
    step = outline(asking[name].map(abs)).last
    stages = {}
    while step.inputs:
        stages[step.name, step.stage] = step.place
        (step,) = step.inputs

    assert stages["map", 1] == stages[name, 1] == "stage 1, in this process"
    assert ("map", 2) in stages


def test_what_a_state_does_not_hold_is_listed() -> None:
    plan = outline(td.Dataset.range(3).map(lambda x: x + random.random()))

    (line,) = plan.resume
    assert line.startswith("not in the state: map#1, <lambda> calls `random.random`; instead: take")


def test_text_in_pictures_is_escaped() -> None:
    picture = draw(outline(td.Dataset.range(3).map(lambda x: x)), "<&>", "a < b")

    assert ET.fromstring(picture).findtext("{http://www.w3.org/2000/svg}title") == "<&>"


def test_specs_in_one_line() -> None:
    spec = {"image": td.ArraySpec((None, 3), "uint8"), "both": (td.ArraySpec((), str), None)}

    assert show_spec(spec) == "{image: uint8 [None, 3], both: (str, None)}"


RUNNING = """
import time
import tundish as td

def work(x):
    time.sleep(0.002)
    return x

def stumble(x):
    if x % 10 == 9:
        raise ValueError(f"no {x}")
    return x

def hang(x):
    time.sleep(1000)

def long():
    return td.Dataset.range(100_000).map(work, num_parallel_calls=2).batch(5)

def here():
    return td.Dataset.range(100_000).map(work).batch(5)

def short():
    return td.Dataset.range(20).map(work)

def failing():
    return td.Dataset.range(100_000).map(stumble)

def broken():
    return td.Dataset.range(19, 20).map(stumble)

def hanging():
    return td.Dataset.range(100).map(hang)

def hanging_apart():
    return td.Dataset.range(100).map(hang, num_parallel_calls=1)

def empty():
    return td.Dataset.range(0).map(work)
"""


@pytest.fixture
def running(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline_to_run.py"
    path.write_text(RUNNING)
    return path


def ran(running: Path, name: str, seconds: str = "0.6", *words: str) -> int:
    return main(["inspect", f"{running}:{name}", "--run", seconds, *words])


def test_a_run_says_what_is_waited_for(running: Path, capsys: pytest.CaptureFixture[str]) -> None:
    svg = running.with_suffix(".svg")

    assert ran(running, "here", "0.6", "--svg", str(svg)) == 0

    text = capsys.readouterr().out
    assert "stage 1, in this process" in text, "the outline"
    assert "The limit: this process, which computes" in text
    assert "map#1 (work) takes" in text
    assert " workers: " in text
    words = [word.text for word in ET.parse(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert "map#1 (work)" in words
    assert "what would change it" in words


def test_what_cannot_be_iterated_is_said_without_the_library_s_frames(
    running: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running.open("a") as text:
        text.write(
            f"\n\ndef kept():\n    return here().snapshot({str(running) + '.kept'!r}, mode='read')\n"
        )

    assert ran(running, "kept", "0.3") == 2
    told = capsys.readouterr().err
    assert "mode='read' needs a complete snapshot" in told
    assert "Traceback" not in told
    assert main(["inspect", f"{running}:empty", "--spec"]) == 1
    assert "the dataset is empty" in capsys.readouterr().err


def test_a_run_in_workers(running: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(running, "long") == 0
    assert "2 workers" in capsys.readouterr().out


def test_a_dataset_that_ends_begins_again(
    running: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran(running, "short") == 0
    told = re.search(
        r"it has 20 elements, and began again at its end: (\d+)", capsys.readouterr().out
    )
    assert told is not None
    assert int(told[1]) > 1


def test_elements_that_fail_are_counted(running: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(running, "failing", "0.3") == 0
    assert "the first that failed: ValueError: no 9" in capsys.readouterr().out


def test_nothing_is_said_of_speed_where_every_element_failed(
    running: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran(running, "broken", "0.3") == 1
    text = capsys.readouterr().out
    assert "every element failed" in text
    assert "the first that failed: ValueError: no 19" in text
    assert "The limit" not in text


@pytest.mark.parametrize("name", ["hanging", "hanging_apart"])
def test_an_element_that_takes_longer_is_given_up(
    running: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    start = time.monotonic()

    assert ran(running, name, "0.3") == 0

    assert time.monotonic() - start < 20
    text = capsys.readouterr().out
    assert "0 elements in" in text
    assert "the element that was being made when the time was up has been given up" in text


def test_a_dataset_without_elements(running: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(running, "empty", "5") == 0
    assert "the dataset is empty: it has no elements to run" in capsys.readouterr().out


def test_ctrl_c_prints_what_is_known(
    running: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = td.Iterator.__next__
    count = 0

    def interrupted(self: td.Iterator) -> object:
        nonlocal count
        count += 1
        if count == 30:
            raise KeyboardInterrupt
        return before(self)

    monkeypatch.setattr(td.Iterator, "__next__", interrupted)

    assert ran(running, "here", "60") == 130
    text = capsys.readouterr().out
    assert "interrupted after" in text
    assert "The limit: this process" in text


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon", "100000"])
def test_bad_durations(running: Path, seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        ran(running, "here", seconds)
    assert "--run" in capsys.readouterr().err


def test_a_picture_that_cannot_be_put_anywhere_is_said_before_the_run(
    running: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran(running, "hanging", "60", "--svg", str(running.parent / "no" / "a.svg")) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert ran(running, "hanging", "60", "--svg", str(running.parent)) == 2
    assert "names a folder" in capsys.readouterr().err


def test_the_alarm_is_off_and_as_it_was_after_a_run(running: Path) -> None:
    before = signal.getsignal(signal.SIGALRM)

    assert ran(running, "short", "0.2") == 0

    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_an_outline_says_which_steps_are_one_stage_and_what_is_done_again() -> None:
    source = td.Dataset.from_generator(lambda: iter([1]), output_signature=td.TensorSpec((), int))
    plan = outline(source.map(lambda x: x).cache().map(lambda x: x).shuffle(5))
    steps = [plan.last]
    while steps[-1].inputs:
        steps.extend(steps[-1].inputs)

    assert [(step.name, step.stage) for step in reversed(steps)] == [
        ("from_generator", 0),
        ("map", 1),
        ("cache", 0),
        ("map", 2),
        ("shuffle", 0),
    ]
    assert plan.resume == (
        "from_generator is read again from the start of its pass",
        "what a cache had kept is computed again when it is needed",
        "the 5 elements of a shuffle's window are computed again",
    )
