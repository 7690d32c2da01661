"""Writers that are killed, and what stands on disk when one of them has come to the end.

::

    python -m tests.snapshot.kills --random 200          # at random instants
    python -m tests.snapshot.kills --steps               # once at every named step

A *life* is a process that does what a loader does with a `RunWriter`: it writes chunks, notes which
were answered, seals, commits and finishes. It is killed; the next one takes the place of the writer
(the same name: nothing answered is written again) or of the whole loader (another name: it goes on
behind the last commit). All elements follow from their numbers, so the end is known.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tests.snapshot.runs import (
    KEY,
    RUN,
    assert_elements,
    assert_nothing_left,
    begin,
    columns,
    failure,
    files,
    numbers_by_batch,
    prefix,
)

from tundish.snapshot import failpoints
from tundish.snapshot.files.store import open_store
from tundish.snapshot.lease import adopt_run
from tundish.snapshot.run import read_run
from tundish.snapshot.writing.writer import RunWriter

COMMITS_EVERY = 3  # chunks
FAILED = 97  # every so many elements, one fails
USER_SHARDS = 5
DEADLINE_S = 60.0


@dataclass(frozen=True)
class Story:
    """A run that is written through many lives.

    Attributes
    ----------
    path : str
        Where.
    compression : str or None
        Of its batches.
    by_shard : bool
        Whether there is a shard function.
    stop : int
        How many elements it has.
    """

    path: str
    compression: str | None = None
    by_shard: bool = False
    stop: int = 1500

    @property
    def answers(self) -> Path:
        """The path of what the loader has heard from its writer: lines of JSON, outside of the snapshot."""
        return Path(self.path) / "answers"


class Answers:
    """The memory of a loader that lives on while its writer is killed."""

    def __init__(self, path: Path) -> None:
        self.lines = (
            [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        )
        self.path = path

    def add(self, *line: Any) -> None:
        self.lines.append(list(line))
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def written(self) -> int:
        """Behind the last chunk that was answered."""
        return max((line[1] for line in self.lines if line[0] == "wrote"), default=0)

    def commit_in_doubt(self) -> Any:
        """A commit that was asked for and not answered: its number, and up to where."""
        if self.lines and self.lines[-1][0] == "commit":
            return self.lines[-1][1:]
        return None


def live(story: Story, name: str) -> None:
    """Be a writer, to the end of the run."""
    root = f"{story.path}/snapshot"
    begin(root)
    keys = open_store(root).subfolder(KEY)
    new_loader = not story.answers.with_name(f"loader-{name}").exists()
    if new_loader:
        story.answers.unlink(missing_ok=True)
        adopt_run(keys, RUN, {})
        story.answers.with_name(f"loader-{name}").touch()
    answers = Answers(story.answers)
    writer = RunWriter(
        root, KEY, RUN, name=name, compression=story.compression, shard_bytes=8000, sync_bytes=4000
    )

    def commit(n: int, upto: int) -> None:
        answers.add("commit", n, upto)
        writer.commit(n, writer.seal(), upto, {"at": upto}, {})
        answers.add("committed", n)

    doubt = answers.commit_in_doubt()
    if doubt is not None:
        commit(*doubt)
    start = max(read_run(keys, RUN).next, answers.written())
    count = 0
    while start < story.stop:
        stop = min(start + 5 + start * 7 % 23, story.stop)
        failed = [n for n in range(start, stop) if n % FAILED == 13]
        shards_of = np.array([n * 7 % USER_SHARDS for n in range(start, stop) if n not in failed])
        writer.write(
            start,
            columns(start, stop, failed),
            [failure(n) for n in failed],
            shards_of if story.by_shard else None,
        )
        answers.add("wrote", stop)
        start, count = stop, count + 1
        if count % COMMITS_EVERY == 0:
            commit(read_run(keys, RUN).records, start)
    durable = read_run(keys, RUN)
    if durable.next < story.stop:
        commit(durable.records, story.stop)
    assert prefix(root).next == story.stop
    assert writer.finish({"created": "2026-01-01T00:00:00+00:00", "library": "0"})


def start(life: Callable[[], None], failpoint: str = "") -> int:
    """Fork a process."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        if failpoint:
            meet(failpoint)
        life()
        status = 0
    except OSError as error:
        status = 3 if "failpoint" in f"{error} {error.__cause__}" else 1
    except BaseException:  # noqa: BLE001 - it ends here
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def meet(failpoint: str) -> None:
    """Act at a failpoint, as a process does that has it in its environment from the start."""
    reach = failpoints.Failpoint.parse(failpoint).reach
    for module in list(sys.modules.values()):
        if getattr(module, "reach", None) is failpoints.reach and module is not failpoints:
            module.__dict__["reach"] = reach


