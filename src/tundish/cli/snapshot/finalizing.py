"""``tundish snapshot finalize``: one snapshot of the shards that several processes made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.cli.snapshot.exits import DONE, INCOMPLETE, USAGE, Refusal
from tundish.cli.snapshot.log import amount
from tundish.cli.snapshot.showing import key_of, open_catalog, show
from tundish.snapshot.parts import Part, joined, numbers_of_parts, parts_of

if TYPE_CHECKING:
    from tundish.snapshot.catalog import Catalog

__all__ = ["run"]


def run(path: str, of: int, key: str | None = None, *, as_json: bool = False) -> int:
    """Publish one manifest over the runs of all shards.

    Parameters
    ----------
    path : str
        Of the snapshot.
    of : int
        How many shards.
    key : str, optional
        Which pipeline's; by default the one whose shards were begun last.
    as_json : bool
        Print an object instead of text.

    Returns
    -------
    int
        The exit status: 3 when shards are missing or incomplete.
    """
    catalog = open_catalog(path)
    key = _key(catalog, of, key)
    manifest = catalog.manifest(key)
    if manifest is not None:
        told = f"{path} is complete already: {manifest.rows:,} elements (key {key})"
        show(as_json, told, event="complete", key=key, elements=manifest.rows, bytes=manifest.bytes)
        return DONE
    parts = parts_of(catalog, key, of)
    missing = [part for part in parts if part.manifest is None]
    if missing:
        _tell_missing(path, key, parts, missing, as_json=as_json)
        return INCOMPLETE
    manifest = joined(parts)
    if not catalog.publish(key, manifest):
        manifest = catalog.manifest(key) or manifest
    told = (
        f"{path} is complete: {manifest.rows:,} elements of {of} shards, {amount(manifest.bytes)} "
        f"(key {key})"
    )
    show(as_json, told, event="complete", key=key, elements=manifest.rows, bytes=manifest.bytes)
    return DONE


def _key(catalog: Catalog, of: int, key: str | None) -> str:
    """Which pipeline's shards are meant."""
    if key is not None:
        return key_of(catalog, key)
    keys = catalog.keys()
    divided = {each: numbers_of_parts(catalog, each) for each in keys}
    found = [(numbers[of], each) for each, numbers in divided.items() if of in numbers]
    if found:
        return max(found)[1]
    others = sorted({count for numbers in divided.values() for count in numbers})
    if others:
        shown = " or ".join(map(str, others))
        raise Refusal(USAGE, f"what stands here was divided into {shown} shards, not {of}")
    complete = catalog.newest()
    if complete is not None:
        return complete
    raise Refusal(
        INCOMPLETE,
        f"no shard is here: all of 0/{of} to {of - 1}/{of} are missing; make them with "
        "tundish snapshot write MODULE:FUNCTION PATH --shard I/N",
    )


def _tell_missing(
    path: str, key: str, parts: list[Part], missing: list[Part], *, as_json: bool
) -> None:
    commands = [
        part.prefix.header.options.get("command") for part in parts if part.prefix is not None
    ]
    start = next(filter(None, commands), f"tundish snapshot write MODULE:FUNCTION {path}")
    described: list[dict[str, Any]] = [
        {
            "shard": [part.index, part.count],
            "state": _state(part),
            "durable": part.rows,
            "problem": None if part.problem is None else str(part.problem),
            "command": f"{start} --shard {part.index}/{part.count}",
        }
        for part in missing
    ]
    lines = [f"{path} is incomplete: {len(missing)} of {len(parts)} shards (key {key})"]
    for one in described:
        state = one["state"]
        if state != "missing":
            state += f", {one['durable']:,} elements are durable"
        if one["problem"]:
            state += f"; {one['problem']}"
        lines += [f"  shard {one['shard'][0]}/{one['shard'][1]}: {state}", f"    {one['command']}"]
    show(as_json, "\n".join(lines), event="incomplete", key=key, missing=described)


def _state(part: Part) -> str:
    if part.prefix is None:
        return "missing"
    return "incomplete" if part.problem is None else "damaged"
