"""``tundish snapshot write``: make the elements of a pipeline and keep them in files."""

from __future__ import annotations

import os
import shlex
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tundish.cli.snapshot import (
    BAD_RECORDS,
    DONE,
    HELD,
    USAGE,
    Refusal,
)
from tundish.cli.snapshot.alone import run_alone
from tundish.cli.snapshot.badrecords import BadRecords
from tundish.cli.snapshot.estimate import Estimate, Room, check_space, take_sample
from tundish.cli.snapshot.log import JsonLog, Log, amount, duration, make_log
from tundish.cli.snapshot.pipeline import KeptPipeline, pipeline_of
from tundish.cli.snapshot.pulling import Leaving, Pull
from tundish.cli.snapshot.shards import shard_of
from tundish.cli.terminal import table
from tundish.loader.operators.options import options_of
from tundish.loader.plan.node import AUTOTUNE, global_seed, walk
from tundish.loader.run.iterator import Iterator
from tundish.loader.run.parallelism import parallelism_of
from tundish.loader.run.storing.resolve import described
from tundish.loader.run.storing.telling import say_touched
from tundish.snapshot.catalog import Catalog
from tundish.snapshot.fingerprint.differences import written
from tundish.snapshot.lease import holder_of, lease_name
from tundish.snapshot.parts import part_manifest

if TYPE_CHECKING:
    from tundish.loader.watch.stats import SnapshotStats
    from tundish.snapshot.run import Prefix


def run(
    target: str,
    path: str,
    *,
    workers: int | None = None,
    shard: str | None = None,
    of: int | None = None,
    estimate: bool = False,
    no_space_check: bool = False,
    max_errors: int = 0,
    bad_records: str | None = None,
    only_element: str | None = None,
    pdb: bool = False,
    as_json: bool = False,
    on: str | None = None,
    parts: int | None = None,
    address: str | None = None,
    **keeping: Any,
) -> int:
    """Make and keep the elements of a pipeline.

    Parameters
    ----------
    target, path : str
        ``MODULE:FUNCTION``, and where to.
    workers : int, optional
        The number of processes.
    shard : str, optional
        ``i/n`` or ``auto``: only that range.
    of : int, optional
        For ``auto``.
    estimate : bool
        Only say how large it will be and how long it will take.
    no_space_check : bool
        Begin, though it may not fit.
    max_errors : int
        The number of elements that may fail.
    bad_records : str, optional
        A file for those.
    only_element : str, optional
        Run one element again, and write nothing.
    pdb : bool
        Stop where it fails.
    as_json : bool
        Log in JSON lines.
    on : {"ray"}, optional
        All shards, each in a task of a cluster.
    parts : int, optional
        For `on`: how many shards.
    address : str, optional
        For `on`: of the cluster.
    **keeping
        Arguments of `Dataset.snapshot`.

    Returns
    -------
    int
        The exit status.
    """
    if of is not None and shard is None:
        raise Refusal(USAGE, "--of belongs to --shard auto")
    if pdb and only_element is None:
        raise Refusal(USAGE, "--pdb belongs to --only-element")
    if on is None and (parts is not None or address is not None):
        raise Refusal(USAGE, "--parts and --address belong to --on ray")
    _check_path(path)
    if on is not None:
        for name, asked in (
            ("shard", shard),
            ("only-element", only_element),
            ("estimate", estimate),
        ):
            if asked:
                raise Refusal(
                    USAGE, f"--{name} and --on contradict each other: with it a shard is made here"
                )
        work = {
            "no_space_check": no_space_check,
            "max_errors": max_errors,
            "bad_records": bad_records,
        }
        # Ray is imported only if it is requested.
        onray = import_module("tundish.cli.snapshot.onray")
        status: int = onray.run(
            target, path, parts, address, workers=workers, as_json=as_json, keeping=keeping, **work
        )
        return status
    part = None if shard is None else shard_of(shard, os.environ, of)
    more = ("--max-errors", str(max_errors)) if max_errors else ()
    pipeline = pipeline_of(target, path, part, more=more, **keeping)
    if only_element is not None:
        return run_alone(pipeline, only_element, debug=pdb)
    log = make_log(as_json=as_json)
    job = WriteCall(
        pipeline, log, workers, max_errors, bad_records, checks_space=not no_space_check
    )
    if estimate:
        return job.estimate()
    return job.write()


