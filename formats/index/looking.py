"""Indexing of files, unless an index is cached."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakValueDictionary

import numpy as np

from tundish.formats.bytes.file import StorageOptions, is_remote
from tundish.formats.index.kept import (
    Index,
    described,
    identity_of,
    place_beside,
    place_in_cache,
    read,
    write,
)

if TYPE_CHECKING:
    from tundish.formats.format import Format, Identity

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
"""What this process knows, by format and path, as long as somebody uses it."""


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
