"""`progress` shows what it says, passes everything through, and is never in the way."""

from __future__ import annotations

import gc
import io
import json
import os
import re
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tundish as td
from tundish.loader.watch.verdict import Verdict
from tundish.progressbar import line as lines
from tundish.progressbar import numbers


class Screen(io.StringIO):
    """A terminal: what stands on it at the end is `lines`."""

    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        found = [""]
        column = 0
        for char in self.getvalue():
            if char in "\r\n":
                column = 0
                found += [""] if char == "\n" else []
            else:
                found[-1] = found[-1][:column] + char + found[-1][column + 1 :]
                column += 1
        return [line.rstrip() for line in found if line.strip()]


@pytest.fixture(params=["tqdm", "own"])
def shown_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "own":
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    else:
        pytest.importorskip("tqdm.auto")
    kind: str = request.param
    return kind


def each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for a verdict whenever something is shown."""
    monkeypatch.setattr(numbers, "_VERDICT_S", 0.0)


def test_a_log_has_whole_lines() -> None:
    log = io.StringIO()
    ds = td.Dataset.range(100).batch(4)
    with td.progress(iter(ds), file=log, every=1e-9, description="epoch 1") as batches:
        assert len(list(batches)) == 25
    lines = log.getvalue().splitlines()

    assert "\r" not in log.getvalue()
    assert len(lines) == 25, "from the second batch on, and at the end"
    shown = r"epoch 1: (\d+) of 25 batches in [\d.]+ .?s, [\d,]+/s, [\d,]+ rows/s, .* left"
    counts = [re.fullmatch(shown, line) for line in lines[:-2]]
    assert [match and int(match[1]) for match in counts] == list(range(2, 25))
    assert lines[-1].startswith("epoch 1: 25 of 25 batches")


@pytest.mark.parametrize(
    ("iterable", "total", "expected"),
    [
        ([1, 2, 3], None, "3 of 3 elements"),
        (iter([1, 2, 3]), None, "3 of 3 elements"),
        ((x for x in range(3)), None, "3 elements"),
        ((x for x in range(3)), 5, "3 of 5 elements"),
        (td.Dataset.range(9).filter(lambda x: x < 3), None, "3 elements"),
        (td.Dataset.range(3), None, "3 of 3 elements"),
        (td.DataLoader([1, 2, 3]), None, "3 of 3 batches"),
        (td.DataLoader([1, 2, 3], batch_size=None), None, "3 of 3 elements"),
        (td.DataLoader(td.Dataset.range(3)), None, "3 of 3 batches"),
        (iter(td.DataLoader([1, 2, 3])), None, "3 of 3 batches"),
    ],
)
def test_how_many_there_are_is_known_where_it_can_be(
    iterable: Any, total: int | None, expected: str
) -> None:
    log = io.StringIO()
    assert sum(1 for _ in td.progress(iterable, total=total, file=log)) == 3
    assert log.getvalue().startswith(f"{expected} in ")


def test_what_is_wrong_is_said_at_once() -> None:
    wrong: tuple[tuple[dict[str, Any], type[Exception]], ...] = (
        ({"total": -1}, ValueError),
        ({"total": 1.5}, TypeError),
        ({"every": 0}, ValueError),
        ({"description": 3}, TypeError),
    )
    for given, error in wrong:
        with pytest.raises(error, match=next(iter(given))):
            td.progress([1], **given)
    with pytest.raises(TypeError):
        td.progress(3)  # type: ignore[arg-type]


def test_a_terminal_has_one_line(shown_by: str) -> None:
    screen = Screen()
    elements = list(td.progress(td.Dataset.range(300).batch(3), file=screen, every=1e-9))

    assert len(elements) == 100
    (line,) = screen.lines
    assert ("100/100" if shown_by == "tqdm" else "100 of 100 batches") in line
    assert "rows/s" in line
    assert screen.getvalue().endswith("\n")


def test_a_terminal_itself(shown_by: str) -> None:
    leader, follower = os.openpty()
    with io.open(follower, "w", encoding="utf-8") as terminal:  # noqa: UP020 - a descriptor
        assert list(td.progress([1, 2, 3], file=terminal, every=1e-9)) == [1, 2, 3]
        terminal.write("end")
        terminal.flush()
        shown = ""
        while not shown.endswith("end"):
            shown += os.read(leader, 10_000).decode()
    os.close(leader)
    assert ("3/3" if shown_by == "tqdm" else "3 of 3 elements") in shown
    assert "\r" in shown


def test_a_notebook_is_drawn_over(
    shown_by: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = types.SimpleNamespace(config={"IPKernelApp": {}})
    ipython: Any = types.ModuleType("IPython")
    ipython.get_ipython = lambda: shell
    monkeypatch.setitem(sys.modules, "IPython", ipython)

    assert list(td.progress([1, 2, 3], every=1e-9)) == [1, 2, 3]
    shown = capsys.readouterr().err
    assert ("3/3" if shown_by == "tqdm" else "3 of 3 elements") in shown
    assert "\r" in shown
    ipython.get_ipython = lambda: None
    list(td.progress([1, 2, 3], every=1e-9))
    assert "\r" not in capsys.readouterr().err


def test_an_inner_loop_has_the_line_until_it_ends(shown_by: str) -> None:
    screen = Screen()
    seen: list[int] = []
    for _ in td.progress(range(3), file=screen, every=1e-9, description="outer"):
        seen += list(td.progress(range(4), file=screen, every=1e-9, description="inner"))
    assert seen == 3 * [0, 1, 2, 3]
    if shown_by == "own":
        (line,) = screen.lines
        assert line.startswith("outer: 3 of 3 elements")
        assert screen.getvalue().count("\n") == 1
        assert screen.getvalue().count("\rinner: 4 of 4") >= 3
    assert lines._OPEN == []


def test_a_loop_that_is_left_shows_how_far_it_came(shown_by: str) -> None:
    screen = Screen()
    for x in td.progress(td.Dataset.range(100, 1000), file=screen, every=1000):
        if x == 149:
            break
    gc.collect()
    (line,) = screen.lines
    assert ("50/900" if shown_by == "tqdm" else "50 of 900 elements") in line


def test_errors_pass_and_it_goes_on(shown_by: str) -> None:
    screen = Screen()
    ds = td.Dataset.range(6).map(lambda x: [3, 1, 2][int(x) % 4])
    it = td.progress(iter(ds), file=screen, every=1e-9)
    had = []
    while True:
        try:
            had.append(int(next(it)))
        except IndexError:
            had.append(-1)
        except StopIteration:
            break
    assert had == [3, 1, 2, -1, 3, 1]
    with pytest.raises(StopIteration):
        next(it)

    def loop() -> None:
        for _ in td.progress([1, 2], file=screen, every=1e-9):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        loop()
    gc.collect()
    assert len(screen.lines) == 2


def test_everything_else_is_the_iterators_own() -> None:
    ds = td.Dataset.range(20).batch(2)
    whole = [batch.tolist() for batch in ds]
    log = io.StringIO()
    with td.progress(iter(ds), file=log) as it:
        had = [next(it).tolist() for _ in range(4)]
        assert len(it) == 6
        assert it.stats.elements == 4
        state = json.loads(json.dumps(it.state_dict()))
        assert "limit" in dir(it.explain())
        with pytest.raises(AttributeError, match="Iterator has no 'nothing'"):
            _ = it.nothing
    assert list(it) == [], "closed"
    again = td.progress(iter(ds), file=log, every=1e-9)
    next(again)
    again.load_state_dict(state)
    assert had + [batch.tolist() for batch in again] == whole
    assert "7 of 7 batches" in log.getvalue(), "one before the state, six after it"

    loader = td.DataLoader(list(range(6)), batch_size=2)
    batches = td.progress(loader, file=log)
    next(batches)
    again_loader = td.DataLoader(list(range(6)), batch_size=2)
    again_loader.load_state_dict(batches.state_dict())
    assert [batch.tolist() for batch in td.progress(again_loader, file=log)] == [[2, 3], [4, 5]]
    assert log.getvalue().splitlines()[-1].startswith("2 of 2 batches")


@pytest.mark.parametrize(("workers", "name"), [(0, "map#1"), (2, "map#1")])
def test_what_your_code_waits_for_is_named(
    workers: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    each_time(monkeypatch)
    log = io.StringIO()

    def slow(x: Any) -> Any:
        time.sleep(0.01)
        return x

    options = td.Options(workers=workers)
    ds = td.Dataset.range(80).map(slow).with_options(options)
    list(td.progress(ds, file=log, every=0.3))
    assert re.search(rf"your code waits \d+ % for {name}", log.getvalue())

    log = io.StringIO()
    for _ in td.progress(td.Dataset.range(40).map(lambda x: x + 1), file=log, every=0.2):
        time.sleep(0.02)
    assert "the input waits for your code" in log.getvalue()


def test_the_waiting_in_words() -> None:
    assert Verdict("unknown", "", ()).waits == ""
    assert Verdict("consumer", "", ()).waits == "the input waits for your code"
    assert Verdict("reader", "tfrecord#0", ()).waits.endswith("for tfrecord#0")
    assert Verdict("order", "", ()).waits.endswith("% for the order")


class Broken(Screen):
    """A terminal that is gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_terminal_that_is_gone_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    assert list(td.progress([1, 2, 3], file=Broken(), every=1e-9)) == [1, 2, 3]
    closed = Screen()
    closed.close()
    assert list(td.progress([1, 2, 3], file=closed, every=1e-9)) == [1, 2, 3]


