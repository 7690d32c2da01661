"""list_files: paths of files that match a pattern."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tundish.formats.paths import find
from tundish.loader.operators.shuffle import Shuffle
from tundish.loader.plan.checks import check_items, check_optional_flag, check_options, check_seed
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.operator import Operator, SourceNode
from tundish.spec import ArraySpec

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import Maker, Spec, Value

_PATH = (str, bytes, os.PathLike)


@dataclass(frozen=True, eq=False)
class Files(SourceNode):
    """Paths of files, found when the pipeline was built."""

    paths: tuple[str, ...]

    op = "list_files"
    files = ("paths",)
    positional = gives_paths = light = ours = True

    def spec(self, below: Spec) -> Any:
        return ArraySpec((), str)

    @property
    def cardinality(self) -> int:
        return len(self.paths)

    @property
    def listed_paths(self) -> tuple[str, ...]:
        return self.paths

    def shown(self) -> str:
        folder = Path(os.path.commonpath([Path(path).parent for path in self.paths]))
        return f"{folder.name or folder}{os.sep}…"

    def evaluator(self, maker: Maker) -> Value:
        found = self.paths
        return lambda item, _: found[item]


class ListingMethods(Fluent):
    """The class method of `Dataset` that lists paths."""

    @classmethod
    def list_files(
        cls,
        file_pattern: Any,
        shuffle: bool | None = None,
        seed: int | None = None,
        name: str | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Self:
        r"""List the paths that match a pattern, as a dataset of str.

        Parameters
        ----------
        file_pattern : str, path or sequence of them
            Glob patterns, of local paths or of URLs that fsspec knows (``s3://bucket/train-*``).
            Folders are read when `list_files` is called. In a pattern, ``*`` matches any characters
            of a name and ``?`` one of them. ``[ab]``, ``[a-z]`` and ``[!ab]`` match one character of
            a set. ``**`` matches any number of folders; as the last name, it matches all files in
            the folder and its subfolders. A backslash escapes the next character.
        shuffle : bool, optional
            True (the default, as in tf.data): a new random order in each iteration. False: sorted
            order.
        seed : int, optional
            The seed of the shuffle.
        name : str, optional
            Accepted as in tf.data, and ignored.
        storage_options : dict, optional
            Arguments for the filesystem of a URL.

        Raises
        ------
        FileNotFoundError
            No path matches any of the patterns.
        OSError
            A folder cannot be read.
        ValueError
            There is no pattern.

        Notes
        -----
        As in tf.data, names that begin with a dot match like any other name, folders match like
        files, and a path that matches several patterns is listed once for each. Unlike tundish,
        tf.data reads the folders when it iterates, treats ``**`` like ``*``, and adds ``./`` to the
        beginning of relative paths.

        Examples
        --------
        >>> import tundish as td
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     for name in ("b.txt", "a.txt", "c.png"):
        ...         Path(folder, name).touch()
        ...     ds = td.Dataset.list_files(f"{folder}/*.txt", shuffle=False)
        >>> [Path(path).name for path in ds]
        ['a.txt', 'b.txt']
        """
        several = not isinstance(file_pattern, _PATH)
        given = check_items("file_pattern", file_pattern, "paths") if several else [file_pattern]
        if not given:
            raise ValueError("file_pattern must hold at least one pattern, not 0")
        for each in given:
            if not isinstance(each, _PATH):
                raise TypeError(
                    f"file_pattern must hold paths, not {type(each).__name__} ({each!r})"
                )
        check_options("storage_options", storage_options)
        patterns = [os.fsdecode(each) for each in given]
        found = find(patterns, storage_options)
        if not found:
            shown = " or ".join(map(repr, patterns[:5])) + (" or ..." if len(patterns) > 5 else "")
            raise FileNotFoundError(f"file_pattern must match a file, but nothing matches {shown}")
        node: Operator = Files(tuple(found))
        if check_optional_flag("shuffle", shuffle) is not False:
            node = Shuffle(node, max(1, len(found)), check_seed(seed), reshuffle=True)
        return cls._of(node)
