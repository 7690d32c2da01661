"""The process that joins a Ray cluster in place of the one that starts a service on it.

It reads an order, and answers; then it stays until its input ends, as a cluster of this machine alone ends with it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from tundish.loader.service.ray.cluster import import_ray, leave
from tundish.loader.service.ray.service import RayServicePlan, begin, end


def main() -> None:
    """Serve one order of a `RayFleet`: start, answer, and at the end of the input leave."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what Ray prints

    def answer(**fields: Any) -> None:
        out.write(json.dumps(fields) + "\n")
        out.flush()

    order = json.loads(sys.stdin.readline())
    plan, token = RayServicePlan(**order["plan"]), order["token"].encode("latin-1")
    try:
        target = begin(plan, token)
        leave()
    except Exception as error:  # noqa: BLE001 - sent to the parent
        answer(error=f"{type(error).__name__}: {error}")
        return
    answer(target=target)
    for line in sys.stdin:
        if line == "stop\n":
            end(plan)
            answer()
    import_ray().shutdown()


if __name__ == "__main__":
    main()
