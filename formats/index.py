"""Indexes of files, with the places of their records; each is cached in an Arrow file.

Such a file is written under a temporary name and renamed, so it is complete or absent, and it never changes: several
processes map it at once. One that is damaged, has another version, or belongs to a file that has changed,
is ignored. All of them may be deleted at any time.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakValueDictionary

import numpy as np

from tundish.formats.bytes.file import (
    StorageOptions,
    filesystem_of,
    is_remote,
    local_path,
    open_file,
)
from tundish.formats.bytes.regular import parse_json, remove_abandoned, written_aside
from tundish.formats.format import runs_of
from tundish.formats.paths import INDEX_SUFFIX

if TYPE_CHECKING:
    from tundish.formats.format import Format, Identity, Places


VERSION = 2
"""The version of the file's layout, and of the meaning of places."""

_KEY = b"tundish"
_MAGIC = b"ARROW1"  # an Arrow file begins and ends with it
_log = logging.getLogger("tundish")


def described(form: Format, path: str, *, beside: bool) -> dict[str, Any]:
    """Describe what an index depends on, as JSON, without options that only concern access."""
    given = {name: repr(value) for name, value in form.given.items()}
    if not is_remote(path):
        path = os.path.abspath(local_path(path))  # noqa: PTH100 - links stay what they are
    if beside:  # the two may be moved together
        path = path.rsplit("/", 1)[-1]
    return {"version": VERSION, "path": path, "format": form.name, "arguments": given}


def place_beside(path: str) -> str:
    """Return the path of a file's index beside the file."""
    return f"{path if is_remote(path) else local_path(path)}{INDEX_SUFFIX}"


def place_in_cache(description: dict[str, Any]) -> str | None:
    """Return the path of an index in the cache folder; None if the user has no home."""
    text = json.dumps(description, sort_keys=True)
    name = blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()
    folder = cache_folder()
    return None if folder is None else str(folder / "index" / f"{name}.arrow")


def cache_folder() -> Path | None:
    """Return the folder of this library's caches for the user; None if the user has no home."""
    named = os.environ.get("TUNDISH_CACHE_DIR")
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(named or (f"{base}/tundish" if base else "~/.cache/tundish")).expanduser()
    except RuntimeError:
        return None


def read(
    where: str, description: dict[str, Any], identity: Identity, storage_options: StorageOptions
) -> np.ndarray | None:
    """Return the cached places, if they are those of the file as it is now."""
    import pyarrow as pa  # noqa: PLC0415 - takes a while, and is needed for large files only

    try:
        with _opened(where, storage_options) as source:
            reader = pa.ipc.open_file(source)
            said = parse_json((reader.schema.metadata or {})[_KEY])
            digest = said.pop("crc32")
            if said != {**description, "identity": list(identity), "count": said.get("count")}:
                return None
            (column,) = reader.read_all().column("offsets").chunks
            places: np.ndarray = column.to_numpy(zero_copy_only=True)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, ImportError, pa.ArrowException) as problem:
        _log.debug("the index %s cannot be read, and is made again: %s", where, problem)
        return None
    # Without an fsync, a file may exist after a power failure without its bytes.
    if places.dtype != np.int64 or len(places) != said["count"] or _crc32(places) != digest:
        return None
    return places


def write(
    where: str,
    description: dict[str, Any],
    identity: Identity,
    places: np.ndarray,
    storage_options: StorageOptions,
) -> None:
    """Cache places. If that fails it is logged, and they will be searched again."""
    import pyarrow as pa  # noqa: PLC0415 - takes a while, and is needed for large files only

    said = {**description, "identity": identity, "count": len(places), "crc32": _crc32(places)}
    schema = pa.schema(
        [pa.field("offsets", pa.int64(), nullable=False)], {_KEY: json.dumps(said).encode()}
    )
    batch = pa.record_batch([pa.array(places)], schema=schema)
    try:
        if is_remote(where):
            sink = pa.BufferOutputStream()
            _write_batch(sink, batch)
            filesystem, inner = filesystem_of(where, storage_options)
            filesystem.pipe_file(inner, sink.getvalue().to_pybytes())
        else:
            _write_aside(where, batch)
    except Exception as problem:  # noqa: BLE001 - whatever a filesystem, or its driver, raises
        _log.info("the index %s cannot be kept: %s", where, problem)


def _write_aside(where: str, batch: Any) -> None:
    whole = Path(where)
    whole.parent.mkdir(parents=True, exist_ok=True)
    hidden = whole.with_name(f".{whole.name}")  # from a pattern that finds the files indexed
    remove_abandoned(whole.parent, re.escape(hidden.name))
    with written_aside(hidden) as (path, descriptor):
        with os.fdopen(descriptor, "wb", closefd=False) as sink:
            _write_batch(sink, batch)
        path.replace(whole)


def _write_batch(sink: Any, batch: Any) -> None:
    import pyarrow as pa  # noqa: PLC0415 - as in `write`

    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def _opened(where: str, storage_options: StorageOptions) -> Any:
    """Open a source for pyarrow without mapping it, since truncating a mapped file kills this process."""
    import pyarrow as pa  # noqa: PLC0415 - as in `read`

    with open_file(where, storage_options) as file:
        ends = file.pread(0, len(_MAGIC)), file.pread(max(0, file.size - len(_MAGIC)), len(_MAGIC))
        if ends != (_MAGIC, _MAGIC):  # it may be larger than memory, too
            raise ValueError("it is not an Arrow file, or was cut off")
        return pa.BufferReader(file.pread(0, file.size))


def _crc32(places: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(places).data)


