"""The state of a dispatcher as JSON, for `tundish service status` and for errors of trainers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tundish.loader.service.connections.credentials import show_address
from tundish.loader.service.dispatching.dispatcher import DispatcherState, consumers_of, server_of

if TYPE_CHECKING:
    from tundish.loader.service.connections.credentials import Address
    from tundish.loader.service.dispatching.entries import AgentHeard


def status_of(
    state: DispatcherState,
    agents: Sequence[AgentHeard],
    members: Sequence[str],
    now: float,
) -> dict[str, Any]:
    """Return all that a dispatcher knows as JSON, without the datasets' plans; `agents` in their order."""
    seats: Counter[Address] = Counter()
    for trainer in state.trainers.values():
        seats.update(trainer.held)
    return {
        "wanted": state.wanted,
        "members": list(members),
        "agents": [
            {
                "name": each.name,
                "address": each.told or show_address(each.address),
                "host": each.host,
                "cores": each.cores,
                "seats": seats[each.address],
                "versions": list(each.versions),
                "jobs": sorted(each.serves),
                "heard_s": round(now - each.at, 3),
            }
            for each in agents
        ],
        "trainers": [
            {
                "name": each.name,
                "host": each.host,
                "wanted": each.wanted,
                "seats": [show_address(seat) for seat in each.held],
            }
            for each in state.trainers.values()
        ],
        "datasets": [{"id": each.id, "bytes": each.nbytes} for each in state.datasets.values()],
        "jobs": [
            {
                "name": name,
                "dataset": record.job.dataset,
                "kind": record.job.kind,
                "address": _shown(server_of(state, name)),
                "consumers": consumers_of(state, name),
                "unused_s": round(now - record.used_at, 3),
            }
            for name, record in state.jobs.items()
        ],
    }


def _shown(address: Address | None) -> str | None:
    return None if address is None else show_address(address)
