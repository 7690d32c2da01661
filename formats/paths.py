"""Glob patterns for paths, on a local disk or at a URL, by the rules of `Dataset.list_files`.

``*`` and ``?`` match any characters of a name, ``[ab]``, ``[a-z]``, ``[!ab]`` and ``[^ab]`` one of a set, and
a backslash escapes the next character. A leading dot is not special. Folders
match like files. ``**`` matches any number of folders; as the last name, all files below.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tundish.formats.bytes.file import StorageOptions, filesystem_of, is_remote, local_path

INDEX_SUFFIX = ".index.arrow"
"""The end of the name of an index beside a file."""

_SPECIAL = re.compile(r"[*?\[\\]")
_ANY_DEPTH = "**"
_FOLDERS = "(?:[^/]+/)*"


def find(patterns: Sequence[str], storage_options: StorageOptions = None) -> list[str]:
    """Return the paths that match patterns.

    Parameters
    ----------
    patterns : sequence of str
        Local patterns, or URLs that fsspec knows.
    storage_options : mapping or tuple of pairs, optional
        Options of a URL's filesystem.

    Returns
    -------
    list of str
        The paths sorted by their bytes; one that several patterns match is repeated. URLs begin like the pattern. An index
        beside a file that matches is left out.

    Raises
    ------
    OSError
        A folder cannot be read.
    """
    found: list[str] = []
    for pattern in patterns:
        found += _without_indices(_matches(pattern, storage_options))
    return sorted(found, key=lambda path: path.encode(errors="surrogateescape"))


def _without_indices(paths: Iterable[str]) -> list[str]:
    """Leave out the indices that this library has written beside files that match, too (``index="beside"``)."""
    found = list(paths)
    there = set(found)
    return [
        path
        for path in found
        if not (path.endswith(INDEX_SUFFIX) and path.removesuffix(INDEX_SUFFIX) in there)
    ]


def _matches(pattern: str, storage_options: StorageOptions) -> Iterable[str]:
    before, pattern, behind = _unchained(pattern)
    scheme, mark, rest = pattern.rpartition("://")
    names = rest.split("/")
    literal = next((k for k, name in enumerate(names) if _SPECIAL.search(name)), len(names))
    root = scheme + mark + "/".join(names[:literal])
    if 0 < literal < len(names) and not root.endswith("/"):
        root += "/"
    tree: _LocalTree | _RemoteTree
    if is_remote(before + pattern + behind):
        tree = _RemoteTree(before + (root or scheme + mark) + behind, storage_options)
    else:
        tree = _LocalTree(local_path(root))
    wanted = [name for name in names[literal:] if name]
    return [f"{before}{root}{inner}{behind}" for inner in _below(tree, "", wanted)]


def _unchained(pattern: str) -> tuple[str, str, str]:
    """Split a chained URL into the part before the file names, the file names, and the part after them."""
    parts = pattern.split("::") if is_remote(pattern) else [pattern]
    at = next((k for k, part in enumerate(parts) if "://" in part), len(parts) - 1)
    before, behind = parts[:at], parts[at + 1 :]
    return "".join(f"{p}::" for p in before), parts[at], "".join(f"::{p}" for p in behind)


def _below(tree: _LocalTree | _RemoteTree, folder: str, names: list[str]) -> Iterator[str]:
    """Yield the paths, relative to the tree's root, that match names from a folder on."""
    if not names:
        if tree.exists(folder):
            yield folder
        return
    name, *rest = names
    if name == _ANY_DEPTH:
        yield from _at_any_depth(tree, folder, rest)
    elif not _SPECIAL.search(name):
        yield from _below(tree, _joined(folder, name), rest)
    else:
        matching = re.compile(_translated(name), re.DOTALL)
        for child, is_folder in tree.children(folder):
            if matching.fullmatch(child):
                if not rest:
                    yield _joined(folder, child)
                elif is_folder:
                    yield from _below(tree, _joined(folder, child), rest)