def end_of(child: int, kill_after: float | None = None) -> int:
    """Wait for a life, or end it: 0 at the end of its run, -9 when it was killed."""
    began = time.monotonic()
    limit = DEADLINE_S if kill_after is None else kill_after
    while time.monotonic() - began < limit:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.0005)
    os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if kill_after is None:
        raise TimeoutError(f"a life did not end within {DEADLINE_S} s")
    return status


def check(story: Story) -> None:
    """The run is whole, exact, and alone."""
    root = f"{story.path}/snapshot"
    good = [n for n in range(story.stop) if n % FAILED != 13]
    assert_elements(root, good)
    assert_nothing_left(root)
    durable = prefix(root)
    assert durable.next == story.stop
    assert sorted(durable.errors) == sorted(set(range(story.stop)) - set(good))
    above = {name for name in files(root) if "/runs/" not in name}
    assert above == {f"{KEY}/manifest.json"}
    if story.by_shard:
        order = np.load(f"{root}/{KEY}/runs/{durable.run}/order.npy")
        numbers = numbers_by_batch(root)
        assert [numbers[b][r] if b >= 0 else -1 for b, r in order.tolist()] == [
            n if n in durable.entries["start"] or n % FAILED != 13 else -1
            for n in range(story.stop)
        ]


def names(rng: random.Random, anew: float = 0.4) -> Iterator[str]:
    """Names of the writers of successive lives: often the same one again."""
    name = f"{rng.getrandbits(32):08x}"
    while True:
        yield name
        if rng.random() < anew:
            name = f"{rng.getrandbits(32):08x}"


STORIES = ((None, False), (None, True), ("zstd", False), ("lz4", True))


def kill_at_random(kills: int, seed: int, folder: str) -> tuple[int, int]:
    """So many kills: over how many runs, and how many found something that was not committed."""
    rng = random.Random(seed)
    done = runs = late = 0
    whole = 0.0  # how long a run takes that nobody disturbs
    while done < kills:
        compression, by_shard = STORIES[runs % len(STORIES)]
        story = Story(tempfile.mkdtemp(dir=folder), compression, by_shard)
        lives = names(rng)
        while True:
            patience = rng.uniform(0.0, whole / 5) if whole and done < kills else None
            began = time.monotonic()
            status = end_of(start(partial(live, story, next(lives))), patience)
            if status == 0:
                whole = whole or time.monotonic() - began
                break
            assert status == -signal.SIGKILL, status
            done += 1
            late += any(Path(story.path).rglob("*.tmp*"))
        check(story)
        runs += 1
    return runs, late


def end_at_steps(
    seed: int, folder: str, action: str, times: tuple[int, ...], only: str = ""
) -> dict[str, int]:
    """A run for each named step, at which one life after the other ends; how many did."""
    rng = random.Random(seed)
    reached: dict[str, int] = {}
    for number, step in enumerate(step for step in failpoints.STEPS if only in step):
        compression, by_shard = STORIES[number % 4]
        by_shard |= step.startswith("order")
        story = Story(tempfile.mkdtemp(dir=folder), compression, by_shard, stop=200)
        anew = 0.0 if step == "writer.adopt" else 1.0 if step.startswith("adopt") else 0.4
        lives = names(rng, anew)
        for nth in times:
            if "adopt" in step:  # somebody has to be dead
                end_of(start(partial(live, story, next(lives)), f"shard.logged:{nth + 1}:kill"))
            life = partial(live, story, next(lives))
            status = end_of(start(life, f"{step}:{1 if 'adopt' in step else nth}:{action}"))
            if status == 0:
                break
            assert status == {"kill": -signal.SIGKILL, "raise": 3}[action], (step, status)
            reached[step] = reached.get(step, 0) + 1
            if action == "raise":  # it has given up what it had answered: the loader fails with it
                lives = names(rng, anew)
        else:
            assert end_of(start(partial(live, story, next(lives)))) == 0
        check(story)
    return reached


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--steps", choices=["kill", "raise"])
    parser.add_argument("--times", type=int, nargs="+", default=[1, 2, 5])
    parser.add_argument("--only", default="")
    parser.add_argument("--folder", help="where; default: where temporary files are")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        if asked.random:
            runs, late = kill_at_random(asked.random, asked.seed, folder)
            text = f"{asked.random} kills ({late} with work in progress) in {runs} runs"
            print(f"{text}, each exact at its end")  # noqa: T201 - its result
        if asked.steps:
            reached = end_at_steps(asked.seed, folder, asked.steps, tuple(asked.times), asked.only)
            print(json.dumps(reached))  # noqa: T201 - its result


if __name__ == "__main__":
    main()
