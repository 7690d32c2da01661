"""Real processes that want one thing at one time: exactly one has it."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.snapshot.disk import DEAD, KEY, RUN, Disk

from tundish.snapshot.catalog import Catalog
from tundish.snapshot.lease import holder_of, lease_name, take
from tundish.snapshot.run import read_run

RACERS, ROUNDS = 4, 25

# Each process does the same things in the same order and says which of them it won; it begins a round
# when all have come to it, as seen by the files that they leave at its start.
SCRIPT = """
import json, os, sys
from pathlib import Path
from tests.snapshot.disk import KEY, RUN
from tundish.snapshot.files import local
from tundish.snapshot.catalog import Catalog
from tundish.snapshot.lease import Holder, adopt_run, take
from tundish.snapshot.manifest import Manifest

root, what, racer, racers, rounds = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])

def without_links(path, name):
    return local._claim(path, name)

def manifest(catalog):
    return catalog.publish(KEY, Manifest(KEY, f"racer {racer}", (), 0, 0))

def lease(catalog):
    return take(catalog.store, KEY, f"racer {racer}") is not None

def run(catalog):
    return adopt_run(catalog.at(KEY), RUN, Holder.here().to_json()) is not None

if what == "manifest without links":
    from tundish.snapshot.files import local
    local.publish = without_links
race = {"manifest": manifest, "manifest without links": manifest, "lease": lease, "run": run}[what]
won = []
for number in range(rounds):
    catalog = Catalog(root / str(number))
    (root / f"{number}-{racer}").touch()
    while not all((root / f"{number}-{k}").exists() for k in range(racers)):
        os.sched_yield()
    won.append(race(catalog))
print(json.dumps(won))
"""


def race(root: Path, what: str) -> list[list[bool]]:
    """Return which process won which round."""
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", SCRIPT, str(root), what, *map(str, (k, RACERS, ROUNDS))],
                    cwd=Path(__file__).resolve().parents[2],
                    stdout=subprocess.PIPE,
                )
            )
            for k in range(RACERS)
        ]
        return [json.loads(process.communicate(timeout=100)[0]) for process in processes]


def winners(won: list[list[bool]], number: int) -> list[int]:
    return [racer for racer, rounds in enumerate(won) if rounds[number]]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["manifest", "manifest without links"])
def test_of_writers_of_a_manifest_one_wins(tmp_path: Path, what: str) -> None:
    won = race(tmp_path, what)

    for number in range(ROUNDS):
        catalog = Catalog(tmp_path / str(number))
        manifest = catalog.manifest(KEY)
        assert manifest is not None
        assert [f"racer {racer}" for racer in winners(won, number)] == [manifest.content]
        assert catalog.at(KEY).list() == ["manifest.json"]


@pytest.mark.slow
def test_of_those_who_find_a_stale_lease_one_takes_it(tmp_path: Path) -> None:
    for number in range(ROUNDS):
        take(Catalog(tmp_path / str(number)).store, KEY, "dead", holder=DEAD)
    won = race(tmp_path, "lease")

    for number in range(ROUNDS):
        store = Catalog(tmp_path / str(number)).store
        assert len(winners(won, number)) == 1
        assert holder_of(store, lease_name(KEY)) != DEAD
        assert store.list(KEY) == ["lease.json"]


@pytest.mark.slow
def test_of_those_who_take_a_run_over_nobody_loses_data(tmp_path: Path) -> None:
    """One after the other or one alone: every fence is a record of its own, the last one counts."""
    for number in range(ROUNDS):
        Disk(tmp_path / str(number)).put_all("index.arrow", "manifest.json")
    won = race(tmp_path, "run")

    for number in range(ROUNDS):
        prefix = read_run(Catalog(tmp_path / str(number)).at(KEY), RUN)
        assert (prefix.problem, prefix.next, prefix.state) == (None, 10, {"n": 10})
        assert prefix.records == 2 + len(winners(won, number))