def _at_any_depth(tree: _LocalTree | _RemoteTree, folder: str, names: list[str]) -> Iterator[str]:
    """Match names at any depth by listing a whole folder, for which an object store needs few requests."""
    folders = [_FOLDERS if name == _ANY_DEPTH else f"{_translated(name)}/" for name in names[:-1]]
    all_files = not names or names[-1] == _ANY_DEPTH
    last = f"{_FOLDERS}[^/]+" if all_files else _translated(names[-1])
    matching = re.compile("".join([_FOLDERS, *folders, last]), re.DOTALL)
    for path, is_folder in tree.descendants(folder):
        if matching.fullmatch(path) and not (all_files and is_folder):
            yield _joined(folder, path)


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _translated(name: str) -> str:
    """Return the regular expression for one name of a pattern."""
    parts, at = [], 0
    while at < len(name):
        character, at = name[at], at + 1
        if character == "*":
            parts.append("[^/]*")
        elif character == "?":
            parts.append("[^/]")
        elif character == "\\" and at < len(name):
            parts.append(re.escape(name[at]))
            at += 1
        elif character == "[" and (end := _end_of_class(name, at)):
            parts.append(_class(name[at:end]))
            at = end + 1
        else:
            parts.append(re.escape(character))
    return "".join(parts)


def _end_of_class(name: str, at: int) -> int:
    """Return the offset of the ``]`` of a class; 0 if there is none, so that ``[`` is literal."""
    if name[at : at + 1] in ("!", "^"):
        at += 1
    first = at
    while at < len(name):
        if name[at] == "]" and at > first:
            return at
        at += 2 if name[at] == "\\" else 1
    return 0


def _class(text: str) -> str:
    negated = text[0] in "!^"
    members = re.findall(r"\\?.", text[negated:], re.DOTALL)
    ranges, at = [], 0
    while at < len(members):
        low = high = members[at][-1]
        if at + 2 < len(members) and members[at + 1] == "-":
            high = members[at + 2][-1]
            at += 2
        at += 1
        if low <= high:
            ranges.append(f"{re.escape(low)}-{re.escape(high)}")
    if not ranges:
        return "[^/]" if negated else "(?!)"
    return f"(?!/)[{'^' if negated else ''}{''.join(ranges)}]"


class _LocalTree:
    """The folders and files below a root."""

    def __init__(self, root: str) -> None:
        self._root = root

    def exists(self, path: str) -> bool:
        return os.path.exists(self._root + path)  # noqa: PTH110 - a `Path` drops slashes, which count here

    def children(self, folder: str) -> Iterable[tuple[str, bool]]:
        """Return the names in a folder, and for each True if it is a folder; none if it does not exist."""
        try:
            with os.scandir(self._root + folder or ".") as entries:
                return [(entry.name, entry.is_dir()) for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            return ()

    def descendants(self, folder: str) -> Iterable[tuple[str, bool]]:
        """Return everything below a folder, with relative paths, and for each True if it is a folder."""
        return self._walk(folder, "", ())

    def _walk(
        self, folder: str, inner: str, above: tuple[tuple[int, int], ...]
    ) -> Iterator[tuple[str, bool]]:
        found = os.stat(self._root + _path_of(folder, inner) or ".")  # noqa: PTH116 - as in `exists`
        here = (found.st_dev, found.st_ino)
        if here in above:  # a link to a folder that it is in
            return
        for name, is_folder in self.children(_path_of(folder, inner)):
            path = _joined(inner, name)
            yield path, is_folder
            if is_folder:
                yield from self._walk(folder, path, (*above, here))


def _path_of(folder: str, inner: str) -> str:
    return _joined(folder, inner) if inner else folder


class _RemoteTree:
    def __init__(self, root: str, storage_options: StorageOptions) -> None:
        self._filesystem, inner = filesystem_of(root, storage_options)
        self._root = f"{inner.rstrip('/')}/" if inner else ""
        self._filesystem.invalidate_cache()  # of listings some time ago

    def exists(self, path: str) -> bool:
        return bool(self._filesystem.exists(self._inner(path)))

    def children(self, folder: str) -> Iterable[tuple[str, bool]]:
        try:
            found = self._filesystem.ls(self._inner(folder), detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return ()
        return self._relative(folder, found)

    def descendants(self, folder: str) -> Iterable[tuple[str, bool]]:
        found = self._filesystem.find(self._inner(folder), withdirs=True, detail=True)
        return self._relative(folder, found.values())

    def _relative(self, folder: str, found: Iterable[Any]) -> list[tuple[str, bool]]:
        inside = self._inner(folder).strip("/")
        start = f"{inside}/" if inside else ""
        named = [(info["name"].strip("/"), info["type"] == "directory") for info in found]
        return [
            (name.removeprefix(start), is_folder)
            for name, is_folder in named
            if name.startswith(start) and name != inside
        ]

    def _inner(self, path: str) -> str:
        return self._root + path if path else self._root.rstrip("/")