def _check_path(path: str) -> None:
    """Refuse a local path that cannot be written to, before anything is computed."""
    if "://" in path or "::" in path:
        return
    here = Path(path).expanduser().absolute()
    while not here.exists():
        here = here.parent
    if not here.is_dir():
        raise Refusal(USAGE, f"{path}: {here} is a file, not a folder")
    if not os.access(here, os.W_OK | os.X_OK):
        raise Refusal(USAGE, f"{path}: {here} may not be written to")


class WriteCall:
    """One call of the command.

    Parameters
    ----------
    pipeline : KeptPipeline
        The pipeline whose elements are kept.
    log : Log
        The log to which progress is reported.
    workers : int or None
        How many processes were asked for.
    max_errors : int
        The number of elements that may fail.
    bad_records : str or None
        A file for those.
    checks_space : bool
        Whether to refuse what will not fit.
    """

    def __init__(
        self,
        pipeline: KeptPipeline,
        log: Log,
        workers: int | None,
        max_errors: int,
        bad_records: str | None,
        *,
        checks_space: bool,
    ) -> None:
        self._pipeline, self._log, self._checks_space = pipeline, log, checks_space
        self._max_errors, self._bad_records = max_errors, bad_records
        self._catalog = Catalog(pipeline.path)
        self._workers = _how_many(pipeline, workers)
        keeping = pipeline.node.keeping
        self._compression = keeping.compression
        if self._compression == "auto":
            self._compression = None if self._catalog.store.local else "lz4"

    # -- before -----------------------------------------------------------------------------------

    def estimate(self) -> int:
        """Say how large it will be, how long it will take, and whether it fits."""
        found = self._sampled()
        free = self._catalog.store.free_bytes()
        durable = self._durable()
        if isinstance(self._log, JsonLog):
            self._log.estimate(**found.to_json(), free=free)
        else:
            rows = [*found.rows(), ["free", "unknown" if free is None else amount(free)]]
            if durable is not None and durable.next:
                rows.insert(1, ["there", f"{durable.next:,} elements, {amount(durable.bytes)}"])
            table([["", f"{self._pipeline.target} in {self._pipeline.path}"], *rows])
        if found.bytes is not None:
            there = 0 if durable is None else durable.bytes
            left = max(0, found.bytes - there)
            check_space(
                self._pipeline.path, left, free, f"as a sample of {found.sample.elements:,} says"
            )
        return DONE

    def _sampled(self) -> Estimate:
        pipeline = self._pipeline
        sample, total, exact = take_sample(
            pipeline.upstream,
            workers=self._workers,
            base_seed=pipeline.base_seed,
            compression=self._compression,
        )
        return Estimate(sample, total, exact, pipeline.node.keeping.shard_bytes, self._workers)

    def _room(self, durable: Prefix | None) -> Room:
        """Refuse what cannot fit, as far as it is known how many elements there are."""
        path, total = self._pipeline.path, _known(self._pipeline.upstream.cardinality)
        free = self._catalog.store.free_bytes
        done = 0 if durable is None else durable.next
        left = None if total is None or not self._checks_space else max(0, total - done)
        if left and done and durable is not None:
            need = left * durable.bytes // done
            check_space(path, need, free(), f"{done:,} take {amount(durable.bytes)}")
        return Room(path, free, left or None, self._compression)

    def _durable(self) -> Prefix | None:
        """The run that will be continued: one with the same random numbers, if there are any."""
        pipeline = self._pipeline
        fixed = pipeline.random and (pipeline.part is not None or global_seed() is not None)
        seeds = pipeline.seeds if fixed else None
        inputs = written(described(pipeline.node)[1])
        found = self._catalog.best_run(pipeline.key, seeds, pipeline.part, inputs=inputs)
        drawn = None if found is None else found.header.seeds.get("graph_seed")
        return None if pipeline.random and drawn != global_seed() else found

    # -- the work ---------------------------------------------------------------------------------

    def write(self) -> int:
        """Compute and keep all elements, or those that are not kept yet."""
        pipeline, log = self._pipeline, self._log
        began = time.monotonic()
        durable = self._durable()
        if self._is_complete(durable):
            return self._complete_already(durable, began)
        room = self._room(durable)
        stored = {} if durable is None else durable.errors
        if len(stored) > self._max_errors:
            raise Refusal(BAD_RECORDS, self._too_many(len(stored), durable.next if durable else 0))
        with Leaving() as leaving, self._iterator(durable) as elements:
            seen = self._seen(elements)
            if durable is not None and seen.durable < durable.next:
                raise Refusal(HELD, f"{self._what()} was changed by another process just now")
            at = 0 if durable is None else durable.next
            bad = BadRecords(pipeline, self._bad_records, stored, pipeline.moved)
            total = _known(pipeline.upstream.cardinality)
            log.started(
                target=pipeline.target,
                path=pipeline.path,
                key=pipeline.key,
                run=seen.run,
                shard=pipeline.part,
                elements=total,
                durable=at,
                workers=self._workers,
            )
            pull = Pull(elements, log, bad, self._max_errors, room, at, total)
            try:
                status = pull.run(leaving)
            finally:
                bad.close()
            return self._told(status, pull.seen, bad, began)

    # -- around -----------------------------------------------------------------------------------

    def _iterator(self, durable: Prefix | None) -> Iterator:
        """Return an iterator of the elements after the durable ones, which need not be read again."""
        pipeline, position = self._pipeline, None
        seed = pipeline.base_seed
        if durable is not None and durable.next:
            seed, position = durable.header.seeds.get("seed", seed), {"n": durable.next}
        return Iterator(pipeline.node, workers=self._workers, base_seed=seed, position=position)

    def _seen(self, elements: Iterator) -> SnapshotStats:
        """Return how far the snapshot is; refuse if nothing is written, since another process writes."""
        seen = elements.stats.snapshots[-1]
        if seen.doing != "pass":
            return seen
        pipeline = self._pipeline
        holder = holder_of(self._catalog.store, lease_name(pipeline.key, pipeline.part))
        who = "another process" if holder is None else str(holder)
        raise Refusal(
            HELD, f"{who} is writing {self._what()} (key {pipeline.key}): nothing was written here"
        )

    def _is_complete(self, durable: Prefix | None) -> bool:
        key = self._pipeline.key
        if self._catalog.manifest(key) is not None:
            return True
        if self._pipeline.part is None or durable is None:
            return False
        return part_manifest(self._catalog, key, durable.run) is not None

    def _complete_already(self, durable: Prefix | None, began: float) -> int:
        """Report the snapshot that is complete already; nothing is computed."""
        say_touched(self._pipeline.node, *described(self._pipeline.node))
        manifest = self._catalog.manifest(self._pipeline.key)
        rows = manifest.rows if manifest is not None else durable.next if durable else 0
        text = f"{self._what()} is complete already: {rows:,} elements"
        return self._finished(DONE, text, began, elements=rows)

    def _what(self) -> str:
        part = self._pipeline.part
        return (
            self._pipeline.path
            if part is None
            else f"shard {part[0]}/{part[1]} of {self._pipeline.path}"
        )

    def _told(self, status: int, seen: SnapshotStats, bad: BadRecords, began: float) -> int:
        """Say how it ended."""
        failed = f", {bad.count:,} of them failed" if bad.count else ""
        if status == BAD_RECORDS:
            text = self._too_many(bad.count, seen.durable)
        elif status != DONE:
            text = f"{seen.durable:,} elements are durable{failed}; the same command continues"
        else:
            text = f"{self._what()} is complete: {seen.durable:,} elements{failed}"
        return self._finished(
            status, text, began, elements=seen.durable, errors=bad.count, bytes=seen.nbytes
        )

    def _too_many(self, failed: int, durable: int) -> str:
        return (
            f"more elements failed ({failed:,}) than --max-errors {self._max_errors} allows; the "
            f"first {durable:,} elements are durable, and the same command continues after them"
        )

    def _finished(self, status: int, text: str, began: float, **fields: Any) -> int:
        seconds, part = time.monotonic() - began, self._pipeline.part
        if status == DONE:
            wrote = f"{amount(fields['bytes'])} in " if fields.get("bytes") else ""
            text += f" (key {self._pipeline.key}, {wrote}{duration(seconds)})"
            if part is not None:
                path = shlex.quote(self._pipeline.path)
                text += f"\nwhen all are: tundish snapshot finalize {path} --of {part[1]}"
        fields["seconds"] = round(seconds, 3)
        self._log.finished(status, text, key=self._pipeline.key, shard=part, **fields)
        return status


def _how_many(pipeline: KeptPipeline, asked: int | None) -> int:
    """Return the number of workers: as requested, else that of the pipeline, else one per core."""
    node = pipeline.node
    options = options_of(node)
    quiet = options.asked_workers is None and not any(
        getattr(each, "parallel", None) is not None for each in walk(node)
    )
    return parallelism_of(node, options, AUTOTUNE if asked is None and quiet else asked).workers


def _known(cardinality: int) -> int | None:
    return cardinality if cardinality >= 0 else None
