"""Snapshots made by several processes: the shard of each, and ``tundish snapshot finalize``, which joins them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tundish.cli.snapshot import DONE, INCOMPLETE, USAGE, Refusal
from tundish.cli.snapshot.log import amount
from tundish.cli.snapshot.upkeep import key_of, open_catalog, show
from tundish.snapshot.parts import Part, joined, numbers_of_parts, parts_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tundish.snapshot.catalog import Catalog

Shard = tuple[int, int]

_KNOWN = "SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX, RANK with WORLD_SIZE"


def shard_of(text: str, environ: Mapping[str, str], of: int | None = None) -> Shard:
    """The shard that ``--shard`` and ``--of`` name.

    Parameters
    ----------
    text : str
        ``i/n`` with i from 0, or ``auto``.
    environ : mapping
        The environment variables from which ``auto`` is read.
    of : int, optional
        The number of shards, for ``auto``.

    Returns
    -------
    (int, int)
        The number of the shard, and the number of shards.

    Raises
    ------
    Refusal
        There is no such shard, or the environment does not name one.

    Examples
    --------
    >>> shard_of("3/8", {})
    (3, 8)
    >>> shard_of("auto", {"RANK": "1", "WORLD_SIZE": "4"})
    (1, 4)
    """
    if text != "auto":
        return _given(text, of)
    found = [
        (name, shard)
        for name, read in (
            ("SLURM_ARRAY_TASK_ID", _slurm_array),
            ("JOB_COMPLETION_INDEX", _indexed_job),
            ("RANK", _rank),
        )
        if name in environ and (shard := read(environ, of)) is not None
    ]
    if not found:
        raise Refusal(
            USAGE,
            f"--shard auto found none of {_KNOWN} in the environment: give --shard I/N yourself",
        )
    if len(found) > 1:
        said = ", ".join(f"{name} is shard {i}/{n}" for name, (i, n) in found)
        raise Refusal(
            USAGE,
            f"--shard auto found more than one answer ({said}): two processes could make the same "
            "shard; give --shard I/N yourself",
        )
    return found[0][1]


def _given(text: str, of: int | None) -> Shard:
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None:
        raise Refusal(USAGE, f"--shard must be I/N, such as 0/8, or 'auto', not {text!r}")
    index, count = int(match[1]), int(match[2])
    if of is not None and of != count:
        raise Refusal(USAGE, f"--shard {text} and --of {of} contradict each other")
    return _within(f"--shard {text}", index, count)


def _within(what: str, index: int, count: int) -> Shard:
    if not 0 <= index < count:
        allowed = f"from 0/{count} to {count - 1}/{count}" if count > 0 else "of at least one"
        raise Refusal(USAGE, f"{what} is not a shard: they are numbered {allowed}")
    return index, count


def _slurm_array(environ: Mapping[str, str], of: int | None) -> Shard:
    task = _number(environ, "SLURM_ARRAY_TASK_ID")
    if of is not None:
        # The array may be any of the shards again (--array=3,7), so its own count says nothing.
        return _within(f"SLURM_ARRAY_TASK_ID={task} with --of {of}", task, of)
    count = _number(environ, "SLURM_ARRAY_TASK_COUNT")
    first = _number(environ, "SLURM_ARRAY_TASK_MIN", 0)
    last = _number(environ, "SLURM_ARRAY_TASK_MAX", first + count - 1)
    step = max(1, _number(environ, "SLURM_ARRAY_TASK_STEP", 1))
    if last - first != (count - 1) * step or (task - first) % step:
        raise Refusal(
            USAGE,
            f"the tasks of this array are not evenly spaced ({count} from {first} to {last}), so "
            "its numbers do not say which shard a task is: add --of N, which takes the task's "
            "number as the shard's, from 0",
        )
    return _within(f"SLURM_ARRAY_TASK_ID={task}", (task - first) // step, count)


def _indexed_job(environ: Mapping[str, str], of: int | None) -> Shard:
    index = _number(environ, "JOB_COMPLETION_INDEX")
    if of is None and "JOB_COMPLETIONS" not in environ:
        raise Refusal(
            USAGE,
            "JOB_COMPLETION_INDEX says which shard this is, and nothing says of how many: add "
            "--of N, with the job's .spec.completions",
        )
    count = _number(environ, "JOB_COMPLETIONS", of or 0)
    return _within(f"JOB_COMPLETION_INDEX={index}", index, _agreed("JOB_COMPLETIONS", count, of))


def _rank(environ: Mapping[str, str], of: int | None) -> Shard | None:
    index, count = _number(environ, "RANK"), _number(environ, "WORLD_SIZE", of)
    if (index, count) == (0, 1) and (
        {"SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"} & set(environ)
    ):
        return None  # one process a task: the array is what divides
    return _within(f"RANK={index}", index, _agreed("WORLD_SIZE", count, of))


def _agreed(name: str, count: int, of: int | None) -> int:
    if of is not None and of != count:
        raise Refusal(USAGE, f"{name}={count} and --of {of} contradict each other")
    return count


def _number(environ: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environ.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        what = "is not set" if text is None else f"is {text!r}, not a number"
        raise Refusal(USAGE, f"--shard auto: {name} {what}; give --shard I/N yourself") from None


def run(path: str, of: int, key: str | None = None, *, as_json: bool = False) -> int:
    """Publish one manifest over the runs of all shards.

    Parameters
    ----------
    path : str
        The folder of the snapshot.
    of : int
        The number of shards.
    key : str, optional
        The key of the pipeline; by default the one with the newest shards.
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
    """Return the key of the pipeline whose shards are meant."""
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
        raise Refusal(USAGE, f"the pipeline here was divided into {shown} shards, not {of}")
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
