"""Complete snapshots as sources: for `load`, and for the shards given to a `reader_func`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tundish.errors import MissingSnapshotError
from tundish.loader.operators.counting import Range
from tundish.loader.operators.stored import Found, Stored, shard_indices
from tundish.loader.protocols.operator import Operator, Unary
from tundish.loader.protocols.refs import array_of
from tundish.spec import ArraySpec, unflatten

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.operators.snapshot import SnapshotDatasetClass
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Spec
    from tundish.loader.protocols.refs import Positions, Refs

_FIRST_LOOK_S, _LOOK_S = 0.01, 1.0


@dataclass(frozen=True, eq=False)
class Load(Stored):
    """A complete snapshot found by its folder, as a source."""

    content: str = ""
    element_spec: Any = None

    op = "load"
    awaited = False

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return ()

    @property
    def parallel(self) -> int | None:
        return None

    def arguments(self) -> dict[str, Any]:
        # The data count, and not the folder that they are in.
        return {"content": self.content, "rows": self.found.rows}

    def params(self) -> dict[str, Any]:
        return self.arguments()

    def spec(self, below: Spec) -> Any:
        return self.element_spec


@dataclass(frozen=True, eq=False)
class Dealt(Unary):
    """The elements in one user shard of a complete snapshot."""

    up: Stored
    number: int
    count: int

    op = "user_shard"
    choosing = passes = True

    @property
    def cardinality(self) -> int:
        return self.count

    def refs_at(self, where: Positions, pass_: int, context: Context) -> Refs:
        dealt = shard_indices(self.up.found)[self.number]
        return self.up.refs_at(dealt[array_of(where)], pass_, context)


def found_node(found: Found, content: str = "", spec: Any = None) -> Load:
    """Return a complete snapshot as a source."""
    return Load(Range(0, 0, 1), found.path, found=found, content=content, element_spec=spec)


def read_by(reader_func: Callable[..., Any], make: type[SnapshotDatasetClass], node: Load) -> Any:
    """Return the dataset that a `reader_func` makes from a complete snapshot.

    Parameters
    ----------
    reader_func : callable
        Called with a dataset of datasets, one for each user shard.
    make : type
        The class `Dataset`.
    node : Load
        The snapshot.
    """
    shards = shard_indices(node.found) if node.found.rows else ()
    nodes: list[Operator] = [
        Dealt(node, number, len(indices)) for number, indices in enumerate(shards)
    ]
    made = reader_func(make.from_list([make._of(part) for part in nodes or [node]]))  # noqa: SLF001 - ours
    if not isinstance(made, make):
        raise TypeError(f"reader_func must return a Dataset, not {type(made).__name__} ({made!r})")
    return made


def find(path: str, *, wait: bool) -> Load:
    """Return the newest complete snapshot under a path, as a source.

    Parameters
    ----------
    path : str
        The folder.
    wait : bool
        True to wait until there is a complete snapshot.

    Raises
    ------
    MissingSnapshotError
        There is no complete snapshot, and `wait` is False.
    """
    # pyarrow takes a while to load, and only these functions need it.
    from tundish.snapshot.catalog import Catalog  # noqa: PLC0415 - see above

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


def _nothing(catalog: Any) -> str:
    keys = catalog.keys()
    if not keys:
        return "nothing was saved there; call Dataset.save first, or pass wait=True to wait for it"
    for key in keys:
        _, error = catalog.examine(key)
        if error is not None:
            raise error
    return "no complete snapshot is there; run the pipeline to its end, or pass wait=True if another process does"


def look(path: str, key: str, verify: str) -> Found | None:
    """Return the complete snapshot under a key; None if there is none."""
    from tundish.snapshot.catalog import Catalog  # noqa: PLC0415 - as above
    from tundish.snapshot.reading.reader import open_reader  # noqa: PLC0415 - as above

    manifest = Catalog(path).manifest(key)
    if manifest is None:
        return None
    runs = tuple([run.run for run in manifest.runs])
    upto = tuple([run.journal + 1 for run in manifest.runs])
    reader = open_reader(path, key, runs=runs, upto=upto, verify=verify)
    return Found(
        path,
        key,
        runs,
        upto,
        len(reader),
        reader.mapped,
        reader.uniform,
        not reader.errors,
        verify,
        manifest.content if manifest.content != key else None,
    )


def stored_spec(found: Found) -> Any:
    """Return the spec of a complete snapshot's elements; None if the files do not determine it."""
    forms = found.reader.forms
    if not forms or any(form.tree != forms[0].tree for form in forms):
        return None
    leaves = []
    for kinds in zip(*[form.kinds for form in forms], strict=True):
        kind = kinds[0]
        for other in kinds[1:]:
            kind = None if kind is None else kind.joined(other)
        leaves.append(_leaf(kind))
    return None if None in leaves else unflatten(forms[0].tree, leaves)


def _leaf(kind: Any) -> ArraySpec | None:
    from tundish.snapshot.encoding.kinds import (  # noqa: PLC0415 - as above
        Fixed,
        Objects,
        Text,
        Varying,
    )

    if isinstance(kind, Fixed):
        return ArraySpec(kind.shape, object if kind.dtype.hasobject else kind.dtype)
    if isinstance(kind, Varying):
        return ArraySpec((None,) * kind.ndim, kind.dtype)
    if isinstance(kind, Text):
        return ArraySpec((), str if kind.type == "str" else bytes)
    if isinstance(kind, Objects):
        return ArraySpec((None,) * kind.ndim, object)
    return None
