"""``tundish snapshot info|verify|gc|compact|export``: what `tundish.snapshot.upkeep` does, as text or as one JSON object a line."""

from __future__ import annotations

import dataclasses
import json
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tundish.cli.snapshot import DONE, INCOMPLETE, USAGE, Refusal
from tundish.cli.snapshot.log import amount
from tundish.cli.terminal import bold, dim, good, say, table, warn
from tundish.snapshot import upkeep
from tundish.snapshot.catalog import Catalog
from tundish.snapshot.manifest import RunOutcome

if TYPE_CHECKING:
    from tundish.snapshot.upkeep.information import KeyInfo, RunInfo


def show(as_json: bool, text: str, **fields: Any) -> None:
    """Print a text, or what it says as an object."""
    say(json.dumps(fields) if as_json else text)


def open_catalog(path: str) -> Catalog:
    """Return the catalog of the snapshots under a path.

    Raises
    ------
    Refusal
        Nothing does.
    """
    local = "://" not in path and "::" not in path
    if local and not Path(path).expanduser().is_dir():
        raise Refusal(USAGE, f"{path}: there is no such folder")
    catalog = Catalog(path)
    if not catalog.keys():
        raise Refusal(USAGE, f"{path}: no snapshot is here")
    return catalog


def key_of(catalog: Catalog, key: str | None) -> str:
    """The requested pipeline: by default the one completed last, or the only one.

    Raises
    ------
    Refusal
        There is none, or it is not clear which one is meant.
    """
    keys = catalog.keys()
    if key is not None:
        found = [each for each in keys if each.startswith(key)]
        if len(found) != 1:
            raise Refusal(USAGE, f"there is no key {key} here; there are {', '.join(keys)}")
        return found[0]
    newest = catalog.newest()
    if newest is not None:
        return newest
    if len(keys) == 1:
        return keys[0]
    raise Refusal(USAGE, f"none is complete here; choose one with --key: {', '.join(keys)}")


def info(path: str, key: str | None = None, *, as_json: bool = False) -> int:
    """Print the snapshots under a path; return the exit status, which is not 0 if one of them is damaged."""
    catalog = open_catalog(path)
    found = upkeep.info(path)
    chosen = None if key is None else key_of(catalog, key)
    keys = [each for each in found.keys if chosen in (None, each.key)]
    if as_json:
        for each in keys:
            show(True, "", **_fields(each))
    else:
        say(
            f"{path}: {len(keys)} pipeline{'s' * (len(keys) != 1)}, {amount(sum(k.disk_bytes for k in keys))} on disk"
        )
        say()
        head = ["key", "state", "elements", "bytes", "files", "compression", "since"]
        table([head, *map(_row, keys)], right=(2, 3, 4))
        for each in keys:
            _show_details(each, alone=len(keys) == 1)
    return INCOMPLETE if any(each.problem for each in keys) else DONE


def _row(key: KeyInfo) -> list[str]:
    files = sum(run.shards for run in key.runs if run.complete) or sum(r.shards for r in key.runs)
    state, rows, nbytes = key.outcome.name.lower().replace("_", " "), key.rows, key.bytes
    parts = _parts(key)
    if parts:
        done = sum(run.outcome is RunOutcome.FINISHED for run in parts)
        state = f"{done} of {max(run.part[1] for run in parts if run.part)} shards"
        rows, nbytes = sum(run.rows for run in parts), sum(run.bytes for run in parts)
    return [
        key.key + (" *" if key.newest else ""),
        state,
        f"{rows:,}",
        amount(nbytes),
        f"{files:,}",
        key.compression or "none",
        key.created[:19].replace("T", " "),
    ]


def _parts(key: KeyInfo) -> list[RunInfo]:
    """The longest run of each shard, where they are not one snapshot yet."""
    longest: dict[tuple[int, int], RunInfo] = {}
    divided = [(run.created, run.part) for run in key.runs if run.part is not None]
    if divided and not any(run.complete for run in key.runs):
        _, (_, count) = max(divided)
        for run in sorted(key.runs, key=lambda run: run.rows):
            if run.part is not None and run.part[1] == count:
                longest[run.part] = run
    return list(longest.values())


def _told(run: RunInfo, told: str) -> str:
    """Return a run in one line, without a problem that has been printed before."""
    part = "" if run.part is None else f"shard {run.part[0]}/{run.part[1]}: "
    files = f"{run.shards:,} file{'s' * (run.shards != 1)}"
    what = "complete" if run.complete and not run.problem else run.outcome.value
    if run.beaten:
        what = "no longer needed: another run is the snapshot"
    elif run.part is not None and run.outcome is RunOutcome.FINISHED and what != "complete":
        what = "complete; `finalize` makes one snapshot of all shards"
    text = f"run {run.run[:8]}  {part}{run.rows:,} elements, {amount(run.bytes)} in {files}; {what}"
    text += f"; {run.writer} writes it" if run.writer else ""
    return text + (f"; {run.problem}" if run.problem and run.problem != told else "")


