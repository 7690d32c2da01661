"""``tundish snapshot``: what is made once and kept in files.

Each action is a module here, imported when it is called: ``--help`` is immediate.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

from tundish.cli.snapshot.exits import (
    FAILED,
    INCOMPLETE,
    Refusal,
    raised_by_the_user,
    status_of,
    traceback_of,
)
from tundish.errors import IncompleteSnapshotError, SnapshotCorruptError, SnapshotError

__all__ = ["run"]

_MODULES = {"write": "writing", "finalize": "shards"}


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
        The exit status, as `tundish.cli.snapshot.exits` lists them.
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
