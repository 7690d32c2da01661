"""The common part of datasets of files: checks of arguments, and the plan that reads files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from tundish.calls import check_is
from tundish.formats.bytes.stream import check_compression
from tundish.loader.dataset import Dataset
from tundish.loader.operators.files import Filenames, Index, Opening, ReadFiles, ReadFilesInTurn
from tundish.loader.operators.interleaving import CYCLE_LENGTH
from tundish.loader.plan.checks import check_count, check_items, check_word
from tundish.loader.plan.node import AUTOTUNE, check_workers
from tundish.spec import Element_co

if TYPE_CHECKING:
    from tundish.formats.format import Format
    from tundish.loader.protocols.operator import Operator

Paths = str | bytes | os.PathLike[str] | Sequence[str | bytes | os.PathLike[str]] | Dataset


class FileDataset(Dataset[Element_co]):
    """A dataset of the records of files; operators on it give a plain `Dataset`."""

    @classmethod
    def _of(cls, node: Operator) -> Any:
        return Dataset._of(node)  # noqa: SLF001 - its own class

    def _read(
        self,
        filenames: Paths,
        form: Format,
        num_parallel_reads: int | None = None,
        on_error: str | None = None,
        index: Index = None,
    ) -> Self:
        """Initialise with the plan that reads files in a format; constructors call it last."""
        paths = filenames_node(filenames)
        opening = Opening(form)
        policy = None if on_error is None else check_word("on_error", on_error, ("raise", "skip"))
        index = check_index(index)
        if index and not form.seekable:
            raise ValueError(
                f"index={index!r} needs files in which reading can begin anywhere; compressed ones and "
                "databases are read from the start"
            )
        if num_parallel_reads is None:
            self._begin(ReadFiles(paths, opening, policy, index))
            return self
        if index:
            raise ValueError(
                f"index={index!r} is for files that are read one after another; leave num_parallel_reads out"
            )
        reads = check_workers("num_parallel_reads", num_parallel_reads)
        cycle = CYCLE_LENGTH if reads == AUTOTUNE else reads
        self._begin(ReadFilesInTurn(paths, opening, cycle, 1, reads, policy))
        return self


def filenames_node(filenames: Any) -> Operator:
    """Return the plan of the paths in an argument `filenames`."""
    if isinstance(filenames, Dataset):
        return filenames._node  # noqa: SLF001 - ours
    if isinstance(filenames, (str, bytes, os.PathLike)):
        return Filenames((os.fsdecode(filenames),))
    try:
        found = check_items("filenames", filenames, "paths")
    except TypeError:
        what = f"{type(filenames).__name__} ({filenames!r})"
        raise TypeError(
            f"filenames must be a path, a list of paths, or a Dataset of paths, not {what}"
        ) from None
    for each in found:
        check_is(each, (str, bytes, os.PathLike), "filenames must hold paths")
    return Filenames(tuple([os.fsdecode(each) for each in found]))


def check_index(index: Any) -> Index:
    """Check the argument `index`."""
    if index is None or isinstance(index, bool):
        return index
    if index != "beside":
        raise ValueError(f"index must be None, True, False or 'beside', not {index!r}")
    return "beside"


def check_buffer(buffer_size: Any) -> int | None:
    """Check the argument `buffer_size`."""
    return None if buffer_size is None else check_count("buffer_size", buffer_size, least=0)


def check_storage(storage_options: Any) -> tuple[tuple[str, Any], ...] | None:
    """Check the argument `storage_options`; return it as a format stores it."""
    if storage_options is None:
        return None
    check_is(storage_options, Mapping, "storage_options must be a dict")
    return tuple(sorted(storage_options.items()))


_BY_NAME = {".gz": "GZIP", ".tgz": "GZIP", ".zst": "ZSTD", ".tzst": "ZSTD"}


def compression_of(compression_type: Any, filenames: Any) -> str:
    """Check the argument `compression_type`; None means the one that the files' names imply.

    Raises
    ------
    ValueError
        The names imply different ones.
    """
    if compression_type is not None:
        return check_compression(compression_type)
    paths = filenames_node(filenames).listed_paths
    if paths is None:  # the names are not known yet
        return ""
    found = {_told_by(path): path for path in reversed(paths)}
    if len(found) > 1:
        first, second, *_ = sorted(found)
        raise ValueError(
            f"compression_type is inferred from the names of the files, but they differ: {found[first]!r} "
            f"is {first or 'not compressed'}, {found[second]!r} is {second}; make one dataset for each kind"
        )
    return next(iter(found), "")


def _told_by(path: str) -> str:
    for suffix, compression in _BY_NAME.items():
        if path.lower().endswith(suffix):
            return compression
    return ""
