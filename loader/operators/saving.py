"""save, load: elements written to files at once, and read again from their folder."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from tundish.errors import SnapshotError, SpecError
from tundish.loader.operators.loading import find, read_by
from tundish.loader.operators.snapshot import (
    Keeping,
    Snapshot,
    SortedSnapshot,
    check_compression,
    check_path,
)
from tundish.loader.plan.checks import check_callable, check_flag
from tundish.loader.plan.node import INFINITE_CARDINALITY
from tundish.loader.protocols.fluent import Fluent
from tundish.spec import ArraySpec, flatten, leaves_like, paths, same_structure, show_tree

if TYPE_CHECKING:
    import os


class SavingMethods(Fluent):
    """Methods of `Dataset` that write files at once, and read them."""

    def save(
        self,
        path: str | os.PathLike[str],
        compression: str | None = None,
        shard_func: Callable[..., Any] | None = None,
        checkpoint_args: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the elements to files now, for `load`.

        Parameters
        ----------
        path : path
            A folder; it is created if it does not exist. From now on `load` reads this dataset, even if an earlier
            one was saved in the same folder.
        compression : {None, "auto", "lz4", "zstd"}
            As for `snapshot`.
        shard_func : callable, optional
            As for `snapshot`.
        checkpoint_args : mapping, optional
            If given, the next call with the same pipeline continues a save that was stopped or killed; after a change,
            it begins anew. The contents are tf.data's and are ignored: the library decides how often it commits.

        Raises
        ------
        ValueError
            The dataset is endless.
        SnapshotError
            The files cannot be written; or, with `checkpoint_args`, another process is saving the same there.
        Exception
            The error of the first element that failed. Nothing is saved then.

        Notes
        -----
        This runs a `snapshot` to its end, each time in a new folder within `path`. Earlier ones stay, since
        another process may be reading them; `tundish snapshot gc`
        removes them. Elements keep their order, whatever `shard_func` returns.

        Examples
        --------
        >>> import tempfile
        >>> import tundish as td
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     td.Dataset.range(4).map(lambda x: x * x).save(folder)
        ...     [int(x) for x in td.Dataset.load(folder)]
        [0, 1, 4, 9]
        """
        if checkpoint_args is not None and not isinstance(checkpoint_args, Mapping):
            raise TypeError(
                "checkpoint_args must be a mapping or None, not "
                f"{type(checkpoint_args).__name__} ({checkpoint_args!r})"
            )
        if self.cardinality() == INFINITE_CARDINALITY:
            raise ValueError("save needs a finite dataset: use take(n)")
        checked, again = check_path("path", path), checkpoint_args is not None
        follows = newest(checked) if again else None
        if shard_func is not None:
            check_callable("shard_func", shard_func)
        kind = Snapshot if shard_func is None else SortedSnapshot
        # One that is not to be continued is another one each time.
        version = None if again else f"save {uuid.uuid4().hex}"
        keeping = Keeping(
            check_compression(compression), version, on_mismatch="any", follows=follows
        )
        kept = self._then(kind, checked, keeping, None, shard_func)
        keep_all(kept.iterator(), again=again)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        element_spec: Any = None,
        compression: str | None = None,
        reader_func: Callable[..., Any] | None = None,
        wait: bool = False,
    ) -> Self:
        """Read what `save` wrote, or the newest complete `snapshot` in a folder.

        Parameters
        ----------
        path : path
            The folder.
        element_spec : nest of ArraySpec, optional
            The required spec of the elements. It is not needed, since the files contain it.
        compression : str, optional
            Accepted as in tf.data, and ignored: the files say how they are compressed.
        reader_func : callable, optional
            As for `snapshot`: makes a dataset of a dataset of datasets. By default elements come in
            the order in which they were written.
        wait : bool
            True to wait until another process has written something complete.

        Returns
        -------
        Dataset
            The saved elements, with random access unless `reader_func` is given. It keeps reading what it
            found, even if something newer is saved.

        Raises
        ------
        MissingSnapshotError
            The folder contains nothing complete. This is an `IncompleteSnapshotError` and also a FileNotFoundError.
        SnapshotError
            The files are damaged, or were written by a later version of this library.
        SpecError
            The elements do not fit `element_spec`.

        Notes
        -----
        In tf.data the default order is that of several files read in turn, so it depends on the machine's number
        of cores.

        Examples
        --------
        >>> import tempfile
        >>> import tundish as td
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     td.Dataset.range(100).save(folder)
        ...     ds = td.Dataset.load(folder)
        ...     len(ds), int(ds[7]), ds.element_spec
        (100, 7, ArraySpec(shape=(), dtype=int64))
        """
        checked = check_path("path", path)
        check_compression(compression)
        check_flag("wait", wait)
        if reader_func is not None:
            check_callable("reader_func", reader_func)
        node = find(checked, wait=wait)
        make: Any = cls
        found = cls._of(node) if reader_func is None else read_by(reader_func, make, node)
        if element_spec is not None:
            check_spec(checked, element_spec, found.element_spec)
        return found


def check_spec(path: str, asked: Any, found: Any) -> None:
    """Check elements' spec against the expected one, in which a size of None is any size."""
    (wanted, tree), (_, stored) = flatten(asked), flatten(found)
    if not same_structure(tree, stored):
        raise SpecError(
            f"{path}: element_spec has the structure {show_tree(tree)} (* is an array), and the "
            f"files have {show_tree(stored)}"
        )
    for name, one, other in zip(paths(tree), wanted, leaves_like(found, tree), strict=True):
        fits = isinstance(one, ArraySpec) and one.dtype == other.dtype and _includes(one, other)
        if not fits:
            raise SpecError(
                f"{path}: element_spec says {one} of {name or 'the element'}, but the files "
                f"have {other}"
            )


def _includes(wide: ArraySpec, narrow: ArraySpec) -> bool:
    if wide.shape is None or narrow.shape is None:
        return wide.shape is None
    return len(wide.shape) == len(narrow.shape) and all(
        want is None or want == have for want, have in zip(wide.shape, narrow.shape, strict=True)
    )


def newest(path: str) -> str:
    """Return the key of the newest complete snapshot in a folder; "" if there is none."""
    # pyarrow takes a while to load, and few iterators need it.
    from tundish.snapshot.catalog import Catalog  # noqa: PLC0415 - see above

    return Catalog(path).newest() or ""


def keep_all(iterator: Any, *, again: bool) -> None:
    """Run an iterator of a snapshot to its end.

    Parameters
    ----------
    iterator : Iterator
        An iterator of a dataset whose last operator is a snapshot.
    again : bool
        True to keep what was written for another attempt, if it fails.

    Raises
    ------
    SnapshotError
        Another process is writing it.
    Exception
        The first element that failed.
    """
    from tundish.snapshot.catalog import Catalog  # noqa: PLC0415 - as above

    at = iterator.stats.snapshots[-1]
    catalog = Catalog(at.path)
    try:
        with iterator:
            _run(iterator)
    except BaseException:
        if not again:
            catalog.store.remove_tree(at.key)
        raise
    if at.doing == "pass":
        raise SnapshotError(
            f"{at.path}: another process is saving the same dataset there; wait for it, or save to "
            "another path"
        )


def _run(iterator: Any) -> None:
    try:
        for _ in iterator:
            pass
    except Exception as error:
        # A failed element is not stored as an error: it is computed again later.
        for recorder in iterator._engine.context.recorders:  # noqa: SLF001 - ours
            recorder.give_up(error)
        raise
