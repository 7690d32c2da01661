"""Chrome's trace events: each has what the format asks for, slices nest, arrows and counts come out."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from typing import Any

import pytest

from tundish.loader.watch import perfetto
from tundish.loader.watch.perfetto import Converted, convert, trace_events

Event = dict[str, Any]

BEGIN = {"kind": "BEGIN", "pid": 4711, "at": 1000.0, "plan": "range -> map", "workers": 2}


class Lines:
    """A trace as it is written, in memory."""

    def __init__(self, it: str = "4711.1", **begin: Any) -> None:
        self.found: list[dict[str, Any]] = []
        self.it = it
        self.add(0.0, **{**BEGIN, **begin})

    def add(self, t: float, dir: str = "--", worker: int = 0, **said: Any) -> None:  # noqa: A002 - the field's name
        self.found.append({"t": t, "it": self.it, "dir": dir, "worker": worker, **said})

    def task(self, t: float, worker: int, block: int, first: int = 0, stage: int = 0) -> None:
        said = {"stage": stage, "block": block, "first": first, "rows": 4, "slot": 1}
        self.add(t, "->", worker, kind="TASK", **said)

    def done(self, t: float, worker: int, block: int, us: int, **more: Any) -> None:
        said = {"stage": 0, "block": block, "first": 0, "rows": 4, "us": us, "bytes": 100}
        self.add(t, "<-", worker, **{"kind": "DONE", **said, **more})

    def events(self) -> list[Event]:
        return list(trace_events(self.found))


def slices(events: list[Event], tid: int) -> list[tuple[str, int, int]]:
    """Return the names of a thread's slices, where they begin and where they end; no marks."""
    return [
        (event["name"], event["ts"], event["ts"] + event["dur"])
        for event in events
        if event["ph"] == "X" and event["tid"] == tid and event["dur"] > 1
    ]


def check(events: list[Event]) -> None:
    """Check what the format asks for, and what viewers need to show the events as they are meant."""
    timed = [event for event in events if event["ph"] != "M"]
    assert [event["ts"] for event in timed] == sorted(event["ts"] for event in timed)
    threads = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    processes = {e["pid"] for e in events if e["name"] == "process_name"}
    flows: defaultdict[int, list[Event]] = defaultdict(list)
    open_slices: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        assert event["ph"] in "MXCistf"
        assert isinstance(event["name"], str)
        assert event["pid"] in processes
        assert (event["pid"], event["tid"]) in threads or event["ph"] == "M"
        if event["ph"] == "M":
            continue
        assert isinstance(event["ts"], int)
        assert event["ts"] >= 0
        stack = open_slices[event["pid"], event["tid"]]
        while stack and stack[-1][1] <= event["ts"]:
            stack.pop()
        if event["ph"] == "X":
            end = event["ts"] + event["dur"]
            assert event["dur"] > 0
            assert not stack or end <= stack[-1][1], f"{event} is only partly in {stack[-1]}"
            stack.append((event["ts"], end))
        elif event["ph"] in "stf":
            assert stack, f"{event} is in no slice"
            flows[event["id"]].append(event)
        elif event["ph"] == "i":
            assert event["s"] in "tpg"
        else:
            assert all(isinstance(value, (int, float)) for value in event["args"].values())
    for steps in flows.values():
        kinds = "".join(step["ph"] for step in steps)
        assert kinds in ("s", "st", "stf"), kinds
        assert len({(step["name"], step["cat"], step["pid"]) for step in steps}) == 1
        assert all(step.get("bp") == "e" for step in steps if step["ph"] == "f")


def a_run(lines: Lines, seed: int = 0, tasks: int = 200, workers: int = 3) -> Lines:
    """A made-up run: workers that work one after another, and a consumer that reads late at times."""
    rng = random.Random(seed)
    lines.add(0.001, kind="STAGE", stage=0, name="map#1")
    now, block = 0.002, 0
    ends = dict.fromkeys(range(1, workers + 1), 0.0)
    under_way: list[tuple[float, int, int, int]] = []
    given = now
    while block < tasks or under_way:
        began = now
        while block < tasks and len(under_way) < 3 * workers:
            block += 1
            worker = min(ends, key=ends.__getitem__)
            lines.task(round(now, 6), worker, block)
            us = rng.randrange(100, 5000)
            ends[worker] = max(now, ends[worker]) + us * 1e-6 + 20e-6
            under_way.append((ends[worker], worker, block, us))
            now += 5e-6
        under_way.sort()
        wait = max(0.0, under_way[0][0] - now)
        now += wait
        if wait:
            lines.add(round(now, 6), kind="WAIT", us=round(wait * 1e6))
        while under_way and under_way[0][0] <= now:
            _, worker, number, us = under_way.pop(0)
            lines.done(round(now, 6), worker, number, us)
            now += 10e-6
        lines.add(round(now, 6), kind="NEXT", us=round((now - began) * 1e6))
        lines.add(round(now, 6), kind="LEVEL", used=1 << 20, ready=2)
        given = now
        now += rng.choice((0.0, 1e-6, 3e-4, 0.02))
    lines.add(round(given + 0.001, 6), kind="END")
    return lines


