"""Snapshots whose ranges are written by several processes and joined at the end.

Each range is a run of its own, with ``part: [i, n]`` in its header and, once it is complete, a
manifest of its own beside its index. They become one snapshot when a manifest over all of
them, in the order of the ranges, is published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING

import pyarrow as pa

from tundish.errors import SnapshotError, SpecError
from tundish.snapshot.encoding.forms import Form
from tundish.snapshot.manifest import Manifest
from tundish.spec import paths, same_structure, show_tree

if TYPE_CHECKING:
    from tundish.snapshot.catalog import Catalog
    from tundish.snapshot.frame import JSON
    from tundish.snapshot.run import Prefix


@dataclass(frozen=True)
class Part:
    """The state of one range.

    Parameters
    ----------
    index, count : int
        The number of the range, and how many ranges there are.
    prefix : Prefix or None
        The longest run of it; None if there is none.
    manifest : Manifest or None
        Its manifest; None if it is not complete.
    problem : SnapshotError or None
        The problem of its manifest.
    """

    index: int
    count: int
    prefix: Prefix | None = None
    manifest: Manifest | None = None
    problem: SnapshotError | None = None

    @property
    def rows(self) -> int:
        """The number of durable elements."""
        return 0 if self.prefix is None else self.prefix.next


def part_manifest(catalog: Catalog, key: str, run: str) -> Manifest | None:
    """Return the manifest of a run that is a part; None if it is not complete."""
    store, name = catalog.at(key), f"runs/{run}/manifest.json"
    try:
        data = store.read(name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Manifest.from_bytes(data, store.shown(name)) if data else None


def numbers_of_parts(catalog: Catalog, key: str) -> dict[int, str]:
    """Return the numbers of ranges into which runs divide a key, with the time at which the latest such run was begun."""
    found: dict[int, str] = {}
    for prefix in catalog.prefixes(key):
        if prefix.header.part is not None:
            count = prefix.header.part[1]
            found[count] = max(found.get(count, ""), prefix.header.created)
    return found


def parts_of(catalog: Catalog, key: str, count: int) -> list[Part]:
    """Return the state of each of `count` ranges, in order."""
    best: dict[int, Part] = {}
    for prefix in catalog.prefixes(key):
        part = prefix.header.part
        if part is None or part[1] != count:
            continue
        manifest, problem = None, prefix.problem
        try:
            manifest = part_manifest(catalog, key, prefix.run)
        except SnapshotError as error:
            problem = error
        found = Part(part[0], count, prefix, manifest, problem)
        if _rank(found) > _rank(best.get(part[0])):
            best[part[0]] = found
    return [best.get(index, Part(index, count)) for index in range(count)]


def _rank(part: Part | None) -> tuple[bool, int, str]:
    """Return what decides between runs of one range: of two complete ones the later is of the files as they are now."""
    if part is None or part.prefix is None:
        return False, -1, ""
    return part.manifest is not None, part.rows, part.prefix.header.created


def joined(parts: Sequence[Part]) -> Manifest:
    """Return the manifest over all ranges, which must be complete.

    Raises
    ------
    SnapshotError
        They do not belong together: their random seeds differ, or their elements differ in more than shapes.
    """
    manifests = [part.manifest for part in parts if part.manifest is not None]
    assert len(manifests) == len(parts)
    first = manifests[0]
    for part, manifest in zip(parts, manifests, strict=True):
        if manifest.content != first.content:
            raise SnapshotError(
                f"shards 0 and {part.index} of {part.count} were made with different random seeds "
                f"({first.content}, {manifest.content}): make one of them again"
            )
    _check_alike(parts)
    specs = [manifest.element_spec for manifest in manifests if manifest.rows]
    return Manifest(
        key=first.key,
        content=first.content,
        runs=tuple(run for manifest in manifests for run in manifest.runs),
        rows=sum(manifest.rows for manifest in manifests),
        bytes=sum(manifest.bytes for manifest in manifests),
        compression=next((m.compression for m in manifests if m.compression), None),
        user_shards=any(manifest.user_shards for manifest in manifests),
        element_spec=specs[0] if specs and all(spec == specs[0] for spec in specs) else None,
        marks=_marks([manifest.marks for manifest in manifests]),
        # If machines have different times for the files, later changes cannot be recognised.
        inputs=first.inputs if all(each.inputs == first.inputs for each in manifests) else (),
        created=datetime.now(UTC).isoformat(timespec="microseconds"),
        library=version("tundish"),
    )


def _marks(several: Sequence[Mapping[str, JSON]]) -> dict[str, JSON]:
    """Add up counts; a mark that holds for one part holds for all."""
    found: dict[str, JSON] = {}
    for marks in several:
        for name, mark in marks.items():
            before = found.get(name, False)
            found[name] = before or mark if isinstance(mark, bool) else before + mark
    return found


def _check_alike(parts: Sequence[Part]) -> None:
    """Raise if the parts' elements could not be in one snapshot."""
    known: tuple[int, Form] | None = None
    for part in parts:
        assert part.prefix is not None
        for data in part.prefix.forms:
            form = Form.from_schema(pa.ipc.read_schema(pa.py_buffer(data)))
            if known is None:
                known = part.index, form
                continue
            try:
                known = known[0], _wider(known[1], form)
            except SpecError as problem:
                raise SnapshotError(
                    f"the elements of shards {known[0]} and {part.index} of {part.count} cannot be in one "
                    f"snapshot: {problem}"
                ) from None


def _wider(form: Form, other: Form) -> Form:
    """Return a form for the elements of both; raise SpecError if there is none."""
    if not same_structure(form.tree, other.tree):
        raise SpecError(f"the structures are {show_tree(form.tree)} and {show_tree(other.tree)}")
    by_path = dict(zip(paths(other.tree), other.kinds, strict=True))
    kinds = []
    for path, kind in zip(paths(form.tree), form.kinds, strict=True):
        wider = kind.joined(by_path[path])
        if wider is None:
            raise SpecError(f"{path or 'they'} are {kind} and {by_path[path]}")
        kinds.append(wider)
    return Form(form.tree, tuple(kinds))
