"""The outfit of workers that are processes: objects, modules that are imported for them, the moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tundish.loader.run.pool.peers import Crew
from tundish.loader.run.starting.agreeing import Agreement, entries_now
from tundish.loader.run.starting.launcher import launcher, start_method
from tundish.loader.run.starting.moment import Moment
from tundish.loader.run.starting.settings import values_now

if TYPE_CHECKING:
    from tundish.loader.run.starting.payload import Met, Payload

__all__ = ["Part", "crew_of_processes", "moment_of"]

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
) -> Crew:
    """Describe workers that are processes.

    Parameters
    ----------
    entry, config, threads
        As `Crew` has them; to the config comes the ``moment``.
    parts : sequence of (str, object)
        What all of them need.
    start : str or None
        How they begin, as the user has said.
    pack : callable
        Writes the parts to a file that they map; not called where they are forked with them.
    preload : callable
        Returns the modules that are imported once for all of them.
    policy : {"ship", "error", "ignore"}
        What is done about globals that were changed.
    met : sequence of functions and types
        Whose globals those that are forked follow; of the others it is known from packing.
    """
    start = start_method(start)
    payload, modules = None, tuple[str, ...]()
    if start != "fork":
        launcher(threads, start).preload([entry.partition(":")[0]])  # while the parts are packed
        payload = pack(parts)
        met, modules = payload.met, tuple(preload(payload))
    config["moment"] = moment_of(met, policy)
    return Crew(
        entry=entry,
        config=config,
        payload=payload,
        threads=threads,
        preload=modules,
        start=start,
        met=tuple(met),
        objects=None if payload is not None else tuple(part for _, part in parts),
        answer=lambda question: Agreement(config["moment"].entries, policy, threads, start).answer(
            question
        ),
    )


def moment_of(met: Sequence[Met], policy: str) -> Moment:
    """Return what holds in this process now: settings, and globals that functions read."""
    return Moment(values_now(), entries_now(met, policy))