@pytest.mark.parametrize("seed", range(8))
def test_a_run_is_sound(seed: int) -> None:
    events = a_run(Lines(), seed).events()

    check(events)
    names = Counter(event["name"] for event in events if event["ph"] == "X")
    assert names["map#1"] == names["hand out map#1"] == names["take in map#1"] == 200
    assert sum(event["ph"] == "f" for event in events) == 200
    in_flight = [e["args"]["value"] for e in events if e["name"] == "tasks in flight"]
    assert max(in_flight) <= 9
    assert in_flight[-1] == 0


def test_each_cut_of_a_run_is_sound() -> None:
    """Lines from anywhere to anywhere: a killed process, and a file of which the head was cut off."""
    lines = a_run(Lines(), tasks=30).found
    for begin in range(0, len(lines), 7):
        for end in range(begin, len(lines), 11):
            check(list(trace_events(lines[begin:end])))


def test_a_task_ends_with_its_answer_and_has_what_both_lines_say() -> None:
    lines = Lines()
    lines.add(0.0, kind="STAGE", stage=0, name="map#1")
    lines.task(0.001, 2, block=7)
    lines.done(0.010, 2, block=7, us=4000)
    events = lines.events()

    check(events)
    (task,) = [e for e in events if e["ph"] == "X" and e["tid"] == 102]
    assert (task["ts"], task["dur"], task["name"]) == (6000, 4000, "map#1")
    assert task["args"] == {
        "stage": 0,
        "block": 7,
        "first": 0,
        "rows": 4,
        "slot": 1,
        "bytes": 100,
    }
    arrow = [(e["ph"], e["tid"], e["ts"]) for e in events if e["ph"] in "stf"]
    assert arrow == [("s", 100, 1000), ("t", 102, 6000), ("f", 100, 10000)]


def test_answers_that_were_read_late_are_placed_one_after_another() -> None:
    lines = Lines()
    for block in range(3):
        lines.task(0.001, 1, block)
    for block in range(3):
        lines.done(0.050, 1, block, us=10_000)
    lines.task(0.060, 1, 9)
    lines.done(0.070, 1, 9, us=5_000)

    found = slices(lines.events(), 101)
    assert [(begin, end) for _, begin, end in found] == [
        (20_000, 30_000),
        (30_000, 40_000),
        (40_000, 50_000),
        (65_000, 70_000),
    ]


def test_a_worker_s_own_clock_comes_first() -> None:
    lines = Lines()
    for block in range(2):
        lines.task(0.001, 1, block)
    lines.done(0.050, 1, 0, us=4_000, end=0.006)
    lines.done(0.050, 1, 1, us=4_000, end=0.011)

    found = slices(lines.events(), 101)
    assert [(begin, end) for _, begin, end in found] == [(2_000, 6_000), (7_000, 11_000)]


def test_nothing_begins_before_it_was_handed_out() -> None:
    lines = Lines()
    lines.task(0.005, 1, 0)
    lines.done(0.006, 1, 0, us=3_000)

    assert slices(lines.events(), 101) == [("stage 0", 5_001, 6_000)]


def test_a_death_shows_what_the_worker_was_at() -> None:
    lines = Lines()
    lines.task(0.001, 1, 0)
    lines.task(0.001, 1, 1)
    lines.add(0.009, "<-", 1, kind="DIED", how="SIGKILL (9)")
    lines.task(0.010, 2, 0)
    lines.done(0.020, 2, 0, us=2_000)
    lines.add(0.030, kind="LEVEL", ready=1)
    events = lines.events()

    check(events)
    assert slices(events, 101) == [("stage 0 (died in it)", 1_001, 9_000)]
    (mark,) = [event for event in events if event["ph"] == "i"]
    assert (mark["name"], mark["ts"], mark["tid"]) == ("died: SIGKILL (9)", 9_000, 101)
    assert [e["args"]["value"] for e in events if e["name"] == "tasks in flight"][-1] == 0


def test_what_a_torn_trace_has_no_answer_to_lasts_to_its_end() -> None:
    lines = Lines()
    lines.task(0.001, 1, 0)
    lines.task(0.001, 1, 1)
    lines.add(0.040, kind="WAIT", us=10_000)

    assert slices(lines.events(), 101) == [("stage 0 (not answered)", 1_001, 40_000)]