def _show_details(key: KeyInfo, *, alone: bool) -> None:
    """Show what the table does not say of a key, if there is anything."""
    runs = sorted(key.runs, key=lambda run: run.part or (0, 0))
    lines = [_told(run, key.problem) for run in runs if alone or not run.complete]
    marks = [name if mark is True else f"{mark} {name}" for name, mark in key.marks.items() if mark]
    if marks:
        lines.append(f"marks: {', '.join(marks)}")
    if not key.newest and key.differences:
        lines += [
            "how its pipeline differs from the newest:",
            *(f"  {d}" for d in key.differences),
        ]
    if key.problem or lines:
        say()
        say(bold(key.key))
    if key.problem:
        say(f"  {warn(key.problem)}")
    for line in lines:
        say(f"  {line}")


def verify(path: str, key: str | None = None, *, as_json: bool = False) -> int:
    """Read every byte; the exit status is 3 when something is not as it was written."""
    catalog = open_catalog(path)
    chosen = None if key is None else key_of(catalog, key)
    problems = upkeep.verify(path, key=chosen)
    for problem in problems:
        show(as_json, warn(str(problem)), event="problem", **_fields(problem))
    which = chosen or "everything here"
    text = (
        f"{path}: {len(problems)} problem(s)"
        if problems
        else good(f"{path}: {which} is as it was written")
    )
    show(as_json, text, event="finished", status=INCOMPLETE if problems else DONE)
    return INCOMPLETE if problems else DONE


def gc(
    path: str,
    *,
    older_than: float,
    keep: int | None = None,
    dry_run: bool = False,
    as_json: bool = False,
) -> int:
    """Remove files that are no longer needed, or list them."""
    open_catalog(path)
    found = upkeep.gc(path, older_than=older_than, keep=keep, dry_run=dry_run)
    if as_json:
        for one in found.removed:
            show(True, "", event="would remove" if dry_run else "removed", **_fields(one))
        show(True, "", event="finished", status=DONE, folders=len(found.removed), bytes=found.bytes)
        return DONE
    if found.removed:
        head = ["folder", "bytes", "why"]
        table(
            [head, *([one.name, amount(one.bytes), one.why] for one in found.removed)], right=(1,)
        )
        say()
    what = "would be removed" if dry_run else "removed"
    say(f"{path}: {amount(found.bytes)} in {len(found.removed)} folder(s) {what}")
    if older_than and not found.removed:
        say(dim("recent changes are kept: see --older-than"))
    return DONE


def compact(path: str, *, shard_bytes: int, key: str | None = None, as_json: bool = False) -> int:
    """Rewrite snapshots with larger files."""
    catalog = open_catalog(path)
    chosen = None if key is None else key_of(catalog, key)
    written = upkeep.compact(path, key=chosen, shard_bytes=shard_bytes)
    for one in written:
        text = f"{one.key}: {one.before:,} file(s) are {one.after:,} now, {amount(one.bytes)}"
        show(as_json, text, event="compacted", **_fields(one))
    if not as_json:
        say(
            f"the old files stay until `tundish snapshot gc {path}`"
            if written
            else f"{path}: already compact"
        )
    return DONE


def export(
    path: str,
    to: str,
    *,
    format: str = "parquet",  # noqa: A002 - as the option
    key: str | None = None,
    as_json: bool = False,
) -> int:
    """Copy a snapshot into a file that other tools know."""
    catalog = open_catalog(path)
    chosen = key_of(catalog, key)
    if catalog.manifest(chosen) is None:
        raise Refusal(INCOMPLETE, f"{path}: {chosen} is not complete, there is nothing to export")
    if not Path(to).absolute().parent.is_dir():
        raise Refusal(USAGE, f"{to}: there is no folder {Path(to).absolute().parent}")
    try:
        found = upkeep.export(path, to, format=format, key=chosen)
    except FileExistsError as error:
        raise Refusal(USAGE, str(error)) from error
    failed = f"; {found.failed:,} that had failed are not in it" if found.failed else ""
    text = f"{found.target}: {found.rows:,} elements, {amount(found.bytes)}{failed}"
    show(as_json, text, event="exported", **_fields(found))
    return DONE


def _fields(value: Any) -> dict[str, Any]:
    """A dataclass as an object of a JSON line."""
    found: Any = _plain(dataclasses.asdict(value))
    return dict(found)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value.name if isinstance(value, Enum) else value