def test_no_thread_and_no_process_stay(shown_by: str) -> None:
    before = threading.active_count()
    it = td.progress(td.Dataset.range(9), file=Screen(), every=1e-9)
    list(it)
    assert threading.active_count() == before


def test_an_element_costs_less_than_a_microsecond_more() -> None:
    count = 50_000

    def spent(make: Callable[[], Iterator[int]]) -> float:
        best = float("inf")
        for _ in range(5):
            it = make()
            began = time.process_time()
            for _ in it:
                pass
            best = min(best, time.process_time() - began)
        return best / count

    log = io.StringIO()
    plain = spent(lambda: iter(range(count)))
    assert spent(lambda: td.progress(range(count), file=log)) - plain < 1e-6


def test_what_counts_most_stays_in_a_narrow_terminal() -> None:
    shown = numbers.Shown(180, 200, 2.35, 76.7, "batch", 20, "your code waits 98 % for map#1")
    count, left = "180 of 200 batches in 2.35 s, 76.7/s", "261 ms left"

    assert shown.text() == f"{count}, 1,530 rows/s, your code waits 98 % for map#1, {left}"
    assert shown.text(100) == f"{count}, 1,530 rows/s, waits 98 % for map#1, {left}"
    assert shown.text(79) == f"{count}, waits 98 % for map#1, {left}"
    assert shown.text(60) == f"{count}, waits 98 % for map#1"
    assert numbers.Shown(1, None, 1, 2, "element", 0, "the input waits for your code").text(50) == (
        "1 element in 1 s, 2/s, the input waits"
    )