@dataclass(frozen=True, eq=False)
class Index:
    """The places of the records in a file.

    Parameters
    ----------
    places : Places
        The places of all records; none if there is an error.
    identity : Identity or None
        The file's identity; None if it changed in the meantime, or does not exist.
    error : Exception, optional
        The reason why the places are unknown.
    groups : numpy.ndarray, optional
        The number of records in each group, if they are stored in groups.
    """

    places: Places
    identity: Identity | None
    error: Exception | None = None
    groups: np.ndarray | None = None

    def says_the_same(self, other: Index) -> bool:
        """Return True if another index of the same file has the same contents."""
        if self.identity != other.identity:
            return False
        if self.error is not None or other.error is not None:
            return type(self.error) is type(other.error) and str(self.error) == str(other.error)
        if not np.array_equal(self.units, other.units):
            return False
        if isinstance(self.places, range) or isinstance(other.places, range):
            return type(self.places) is type(other.places) and self.places == other.places
        return np.array_equal(self.places, other.places)

    @property
    def units(self) -> np.ndarray:
        """The sizes of the units in which storage hands out the records, in order."""
        if self.error is not None:  # it counts as one record
            return np.ones(1, np.int64)
        return runs_of(self.places) if self.groups is None else self.groups


def identity_of(path: str, storage_options: StorageOptions = None) -> Identity | None:
    """Return a file's present identity; None if it is unknown."""
    try:
        if not is_remote(path):
            found = os.stat(local_path(path))  # noqa: PTH116 - a `Path` would cost ten times the call
            return found.st_size, found.st_mtime_ns
        with open_file(path, storage_options) as file:
            return file.identity
    except (OSError, ImportError, ValueError):
        return None


Keep = bool | Literal["beside"]

WORTH_KEEPING = 1 << 20
"""Bytes of a file from which on its index is kept: what is smaller is looked through in the time that
reading an index takes, and a hundred thousand small files shall not become two hundred thousand."""

WORTH_KEEPING_REMOTE = 1 << 16
"""The same of a file that has to come over the network."""

_SETTLED = 0.02  # s after which a change of a file changes its time too: twice the kernel's tick
_REQUESTS = 16  # under way at once
_ATTEMPTS = 3

_KNOWN: WeakValueDictionary[tuple[str, str], Index] = WeakValueDictionary()
"""The indices in this process, by format and path, while they are in use."""


def indexes_of(form: Format, paths: Sequence[str], *, keep: Keep = True) -> list[Index]:
    """Return the indexes of files.

    Parameters
    ----------
    form : Format
        The files' format, which is `seekable`.
    paths : sequence of str
        The files.
    keep : bool or "beside"
        Whether an index that required reading a large file is cached for other processes and for later: True in the
        cache folder (``$TUNDISH_CACHE_DIR``, else ``tundish`` in ``$XDG_CACHE_HOME`` or ``~/.cache``), "beside"
        each file.

    Returns
    -------
    list of Index
        The index of each file; the same object while the file does not change and somebody holds it.
    """
    looking = _Looking(form, getattr(form, "storage_options", None), keep, repr(form))
    if len(paths) > 1 and any(map(is_remote, paths)):
        with ThreadPoolExecutor(_REQUESTS) as pool:  # they mostly wait
            return list(pool.map(looking.at, paths))
    return [looking.at(path) for path in paths]


@dataclass(frozen=True)
class _Looking:
    form: Format
    options: StorageOptions
    keep: Keep
    called: str
    """The format with all its arguments."""

    def at(self, path: str) -> Index:
        """Return a file's index, from a cache or by indexing the file now."""
        known = _KNOWN.get((self.called, path))
        if known is not None and known.identity is not None:  # noqa: SIM102 - asking is not free
            if known.identity == identity_of(path, self.options):
                return known
        found = self._found(path)
        if known is not None and known.says_the_same(found):
            return known
        _KNOWN[self.called, path] = found
        return found

    def _found(self, path: str) -> Index:
        attempts = _ATTEMPTS
        while True:
            before = identity_of(path, self.options)
            try:
                index = self._kept(path, before) or self._scanned(path, before)
            except Exception as error:  # noqa: BLE001 - whatever a format, or a driver, raises
                return Index(range(0), before, error.with_traceback(None))
            attempts -= 1
            if index.identity is not None or not attempts:  # a file may change all the time
                return index

    def _kept(self, path: str, identity: Identity | None) -> Index | None:
        where = self._where(path, identity)
        if where is None or identity is None:
            return None
        places = read(where, self._description(path), identity, self.options)
        return None if places is None else Index(places, identity)

    def _scanned(self, path: str, before: Identity | None) -> Index:
        if before is not None and not is_remote(path):
            # A change right after the last one would leave the time as it is.
            age = time.time() - before[1] / 1e9
            if 0 <= age < _SETTLED:
                time.sleep(_SETTLED - age)
        places, groups = self.form.look(path)
        if before is None or identity_of(path, self.options) != before:
            return Index(places, None, groups=groups)
        where = self._where(path, before)
        if where is not None and isinstance(places, np.ndarray):
            write(where, self._description(path), before, places, self.options)
        return Index(places, before, groups=groups)

    def _where(self, path: str, identity: Identity | None) -> str | None:
        """Return the path of a file's cached index, if there is one."""
        least = WORTH_KEEPING_REMOTE if is_remote(path) else WORTH_KEEPING
        if not self.keep or self.form.cheap or identity is None or identity[0] < least:
            return None
        if self.keep == "beside":
            return place_beside(path)
        return place_in_cache(self._description(path))

    def _description(self, path: str) -> dict[str, Any]:
        return described(self.form, path, beside=self.keep == "beside")
