"""States in files: a series in a folder, of which the last are kept and the newest is restored."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tundish import Dataset, save_on_signal
from tundish.errors import CheckpointError, IncompatibleCheckpointError
from tundish.loader.run import checkpoints


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def steps(*numbers: int) -> list[str]:
    return [f"step-{number:08}.json" for number in numbers]


def plan() -> Any:
    return Dataset.range(20)


def saved(folder: Path, count: int, keep: int) -> None:
    """A series of as many states, each one element further."""
    with plan().iterator(workers=0) as it:
        for _ in range(count):
            next(it)
            it.save(folder, keep=keep)


def restored(folder: Path) -> int:
    """The element that comes next."""
    with plan().iterator(workers=0) as it:
        assert it.restore(folder)
        return int(next(it))


def test_the_last_are_kept_and_the_newest_is_restored(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "states"
    saved(folder, 5, keep=3)

    assert names(folder) == steps(3, 4, 5)
    assert restored(folder) == 5


def test_numbers_only_grow(tmp_path: Path) -> None:
    saved(tmp_path, 3, keep=1)
    assert names(tmp_path) == steps(3)
    saved(tmp_path, 2, keep=2)
    assert names(tmp_path) == steps(4, 5)
    (tmp_path / "step-00000005.json").write_text("{")
    saved(tmp_path, 1, keep=9)

    assert names(tmp_path) == steps(4, 5, 6)
    assert restored(tmp_path) == 1


def test_a_number_of_more_digits(tmp_path: Path) -> None:
    saved(tmp_path, 1, keep=1)
    (tmp_path / "step-00000001.json").rename(tmp_path / "step-99999999.json")
    saved(tmp_path, 2, keep=1)

    assert names(tmp_path) == ["step-100000001.json"]
    assert restored(tmp_path) == 2


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "torn": lambda text: text[: len(text) // 2],
    "empty": lambda text: b"",
    "zeros": lambda text: bytes(len(text)),
    "zero tail": lambda text: text[:-20] + bytes(20),
    "no text": lambda text: b"\xff\xfe" + text,
    "other json": lambda text: b'{"step": 3}',
    "a list": lambda text: b"[1, 2]",
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_file_that_is_no_state_is_passed_over_with_a_warning(tmp_path: Path, how: str) -> None:
    saved(tmp_path, 3, keep=3)
    last = tmp_path / "step-00000003.json"
    last.write_bytes(SPOILT[how](last.read_bytes()))

    with pytest.warns(RuntimeWarning, match="step-00000003.json is passed over") as caught:
        assert restored(tmp_path) == 2
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_where_none_can_be_read(tmp_path: Path) -> None:
    saved(tmp_path, 2, keep=2)
    for path in tmp_path.iterdir():
        path.write_text("{")

    with plan().iterator(workers=0) as it:
        with (
            pytest.warns(RuntimeWarning, match="passed over"),
            pytest.raises(CheckpointError, match="none of the 2"),
        ):
            it.restore(tmp_path, missing_ok=True)
        assert int(next(it)) == 0


def test_where_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_text("other")
    (tmp_path / "step-1.json").write_text("other")
    with plan().iterator(workers=0) as it:
        assert not it.restore(tmp_path, missing_ok=True)
        assert not it.restore(tmp_path / "none", missing_ok=True)
        for path in (tmp_path, tmp_path / "none"):
            with pytest.raises(FileNotFoundError):
                it.restore(path)


def test_what_others_put_there_stays(tmp_path: Path) -> None:
    others = {"model.pt": "weights", "step-1.json": "{}", "step-00000001.json": '{"step": 1}'}
    for name, text in others.items():
        (tmp_path / name).write_text(text)
    saved(tmp_path, 4, keep=1)

    assert names(tmp_path) == sorted([*others, *steps(5)])
    assert all((tmp_path / name).read_text() == text for name, text in others.items())
    assert restored(tmp_path) == 4


def test_a_state_of_another_plan_is_not_passed_over(tmp_path: Path) -> None:
    saved(tmp_path, 2, keep=2)
    with Dataset.range(7).iterator(workers=0) as it:
        it.save(tmp_path, keep=3)

    with plan().iterator(workers=0) as it, pytest.raises(IncompatibleCheckpointError):
        it.restore(tmp_path)


def test_one_file_as_before(tmp_path: Path) -> None:
    saved(tmp_path, 3, keep=2)
    with plan().iterator(workers=0) as it:
        it.restore(tmp_path / "step-00000002.json")
        assert int(next(it)) == 2
        with pytest.raises(IsADirectoryError, match="keep="):
            it.save(tmp_path)
        it.save(tmp_path / "data.json")
        with pytest.raises(FileExistsError):
            it.save(tmp_path / "data.json", keep=2)
        it.restore(tmp_path / "data.json")
        assert int(next(it)) == 3
    (tmp_path / "data.json").write_text("[]")
    with plan().iterator(workers=0) as it, pytest.raises(CheckpointError, match=r"data\.json"):
        it.restore(tmp_path / "data.json")


@pytest.mark.parametrize(("keep", "error"), [(0, ValueError), (-1, ValueError), ("3", TypeError)])
def test_how_many_to_keep_is_checked(tmp_path: Path, keep: Any, error: type[Exception]) -> None:
    with plan().iterator(workers=0) as it, pytest.raises(error, match="keep"):
        it.save(tmp_path / "states", keep=keep)
    assert names(tmp_path) == []


def test_each_step_is_durable_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file, its name, the folder, and only then are older ones removed."""
    saved(tmp_path, 1, keep=1)
    done: list[str] = []

    def noting(name: str, plain: Any) -> Any:
        def noted(*args: Any, **keywords: Any) -> Any:
            done.append(name)
            return plain(*args, **keywords)

        return noted

    monkeypatch.setattr(os, "fsync", noting("fsync", os.fsync))
    monkeypatch.setattr(os, "link", noting("link", os.link))
    monkeypatch.setattr(Path, "unlink", noting("unlink", Path.unlink))
    saved(tmp_path, 1, keep=1)

    # The first name that goes is the one it was written under.
    assert done == ["fsync", "link", "unlink", "fsync", "unlink"]


