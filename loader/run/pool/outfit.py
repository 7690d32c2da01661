"""The contents sent to worker processes: objects, preloaded modules, the moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tundish.loader.run.pool.peers import WorkerSpec
from tundish.loader.run.starting.agreeing import Agreement, entries_now
from tundish.loader.run.starting.launcher import launcher, start_method
from tundish.loader.run.starting.moment import Moment
from tundish.loader.run.starting.settings import values_now

if TYPE_CHECKING:
    from tundish.loader.run.starting.payload import Met, Payload

Part = tuple[str, Any]
"""An object that workers need, with the name it has in errors."""


def crew_of_processes(
    entry: str,
    config: dict[str, Any],
    parts: Sequence[Part],
    *,
    start: str | None,
    pack: Callable[[Sequence[Part]], Payload],
    preload: Callable[[Payload], Iterable[str]],
    policy: str = "ship",
    threads: int = 1,
    met: Sequence[Met] = (),
    recruiting: Any = None,
) -> WorkerSpec:
    """Return the specification of worker processes.

    Parameters
    ----------
    entry, config, threads : str, dict, int
        As for `WorkerSpec`; ``moment`` is added to the config.
    parts : sequence of (str, object)
        The objects that all workers need.
    start : str or None
        The start method that the user has chosen.
    pack : callable
        Writes the parts to a file that workers map; not called if they are forked with them.
    preload : callable
        Returns the modules to import once for all workers.
    policy : {"ship", "error", "ignore"}
        What to do about globals that were changed.
    met : sequence of functions and types
        The functions and types whose globals forked workers follow; for others, packing finds them.
    recruiting : callable or None
        Makes the source of workers; None for workers of this machine.
    """
    # What goes to another machine is a payload: nothing is forked there.
    start = "zygote" if recruiting is not None else start_method(start)
    payload, modules = None, tuple[str, ...]()
    if start != "fork":
        if recruiting is None:
            # The import runs while the parts are packed.
            launcher(threads, start).preload([entry.partition(":")[0]])
        payload = pack(parts)
        met, modules = payload.met, tuple(preload(payload))
    config["moment"] = moment_of(met, policy)
    return WorkerSpec(
        entry=entry,
        config=config,
        payload=payload,
        threads=threads,
        preload=modules,
        start=start,
        met=tuple(met),
        objects=None if payload is not None else tuple(part for _, part in parts),
        answer=lambda question: Agreement(config["moment"].entries, policy, threads).answer(
            question
        ),
        recruiting=recruiting,
    )


def moment_of(met: Sequence[Met], policy: str) -> Moment:
    """Return the present settings and globals of this process."""
    return Moment(values_now(), entries_now(met, policy))
