"""The command as processes: told to end, killed, several at once."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.cli.snapshot.pipelines import computed, events, kept, start

from tundish.cli import main
from tundish.cli.inspect import find
from tundish.cli.snapshot import DONE, HELD, INCOMPLETE
from tundish.testing.compare import Outcome, collect

pytestmark = pytest.mark.slow

LIMIT_S = 10.0


@pytest.fixture
def reached(file: Path) -> Path:
    """A file that can be read once the pipeline is at its 40th element, where it waits."""
    path = file.parent / "reached"
    os.mkfifo(path)
    (file.parent / "gate").touch()
    return path


def write(file: Path, *words: str, name: str = "data", **environ: str) -> subprocess.Popen[str]:
    return start(file.parent, "write", f"{file.name}:{name}", "kept", "--json", *words, **environ)


def ended(process: subprocess.Popen[str]) -> tuple[int, list[dict[str, object]]]:
    output, _ = process.communicate(timeout=60)
    return process.returncode, events(output)


def expected(file: Path) -> list[Outcome]:
    """Return what one process without a snapshot gives."""
    dataset = find(f"{file.name}:data")
    return collect(dataset.iterator(workers=0))


def is_whole(file: Path) -> bool:
    return kept(find(f"{file.name}:data").snapshot("kept")) == expected(file)


@pytest.mark.parametrize(
    ("number", "workers"), [(signal.SIGTERM, 0), (signal.SIGTERM, 2), (signal.SIGINT, 0)]
)
def test_told_to_end_it_commits_and_the_next_call_continues(
    file: Path, reached: Path, number: signal.Signals, workers: int
) -> None:
    process = write(file, "--workers", str(workers))
    assert reached.read_text() == "here"  # and stays at this element for ever
    told = time.monotonic()
    process.send_signal(number)
    status, lines = ended(process)

    assert time.monotonic() - told < LIMIT_S
    assert status == 128 + number
    last = lines[-1]
    assert (last["event"], last["status"]) == ("finished", status)
    durable = last["elements"]
    assert isinstance(durable, int)
    assert durable == 40 if not workers else 0 < durable <= 40
    assert not list(file.parent.glob("kept/*/lease*"))

    (file.parent / "gate").unlink()
    (file.parent / "computed").unlink()
    status, lines = ended(write(file, "--workers", str(workers)))
    assert status == DONE
    assert lines[0]["durable"] == durable
    assert sorted(computed(file.parent)) == list(range(durable, 60))
    assert is_whole(file)


def test_a_second_signal_is_obeyed_at_once(file: Path, reached: Path) -> None:
    process = write(file, "--workers", "0")
    reached.read_text()
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    while "committing" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 143
    process.communicate()


def test_killed_it_is_continued(file: Path, reached: Path) -> None:
    """A shard is told to end first, so that something is durable; then it is killed past that."""
    for end in (signal.SIGTERM, signal.SIGKILL):
        process = write(file, "--workers", "1", "--shard", "1/2")
        reached.read_text()
        process.send_signal(end)
        ended(process)
    (file.parent / "gate").unlink()
    (file.parent / "computed").unlink()

    status, lines = ended(write(file, "--workers", "2", "--shard", "1/2"))
    assert status == DONE
    durable = lines[0]["durable"]
    assert isinstance(durable, int)
    assert durable > 0
    assert sorted(computed(file.parent)) == list(range(30 + durable, 60))
    assert len(list(file.parent.glob("kept/*/runs/*"))) == 1
    assert not list(file.parent.rglob("*.tmp*"))
    assert ended(write(file, "--shard", "0/2", "--workers", "0"))[0] == DONE
    assert main(["snapshot", "finalize", "kept", "--of", "2"]) == DONE
    assert is_whole(file)


def test_a_second_writer_is_told_who_the_first_is(file: Path, reached: Path) -> None:
    first = write(file, "--workers", "0")
    reached.read_text()
    status, lines = ended(write(file, "--workers", "0"))
    first.kill()
    first.communicate()

    assert status == HELD
    assert f"process {first.pid} on " in str(lines[-1]["text"])


def test_four_at_once_one_of_which_is_killed(
    file: Path, reached: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The 40th element is in shard 2: that one is killed there, made incomplete, and continued."""
    several = [
        write(file, "--shard", "auto", "--workers", "1", RANK=str(rank), WORLD_SIZE="4")
        for rank in range(4)
    ]
    reached.read_text()
    several[2].send_signal(signal.SIGTERM)
    statuses = [ended(process)[0] for process in several]
    assert statuses == [DONE, DONE, 143, DONE]

    assert main(["snapshot", "finalize", "kept", "--of", "4"]) == INCOMPLETE
    told = capsys.readouterr().out
    assert "1 of 4 shards" in told
    assert "shard 2/4: incomplete" in told

    (file.parent / "gate").unlink()
    line = next(line for line in told.splitlines() if "--shard 2/4" in line)
    done = subprocess.run(line, shell=True, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == DONE, done.stderr
    assert "continuing after them" in done.stderr
    assert main(["snapshot", "finalize", "kept", "--of", "4"]) == DONE
    assert is_whole(file)
    assert len(list(file.parent.glob("kept/*/runs/*"))) == 4