def test_a_number_that_another_process_takes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path, 2, keep=5)
    monkeypatch.setattr(checkpoints, "_numbers", lambda folder: [])
    state = checkpoints.read_state(tmp_path / "step-00000001.json")

    assert checkpoints.write_next_state(tmp_path, state, 5).name == "step-00000003.json"
    assert names(tmp_path) == steps(1, 2, 3)


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise PermissionError("links are not allowed")

    monkeypatch.setattr(os, "link", refuse)
    saved(tmp_path, 3, keep=2)

    assert names(tmp_path) == steps(2, 3)
    assert restored(tmp_path) == 3


def test_a_full_disk_leaves_the_series_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path, 2, keep=2)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with plan().iterator(workers=0) as it, pytest.raises(OSError, match="No space"):
        it.save(tmp_path, keep=1)

    assert names(tmp_path) == steps(1, 2)


SAVING = """
import sys
from tundish import Dataset, save_on_signal

with Dataset.range(10**9).iterator(workers=0) as it:
    it.restore(sys.argv[1], missing_ok=True)
    for n, _ in enumerate(it):
        it.save(sys.argv[1], keep=2)
        if n == 0:
            print("begun", flush=True)
"""


@pytest.mark.slow
def test_killed_at_any_instant_a_state_can_be_read(tmp_path: Path) -> None:
    draw, before = random.Random(1), -1
    for _ in range(8):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVING, str(tmp_path)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        with pytest.raises(subprocess.TimeoutExpired):  # the instant, which is to be any
            process.wait(draw.uniform(0.005, 0.1))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        with Dataset.range(10**9).iterator(workers=0) as it, warnings.catch_warnings():
            warnings.simplefilter("error")
            it.restore(tmp_path)
            now = int(next(it))
            it.save(tmp_path, keep=2)
        assert now > before
        before = now
    saved_names = [name for name in names(tmp_path) if name.endswith(".json")]
    saved(tmp_path, 3, keep=2)

    assert len(saved_names) == 2
    assert len(names(tmp_path)) == 2, names(tmp_path)
    assert json.loads((tmp_path / names(tmp_path)[-1]).read_text())["tundish"]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_is_saved_after_the_end_and_after_closing(tmp_path: Path, workers: int) -> None:
    ds = plan().map(abs)
    with ds.iterator(workers=workers) as it:
        list(it)
        it.save(tmp_path / "end.json")
    with ds.iterator(workers=workers) as it:
        next(it)
    it.save(tmp_path / "closed.json")

    for name, left in (("end.json", []), ("closed.json", [*range(1, 20)])):
        with ds.iterator(workers=workers) as it:
            it.restore(tmp_path / name)
            assert [int(x) for x in it] == left


@pytest.mark.parametrize("place", ["s3://bucket/data.json", Path("gs://bucket/data.json")])
def test_an_address_is_no_folder_of_that_name(
    place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a job would begin anew each time, where its disk is not the last one's."""
    monkeypatch.chdir(tmp_path)
    with Dataset.range(3).iterator() as it:
        for use in (
            it.save,
            lambda at: it.save(at, keep=2),
            lambda at: it.restore(at, missing_ok=True),
        ):
            with pytest.raises(ValueError, match="local files, not at"):
                use(place)
        with pytest.raises(ValueError, match="local files, not at"):
            save_on_signal(it, place)
    assert not list(tmp_path.iterdir())


def test_an_address_of_a_local_file(tmp_path: Path) -> None:
    with Dataset.range(3).iterator() as it:
        next(it)
        it.save(f"file://{tmp_path}/data.json")
        rest = list(it)
        it.restore(tmp_path / "data.json")
        assert list(it) == rest
