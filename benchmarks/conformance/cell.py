"""One trial of one loader, in this process: ``python -m conformance.cell PEER LAW``."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict

from conformance.child import say
from conformance.laws import failing, files, holding, order, resuming
from conformance.protocol import Finding, Peer, does_not_apply, fails, first_error

LAWS = {**order.LAWS, **resuming.LAWS, **failing.LAWS, **holding.LAWS, **files.LAWS}


def main() -> None:
    name, law = sys.argv[1:]
    peer = Peer(name, law)
    say("ready")
    found = asdict(_tried(peer, law))
    say({**found, "promised": peer.module.NOT_PROMISED.get(law, "")})
    sys.stdout.flush()
    os._exit(0)  # a loader's threads may not end; that is another trial


def _tried(peer: Peer, law: str) -> Finding:
    if peer.lacks:
        return does_not_apply(peer.lacks)
    try:
        return LAWS[law](peer)
    except Exception as error:  # noqa: BLE001 - the finding
        return fails(first_error(error))


if __name__ == "__main__":
    main()
