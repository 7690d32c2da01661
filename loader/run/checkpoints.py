"""States in files: one file that is replaced, or a series in a folder with the last few kept."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tundish.errors import CheckpointError, IncompatibleCheckpointError
from tundish.formats.bytes.file import local_path
from tundish.formats.bytes.regular import (
    parse_json,
    read_regular,
    remove_abandoned,
    sync_file,
    sync_folder,
    written_aside,
)
from tundish.loader.run.state import check_form
from tundish.tracebacks import callers_level

_NAME = "step-{:08}.json"
_NAMES = re.compile(r"step-(\d{8,})\.json")
_ADDRESS = re.compile("[A-Za-z][A-Za-z0-9+.-]+:/")  # of a `Path`, too, which has one slash
_MODE = 0o600  # a state names files, and shows arguments


def local_file(path: str | os.PathLike[str]) -> Path:
    """Return the path of a state's file or folder; an address in a store is an error, not a folder of that name.

    Raises
    ------
    ValueError
        It is a URL.
    """
    text = local_path(os.fspath(path))
    if _ADDRESS.match(text):
        raise ValueError(
            f"states are saved in local files, not at {text}: save json.dumps(it.state_dict()) there, with fsspec for "
            "example, and pass what was read to it.load_state_dict"
        )
    return Path(text)


def write_state(path: str | os.PathLike[str], state: dict[str, Any]) -> None:
    """Write a state atomically: at any instant the file is the old one or the new one.

    Raises
    ------
    IsADirectoryError
        The path is a folder.
    """
    target = local_file(path)
    if target.is_dir():
        what = "this is a folder: pass keep=, the number of states to keep in it, or the path of a file"
        raise IsADirectoryError(errno.EISDIR, what, os.fspath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(target.parent, re.escape(target.name))
    with _written_beside(target, state) as new:
        new.replace(target)
    sync_folder(target.parent)


def write_next_state(folder: str | os.PathLike[str], state: dict[str, Any], keep: int) -> Path:
    """Write a state under the next number, then remove all but the last `keep`."""
    home = local_file(folder)
    home.mkdir(parents=True, exist_ok=True)
    remove_abandoned(home, _NAMES.pattern)
    number = max(_numbers(home), default=0)
    while True:  # another process may take the number first
        number += 1
        target = home / _NAME.format(number)
        with _written_beside(target, state) as new:
            try:
                _publish_new(new, target)
            except FileExistsError:
                continue
        break
    sync_folder(home)
    _remove_old(home, sorted(_numbers(home))[:-keep])
    return target


def stored_state(path: str | os.PathLike[str]) -> Any:
    """Return the state of a file, or the newest of a folder."""
    place = local_file(path)
    return _newest_state(place) if place.is_dir() else read_state(place)


def _newest_state(folder: str | os.PathLike[str]) -> Any:
    """Return the state with the highest number that can be read; warn of each that cannot.

    Raises
    ------
    FileNotFoundError
        The folder contains no state.
    CheckpointError
        None of the folder's states can be read.
    """
    home = Path(folder)
    numbers = sorted(_numbers(home), reverse=True)
    for number in numbers:
        path = home / _NAME.format(number)
        try:
            return read_state(path)
        except FileNotFoundError:  # removed meanwhile by a process that has saved a newer one
            continue
        except (CheckpointError, OSError) as problem:
            warnings.warn(
                f"{path} is passed over: {problem}", RuntimeWarning, stacklevel=callers_level()
            )
    if not numbers:
        raise FileNotFoundError(errno.ENOENT, "no iterator state is in this folder", str(home))
    raise CheckpointError(f"none of the {len(numbers)} file(s) step-*.json in {home} can be read")


def restore_state(path: str | os.PathLike[str], load: Callable[[Any], None]) -> None:
    """Load the state of a file, or the newest of a folder; an error of another pipeline names the path."""
    state = stored_state(path)
    try:
        load(state)
    except IncompatibleCheckpointError as error:
        error.add_note(f"tundish: it was read from {os.fspath(path)}; delete that to start over")
        raise


def read_state(path: str | os.PathLike[str]) -> Any:
    """Read a state from a file.

    Raises
    ------
    CheckpointError
        The file is not a state, or is incomplete.
    OSError
        The file cannot be read: it is not a regular file, or a link that leads to itself.
    """
    try:
        state = parse_json(read_regular(path))
    except ValueError as problem:  # no text, or no JSON
        raise CheckpointError(f"{os.fspath(path)} is not an iterator state: {problem}") from problem
    if not isinstance(state, dict) or "tundish" not in state:
        raise CheckpointError(f"{os.fspath(path)} is not an iterator state of tundish")
    try:
        check_form(state)
    except CheckpointError as problem:
        raise CheckpointError(f"{os.fspath(path)}: {problem}") from None
    return state


def holds_state(path: str | os.PathLike[str]) -> bool:
    """Return True if a path is a file, or a folder with a series of states.

    Raises
    ------
    OSError
        It cannot be determined: a link leads to itself, or a folder cannot be accessed.
    """
    try:
        found = local_file(path).stat()  # `exists` ignores a link to itself
    except (FileNotFoundError, NotADirectoryError):
        return False
    return bool(_numbers(local_file(path))) if stat.S_ISDIR(found.st_mode) else True


@contextlib.contextmanager
def _written_beside(target: Path, state: dict[str, Any]) -> Iterator[Path]:
    """Create a durable temporary file beside the target; remove it at the end if it was not renamed."""
    with written_aside(target, _MODE) as (path, descriptor):
        with os.fdopen(descriptor, "w", encoding="utf-8", closefd=False) as file:
            json.dump(state, file)
        sync_file(descriptor)
        yield path


def _publish_new(new: Path, target: Path) -> None:
    """Give a file its final name, if that is free."""
    try:
        os.link(new, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if target.exists():
            raise FileExistsError(errno.EEXIST, "it is there", str(target)) from None
        new.replace(target)


def _numbers(folder: Path) -> list[int]:
    with contextlib.suppress(FileNotFoundError):
        matches = [_NAMES.fullmatch(path.name) for path in folder.iterdir()]
        return [int(match[1]) for match in matches if match]
    return []


def _remove_old(folder: Path, numbers: list[int]) -> None:
    """Remove our files with these numbers."""
    for number in numbers:
        path = folder / _NAME.format(number)
        with contextlib.suppress(CheckpointError, OSError):
            read_state(path)  # other files stay
            path.unlink()
