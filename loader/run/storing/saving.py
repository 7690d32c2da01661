"""A whole dataset written at once, and what was written found again by its folder."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

from tundish.errors import MissingSnapshotError, SnapshotError
from tundish.loader.operators.saving import found_node

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.operators.saving import Load
    from tundish.loader.operators.storing import DatasetClass

_FIRST_LOOK_S, _LOOK_S = 0.01, 1.0


def version_to_save(path: str, *, again: bool) -> str:
    """What a dataset that is saved is named after, so that it is the newest under its path.

    Parameters
    ----------
    path : str
        The folder.
    again : bool
        Whether one that was not written to its end is to be continued.
    """
    # pyarrow takes a while to load, and is needed by nobody else.
    from tundish.snapshot.catalog import Catalog  # noqa: PLC0415 - see above

    if not again:
        return f"save {uuid.uuid4().hex}"
    catalog = Catalog(path)
    complete = [key for key in catalog.keys() if catalog.manifest(key) is not None]  # noqa: SIM118 - no dict
    return f"save {len(complete)}"


def keep_all(iterator: Any, *, again: bool) -> None:
    """Run an iterator of a snapshot to its end.

    Parameters
    ----------
    iterator : Iterator
        Over a dataset whose last operator is a snapshot.
    again : bool
        Whether what was written is kept for another try, if it fails.

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
        # What failed is not to stand there as an error, but to be tried again.
        for recorder in iterator._engine.context.recorders:  # noqa: SLF001 - ours
            recorder.give_up(error)
        raise


def find(path: str, *, wait: bool) -> Load:
    """The newest complete snapshot under a path, as a source.

    Parameters
    ----------
    path : str
        The folder.
    wait : bool
        Whether to wait until there is one.

    Raises
    ------
    MissingSnapshotError
        There is none.
    """
    from tundish.loader.run.storing.looking import look  # noqa: PLC0415 - as above
    from tundish.loader.run.storing.specs import stored_spec  # noqa: PLC0415 - as above
    from tundish.snapshot.catalog import Catalog  # noqa: PLC0415 - as above

    catalog, pause = Catalog(path), _FIRST_LOOK_S
    while (key := catalog.newest()) is None:
        if not wait:
            raise MissingSnapshotError(path, _nothing(catalog))
        time.sleep(pause)
        pause = min(2 * pause, _LOOK_S)
    manifest = catalog.manifest(key)
    found = look(path, key, "batch")
    assert manifest is not None
    assert found is not None
    return found_node(found, manifest.content, stored_spec(found))


def found_dataset(
    make: type[DatasetClass], path: str, *, wait: bool, reader_func: Callable[..., Any] | None
) -> Any:
    """What `Dataset.load` finds under a path."""
    node = find(path, wait=wait)
    if reader_func is None:
        return make._of(node)  # noqa: SLF001 - ours
    from tundish.loader.run.storing.dealing import in_order_of  # noqa: PLC0415 - as above

    return in_order_of(reader_func, make, node)


def _nothing(catalog: Any) -> str:
    keys = catalog.keys()
    if not keys:
        return (
            "nothing was saved there; Dataset.save writes there, and wait=True waits until it has"
        )
    for key in keys:
        _, error = catalog.examine(key)
        if error is not None:
            raise error
    return (
        "nothing that stands there is complete; run the pipeline to its end, or give wait=True if "
        "another process does"
    )