def test_a_larger_slot_is_asked_for() -> None:
    lines = Lines()
    lines.task(0.001, 1, 0)
    lines.done(0.005, 1, 0, us=2_000, kind="NEED")
    lines.task(0.006, 1, 0)
    lines.done(0.010, 1, 0, us=3_000)

    assert slices(lines.events(), 101) == [
        ("stage 0 (needs a larger slot)", 3_000, 5_000),
        ("stage 0", 7_000, 10_000),
    ]


def test_the_consumer_waits_works_and_is_elsewhere() -> None:
    lines = Lines()
    lines.add(0.009, kind="WAIT", us=8_000)
    lines.add(0.010, kind="NEXT", us=10_000)
    lines.add(0.050, kind="NEXT", us=1_000, calls=12)
    lines.add(0.0600, kind="NODE", node="map#1", us=3_000)
    lines.add(0.0605, kind="NODE", node="batch#2", us=400)
    lines.add(0.061, kind="NEXT", us=6_000)
    events = lines.events()

    check(events)
    assert slices(events, 100) == [
        ("next", 0, 10_000),
        ("wait", 1_000, 9_000),
        ("caller", 10_000, 49_000),
        ("next, 12 times", 49_000, 50_000),
        ("caller", 50_000, 55_000),
        ("next", 55_000, 61_000),
        ("map#1", 57_000, 60_000),
        ("batch#2", 60_100, 60_500),
    ]


def test_times_that_were_rounded_apart_still_nest() -> None:
    lines = Lines()
    lines.add(0.010, kind="NEXT", us=10_000)
    lines.add(0.020, kind="WAIT", us=9_999)
    lines.add(0.020, kind="NEXT", us=9_998)
    lines.add(0.030, kind="WAIT", us=10_500)
    lines.add(0.0299, kind="NEXT", us=9_900)
    events = lines.events()

    check(events)
    assert slices(events, 100)[-2:] == [("next", 20_000, 30_000), ("wait", 20_000, 30_000)]


def test_before_the_first_call_nothing_is_the_caller_s() -> None:
    lines = Lines()
    lines.add(0.010, kind="NEXT", us=2_000)

    assert slices(lines.events(), 100) == [("next", 8_000, 10_000)]


def test_counters_and_what_nobody_knows() -> None:
    lines = Lines()
    lines.add(0.001, kind="LEVEL", ready=3, used=3 << 20, note="not a number")
    lines.add(0.002, kind="RESIZE", workers=4)
    lines.add(0.003, "<-", 1, kind="HELLO", pid=99)
    events = lines.events()

    check(events)
    counts = {e["name"]: e["args"]["value"] for e in events if e["ph"] == "C"}
    assert counts == {"ready": 3, "memory used, MiB": 3.0}
    marks = {e["name"]: e["args"] for e in events if e["ph"] == "i"}
    assert marks == {"resize": {"workers": 4}, "hello": {"pid": 99}}
    names = [e["args"]["name"] for e in events if e["name"] == "thread_name"]
    assert names == ["consumer", "worker 1", "worker 1 (pid 99)"]


def test_two_iterators_are_two_processes_on_one_clock() -> None:
    first = Lines("4711.1")
    second = Lines("4711.2", at=1000.5, plan="range -> batch")
    first.task(0.9, 1, 0)
    second.task(0.1, 1, 0)
    second.done(0.2, 1, 0, us=100_000)
    first.done(1.0, 1, 0, us=100_000)
    events = list(
        trace_events([*first.found[:2], *second.found, *first.found[2:]]),
    )

    check(events)
    tasks = [(e["pid"], e["ts"]) for e in events if e["ph"] == "X" and e["tid"] == 101]
    assert tasks == [(2, 600_001), (1, 900_001)]
    titles = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert titles == ["range -> map (process 4711)", "range -> batch (process 4711)"]


def test_torn_lines_are_left_out_and_counted() -> None:
    whole = [json.dumps(message) for message in a_run(Lines(), tasks=5).found]
    torn = [whole[0][40:], *whole, '{"t": 1.5, "dir"' + whole[3], "[1]", "", whole[4][:30]]
    text: list[str] = []
    done = convert(torn, text.append)

    found = json.loads("".join(text))
    assert found["traceEvents"] == list(trace_events(map(json.loads, whole)))
    assert done == Converted(len(torn), 5, len(found["traceEvents"]), 1)


def test_an_empty_trace_is_an_empty_picture_and_notes_are_none() -> None:
    text: list[str] = []
    assert convert([], text.append) == Converted()
    assert json.loads("".join(text))["traceEvents"] == []
    with pytest.raises(ValueError, match="no line of it is a message"):
        convert(["one\n", "two\n"], text.append)


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events come while lines are read, and in order, as long as lines are not far from it."""
    monkeypatch.setattr(perfetto, "_KEPT", 64)
    messages = iter(a_run(Lines()).found)
    events = trace_events(messages)
    seen = [next(events) for _ in range(100)]

    assert len(list(messages)) > 100
    check(seen + [event for event in events if event["ph"] == "M"])
