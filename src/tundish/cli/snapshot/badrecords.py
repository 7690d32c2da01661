"""Records of elements that failed, each with the command that computes only this one again."""

from __future__ import annotations

import json
import re
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tundish.cli.snapshot import command
from tundish.errors import WorkerTraceback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tundish.cli.snapshot.pipeline import KeptPipeline
    from tundish.snapshot.records import StoredError

_NOTE = re.compile(
    r"tundish: (?:in (?P<node>\w+)#(?P<at>\d+), )?element (?P<path>[\d.]+)(?: of pass (?P<pass>\d+))?,"
)


def origin_of(error: BaseException, moved: Mapping[int, int] | None = None) -> str | None:
    """Return the node and element that an error comes from, in the form of ``--only-element``.

    Parameters
    ----------
    error : BaseException
        The error, with the note that an iterator added.
    moved : mapping, optional
        The nodes of the plan that was run to those of the plan as it was built.

    Returns
    -------
    str or None
        ``map#1:17``, ``map#1:17@2`` in a later pass; None where nobody knows.

    Examples
    --------
    >>> error = ValueError("no")
    >>> error.add_note("tundish: in map#1, element 3.4 of pass 2, in worker 0")
    >>> origin_of(error)
    'map#1:3.4@2'
    """
    for note in getattr(error, "__notes__", ()):
        found = _NOTE.match(note)
        if found is None:
            continue
        node = ""
        if found["node"]:
            at = int(found["at"])
            node = f"{found['node']}#{at if moved is None else moved.get(at, at)}:"
        return f"{node}{found['path']}" + (f"@{found['pass']}" if found["pass"] else "")
    return None


class BadRecords:
    """Counts the elements that failed, and records them in a file.

    Parameters
    ----------
    pipeline : KeptPipeline
        The pipeline whose records failed.
    file : str or None
        Where to note them, one JSON object a line; it is written anew, the records of elements
        that are durable are kept.
    durable : mapping of int to StoredError
        The errors of earlier attempts.
    moved : mapping, optional
        As in `origin_of`.
    """

    def __init__(
        self,
        pipeline: KeptPipeline,
        file: str | None,
        durable: Mapping[int, StoredError],
        moved: Mapping[int, int] | None = None,
    ) -> None:
        self._pipeline, self._moved = pipeline, moved
        self.count = len(durable)
        self._file: TextIO | None = None
        if file is None:
            return
        path = Path(file)
        kept = _noted(path, pipeline.key)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8")
        for index, stored in sorted(durable.items()):
            record = kept.get(index) or self._record(index, None, _shown(stored.exception()), "")
            self._write(record)

    def add(self, index: int, error: BaseException) -> dict[str, Any]:
        """Record an element that failed."""
        self.count += 1
        record = self._record(index, origin_of(error, self._moved), _shown(error), _frames(error))
        self._write(record)
        return record

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _record(self, index: int, origin: str | None, error: str, frames: str) -> dict[str, Any]:
        pipeline = self._pipeline
        words = ["snapshot", "write", pipeline.target, pipeline.path]
        if pipeline.node.keeping.version is not None:
            words += ["--version", pipeline.node.keeping.version]
        which = ["--only-element", origin] if origin is not None else []
        if origin is None:
            which = ["--only-element", f"index:{index}"]
            if pipeline.part is not None:
                which += ["--shard", "{}/{}".format(*pipeline.part)]
        return {
            "index": index,
            "origin": origin,
            "shard": None if pipeline.part is None else list(pipeline.part),
            "error": error,
            "traceback": frames,
            "reproduce": command(*words, *which),
            "key": pipeline.key,
        }

    def _write(self, record: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()


def _noted(path: Path, key: str) -> dict[int, dict[str, Any]]:
    """Return the records of this pipeline that a file already contains."""
    found: dict[int, dict[str, Any]] = {}
    with suppress(FileNotFoundError):
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError, KeyError, TypeError):
                record = json.loads(line)
                if record["key"] == key:
                    found[record["index"]] = record
    return found


def _shown(error: BaseException) -> str:
    """Return the last line of an error's traceback, without its notes."""
    told = "".join(traceback.format_exception_only(type(error), error))
    return told.split("\ntundish: ")[0].strip()


def _frames(error: BaseException) -> str:
    """Return the traceback from where the error was raised, in a worker or here."""
    if isinstance(error.__cause__, WorkerTraceback):
        return error.__cause__.text.strip()
    return "".join(traceback.format_exception(error)).strip()
