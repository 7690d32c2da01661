"""``tundish snapshot``: elements that are computed once and kept in files.

Each action is a module here, imported when it is called: ``--help`` is immediate. This
module has the ways in which a run ends: the exit status, the message, and the command to run again.
"""

from __future__ import annotations

import errno
import json
import shlex
import shutil
import sys
import sysconfig
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

import tundish
from tundish.errors import IncompleteSnapshotError, SnapshotCorruptError, SnapshotError

_MODULES = {"write": "writing", "finalize": "shards"}

DONE, FAILED, USAGE, INCOMPLETE, HELD, NO_SPACE, BAD_RECORDS = range(7)

HELP = """\
exit status:
  0    done
  1    an unexpected error
  2    usage: no such pipeline, path or shard, or a pipeline that cannot be divided
  3    incomplete: shards are missing, or a snapshot is damaged
  4    another process is writing it
  5    not enough disk space
  6    more bad records than --max-errors
  130  SIGINT, 143  SIGTERM: the finished part is committed; the same command continues
"""

_PROGRAM = Path(sys.argv[0])  # before a user's file gets arguments of its own
OURS = Path(tundish.__file__).parent
STANDARD = sysconfig.get_paths()["stdlib"]


def run(action: str, **given: Any) -> int:
    """Carry out an action.

    Parameters
    ----------
    action : str
        ``write``, ``info``, ...
    **given
        Its arguments.

    Returns
    -------
    int
        The exit status, as `HELP` lists them.
    """
    try:
        module = import_module(f"tundish.cli.snapshot.{_MODULES.get(action, 'upkeep')}")
        status: Any = getattr(module, "run" if action in _MODULES else action)(**given)
        return int(status)
    except Refusal as refusal:
        return _told(refusal.status, str(refusal), given)
    except (IncompleteSnapshotError, SnapshotCorruptError) as error:
        return _told(INCOMPLETE, str(error), given)
    except SnapshotError as error:
        return _told(status_of(error), str(error), given)
    except Exception as error:  # noqa: BLE001 - told with all that is known of it
        if isinstance(error, OSError) and not raised_by_the_user(error):
            return _told(status_of(error), str(error), given)  # the disk's
        print(traceback_of(error), file=sys.stderr)  # noqa: T201 - as Python would
        return _told(FAILED, f"{type(error).__name__}: {error}", given)


def _told(status: int, text: str, given: dict[str, Any]) -> int:
    if given.get("as_json"):
        print(json.dumps({"event": "finished", "status": status, "text": text}), flush=True)  # noqa: T201 - a line of the log
    print(f"tundish snapshot: {text}", file=sys.stderr)  # noqa: T201 - the end of it
    return status


class Refusal(Exception):  # noqa: N818 - a message to the user, not a mistake
    """A reason to end, as a message for people.

    Parameters
    ----------
    status : int
        The exit status.
    text : str
        What is wrong, and what to do.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status = status
        self.text = text

    def __str__(self) -> str:
        return self.text


def told(signal: int) -> int:
    """Return the exit status of a process that a signal has ended."""
    return 128 + signal


def status_of(error: BaseException) -> int:
    """Return the exit status for an error of the disk, depending on whether it was full."""
    cause: BaseException | None = error
    while cause is not None:
        if getattr(cause, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            return NO_SPACE
        cause = cause.__cause__
    return FAILED


def raised_by_the_user(error: BaseException) -> bool:
    """Return True if the error comes from the user's own code."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_pythons(f)]
    return bool(frames) and not _is_ours(frames[-1])


def traceback_of(error: BaseException) -> str:
    """Return a traceback; for an error in the user's code, without this library's frames."""
    if raised_by_the_user(error):
        return users_traceback(error)
    return "".join(traceback.format_exception(error)).rstrip()


def users_traceback(error: BaseException) -> str:
    """Return a traceback without this library's frames; "" if no others are left."""
    told = traceback.TracebackException.from_exception(error)
    told.stack[:] = [f for f in told.stack if not (_is_ours(f) or _is_import(f))]
    return "".join(told.format()).rstrip() if told.stack else ""


def _is_pythons(frame: traceback.FrameSummary) -> bool:
    if frame.filename.startswith("<frozen "):
        return True
    path = Path(frame.filename)
    return path.is_relative_to(STANDARD) and "site-packages" not in path.parts


def _is_import(frame: traceback.FrameSummary) -> bool:
    return frame.filename.startswith("<frozen importlib") or (
        _is_pythons(frame) and Path(frame.filename).parent.name == "importlib"
    )


def _is_ours(frame: traceback.FrameSummary) -> bool:
    return Path(frame.filename).is_relative_to(OURS)


def command(*words: str) -> str:
    """Return a shell command that runs ``tundish`` as it was run here, from any folder.

    Parameters
    ----------
    *words : str
        What follows ``tundish``.
    """
    if _PROGRAM.name == "tundish":
        on_path = shutil.which("tundish")
        same = on_path is not None and Path(on_path).resolve() == _PROGRAM.resolve()
        start = ["tundish"] if same else [str(_PROGRAM.resolve())]
    else:
        start = [sys.executable, "-m", "tundish"]
    return f"cd {shlex.quote(str(Path.cwd()))} && {shlex.join([*start, *words])}"
