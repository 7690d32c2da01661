"""The objects that the workers of a dataset's iterator receive when they start."""

from __future__ import annotations

import contextlib
import threading
from functools import partial
from typing import TYPE_CHECKING

from tundish.loader.protocols.context import Context
from tundish.loader.run.pool.outfit import crew_of_processes
from tundish.loader.run.pool.peers import WorkerSpec
from tundish.loader.run.starting.inside import IN_WORKER, WORKER
from tundish.loader.run.starting.payload import Payload, pack
from tundish.loader.run.starting.preload import installed
from tundish.loader.run.starting.settings import Applied, Values, values_now
from tundish.loader.watch.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tundish.loader.plan.options import Options
    from tundish.loader.run.pool.outfit import Part
    from tundish.shm.channel import Channel
    from tundish.shm.memory import Arena

_ORDERS = "tundish.loader.run.storing.orders"  # with pyarrow, which takes a while to load
_STORED, _READER = "tundish.loader.operators.stored", "tundish.snapshot.reading.reader"  # likewise
_RNG = "tundish.loader.protocols.rng"  # with numpy.random, which numpy loads on first use
_DATASET = "tundish.loader.dataset"  # which imports us


def crew_of(
    context: Context, options: Options, executor: str, *, clocked: bool = True
) -> WorkerSpec:
    """Return the specification of an iterator's workers.

    Parameters
    ----------
    context : Context
        The iterator's context.
    options : Options
        Its options.
    executor : {"process", "thread"}
        The kind of worker.
    clocked : bool
        True to measure the time that cores were busy.
    """
    if executor == "thread":
        return WorkerSpec(thread=_ThreadMain(context, options, values_now(), clocked=clocked))
    return crew_of_processes(
        f"{WORKER}:main",
        {
            "context": (context.iteration, context.base_seed, context.graph_seed),
            "room": context.room,
            "watched": context.watch.enabled,
            "clocked": clocked,
        },
        [
            ("the plan", context.root),
            ("the options", options),
            ("the active probes", context.probes),
        ],
        start=options.start,
        pack=partial(_pack, context),
        preload=partial(_modules, context),
        policy=options.globals or "ship",
        threads=options.intra_op_threads,
    )


def _modules(context: Context, payload: Payload) -> list[str]:
    """Return the modules that a worker needs: this library's, and installed ones."""
    named = [name for name in payload.modules if name.startswith("tundish.")]
    if any(node.expands for node in context.nodes):
        named.append(_DATASET)  # the function makes some
    if context.recorders:
        named.append(_ORDERS)
    if _STORED in named:
        named.append(_READER)
    if any(node.seeded for node in context.nodes):
        named.append(_RNG)
    return [*named, *installed(payload.modules)]


class _ThreadMain:
    """The main function of a worker thread."""

    def __init__(
        self, context: Context, options: Options, settings: Values, *, clocked: bool
    ) -> None:
        self._context, self._options, self._clocked = context, options, clocked
        self._settings = settings

    def __call__(self, channel: Channel, arena: Arena | None) -> None:
        IN_WORKER.yes = True
        try:
            with contextlib.suppress(SystemExit):  # as a process would: its task is another's
                self._serve(channel, arena)
        finally:
            channel.close()

    def _serve(self, channel: Channel, arena: Arena | None) -> None:
        Applied(thread=True).take(self._settings)
        if self._options.worker_init is not None:
            self._options.worker_init()
        own = self._context
        context = Context(own.root, own.iteration, own.base_seed, own.graph_seed)
        context.where = f"in thread {threading.current_thread().name}"
        context.probes, context.watch = own.probes, Watch(enabled=own.watch.enabled)
        context.room = own.room
        options, clocked = self._options, self._clocked
        from tundish.loader.run.working.worker import Worker  # noqa: PLC0415 - of threads alone

        try:
            Worker(channel, arena, context, options, forks=False, clocked=clocked).run()
        finally:
            context.close_files()  # of a source that the plan holds, and so other iterators


def _pack(context: Context, parts: Sequence[Part]) -> Payload:
    """Pack the plan and its companions; an error names the node and the object."""
    try:
        return pack(parts)
    except TypeError:
        for node in context.nodes:
            for name in ("function", "predicate", "source"):
                part = getattr(node, name, None)
                if part is not None:
                    pack([(context.label(node), part)]).close()
        raise
