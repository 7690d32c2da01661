"""Check that two versions of this library understand each other's fingerprints, states and snapshots.

One checkout writes what the other reads. The writer may lack this file, so it runs by its path, with that
checkout's own interpreter, and imports only what both have::

    OTHER/.venv/bin/python -P src/tundish/testing/between.py --write FOLDER
    python -m tundish.testing.between --check FOLDER

Swap the two for the way back: a training that is rolled back must go on as well. Of each pipeline of
`tundish.testing.registry` that both have are compared

- its fingerprint, and that of it with a `Dataset.snapshot`, which snapshots are named by;
- states after several elements, in process and with workers: each is written as before, is loaded, and gives
  the same rest to the last bit;
- snapshots, complete and left half-written, plain, under a version and sorted by a ``shard_func``: they are found
  and read, and continued in the same run instead of written anew.

``--only NAME ...`` looks at a few cases. The exit status is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import shutil
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import tundish
from tundish.errors import CheckpointError, IncompleteSnapshotError
from tundish.testing import registry
from tundish.testing.cases import storing
from tundish.testing.compare import collect
from tundish.testing.functions import Key

__all__ = ["check", "main", "write"]

TAKEN = (0, 2, 7)
"""The numbers of elements after which states are taken."""
HALF = 5
"""The number of elements after which a half-written snapshot is left."""
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "versioned": {"version": "1"},
    "sorted": {"shard_func": Key(1, 3)},
}
SMALL = {"batch_bytes": 64, "shard_bytes": 400}
ITERATION = 1

JSON = Any


def write(folder: Path, only: list[str]) -> int:
    """Write this version's fingerprints, states and snapshots of every case.

    Parameters
    ----------
    folder : Path
        An empty folder.
    only : list of str
        Names of cases; empty for all.

    Returns
    -------
    int
        The number of cases.
    """
    _settle(folder)
    cases = {case.name: _written(case, folder) for case in _cases(only)}
    (folder / "written.json").write_text(json.dumps(cases, indent=1))
    return len(cases)


def check(folder: Path, only: list[str]) -> tuple[int, list[str]]:
    """Compare another version's files with this version's results.

    Parameters
    ----------
    folder : Path
        What `write` filled; it is not changed.
    only : list of str
        Names of cases; empty for all.

    Returns
    -------
    int
        The number of cases that were compared.
    list of str
        The differences.
    """
    written = json.loads((folder / "written.json").read_text())
    with tempfile.TemporaryDirectory() as copied:
        copy = Path(copied, "copy")
        shutil.copytree(folder, copy)  # half-written snapshots are continued there
        _settle(folder)
        cases = [case for case in _cases(only) if case.name in written]
        found = [
            f"{case.name}: {difference}"
            for case in cases
            for difference in _differences(case, written[case.name], copy)
        ]
    return len(cases), found


def _settle(folder: Path) -> None:
    """Fix everything random, and everything that depends on the checkout."""
    warnings.simplefilter("ignore")
    logging.disable()
    storing.saved = partial(_saved, folder / "saved")  # type: ignore[attr-defined,assignment]  # its cache is not needed
    registry.HERE = folder / "listed"
    registry.HERE.mkdir(exist_ok=True)
    for name in ("first.py", "second.py", "third.py"):
        (registry.HERE / name).touch()
    shutil.rmtree(folder / "scratch", ignore_errors=True)
    tempfile.mkdtemp = partial(_folder, tempfile.mkdtemp, folder / "scratch")  # type: ignore[assignment]


def _saved(folder: Path, dataset: Any, count: int, **how: Any) -> str:
    """Return the folder to which the writer saved numbers, since loaded data is identified by its run."""
    path = folder / "-".join([str(count), *how])
    if not path.exists():
        dataset.range(count).save(str(path), **how)
    return str(path)


def _folder(otherwise: Any, scratch: Path, *given: Any, prefix: Any = None, **how: Any) -> str:
    """Make a temporary folder with the same name in each run, since states contain paths.

    Where a process has one folder for all others, that one is its first.
    """
    parent = str(how.get("dir"))
    within = parent.startswith(str(scratch))
    if not within and not str(prefix).startswith("kept-"):
        return str(otherwise(*given, prefix=prefix, **how))
    if within and parent not in _HOMES:
        _HOMES.add(parent)
        return parent
    path = scratch / _BUILDING[0] / str(next(_COUNTS[_BUILDING[0]]))
    path.mkdir(parents=True)
    return str(path)


_BUILDING = [""]
_HOMES: set[str] = set()
_COUNTS: dict[str, Iterator[int]] = defaultdict(count)


def _cases(only: list[str]) -> list[registry.Case]:
    return [case for case in registry.CASES if not only or case.name in only]


def _build(case: registry.Case, what: str) -> Any:
    _BUILDING[0] = f"{case.name}/{what}"
    tundish.set_seed(7)  # the seeds that nobody gave
    return case.build()


# -- what is written -------------------------------------------------------------------------------


def _written(case: registry.Case, folder: Path) -> JSON:
    return {
        "fingerprints": _fingerprints(case),
        "states": [_state(case, taken, workers) for taken, workers in _moments(case)],
        "snapshots": {form: _snapshot(case, form, folder) for form in _forms(case)},
    }


def _moments(case: registry.Case) -> list[tuple[int, int]]:
    return [(taken, 0) for taken in TAKEN] + ([(TAKEN[1], 2)] if case in registry.FIRST else [])


def _forms(case: registry.Case) -> list[str]:
    return list(FORMS) if case in registry.FIRST else ["plain"]


def _fingerprints(case: registry.Case) -> JSON:
    dataset = _build(case, "fingerprints")
    kept = {form: dataset.snapshot("kept", **how) for form, how in FORMS.items()}
    return {name: str(d.fingerprint()) for name, d in {"pipeline": dataset, **kept}.items()}


def _state(case: registry.Case, taken: int, workers: int) -> JSON:
    dataset = _build(case, f"{taken}-{workers}")
    with dataset.iterator(workers=workers, iteration=ITERATION) as iterator:
        state = _state_after(iterator, taken)
        return {"taken": taken, "workers": workers, "state": state, "rest": _digest(iterator, case)}


def _state_after(iterator: Any, taken: int) -> JSON:
    collect(iterator, limit=taken)
    return json.loads(json.dumps(iterator.state_dict()))


def _snapshot(case: registry.Case, form: str, folder: Path) -> JSON:
    """Return a complete snapshot, if the pipeline can be stored and ends, and a half-written one."""
    complete, half = _places(case, form, folder)
    _read(case, form, complete)
    with _kept(case, form, half).iterator(workers=0) as iterator:
        collect(iterator, limit=HALF)
    shutil.copytree(half, half.with_name("continued"))
    return _found(case, form, complete, half.with_name("continued"))


def _found(case: registry.Case, form: str, complete: Path, half: Path) -> JSON:
    return {
        "complete": _read(case, form, complete, mode="read"),
        "continued": _read(case, form, half),
        "runs": _runs(half),
    }


def _places(case: registry.Case, form: str, folder: Path) -> tuple[Path, Path]:
    place = folder / "snapshots" / case.name / form
    return place / "complete", place / "half"


def _kept(case: registry.Case, form: str, path: Path, mode: str = "auto") -> Any:
    below = _build(case, f"{form}-{path.name}-{mode}")
    return below.snapshot(str(path), **SMALL, **FORMS[form], mode=mode)


def _read(case: registry.Case, form: str, path: Path, mode: str = "auto") -> str:
    """Return a digest of all elements, or the reason why there are none."""
    try:
        with _kept(case, form, path, mode).iterator(workers=0) as iterator:
            # The errors of elements that cannot be stored contain the path.
            return _digest(iterator, case, exact=False)
    except IncompleteSnapshotError:
        return "incomplete"


def _digest(iterator: Any, case: registry.Case, *, exact: bool = True) -> str:
    outcomes = collect(iterator, limit=case.limit, exact=exact)
    text = "\n".join(f"{outcome.error} {outcome.digest}" for outcome in outcomes)
    return f"{len(outcomes)} elements, {hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


def _runs(path: Path) -> list[str]:
    """Return the runs in a folder of snapshots, each under its key."""
    return sorted(str(run.relative_to(path)) for run in path.glob("*/runs/*"))


# -- what is read ----------------------------------------------------------------------------------


def _differences(case: registry.Case, written: JSON, copy: Path) -> list[str]:
    found = _changes("fingerprint", written["fingerprints"], _fingerprints(case))
    for moment in written["states"]:
        found += _resumed(case, moment)
    for form, snapshot in written["snapshots"].items():
        found += _reread(case, form, snapshot, copy)
    return found


def _resumed(case: registry.Case, written: JSON) -> list[str]:
    taken, workers = written["taken"], written["workers"]
    what = f"state after {taken} with {workers} workers"
    dataset = _build(case, f"{taken}-{workers}")
    with dataset.iterator(workers=workers, iteration=ITERATION) as iterator:
        found = _changes(what, written["state"], _state_after(iterator, taken))
    try:
        with dataset.iterator(workers=workers) as iterator:
            iterator.load_state_dict(written["state"])
            rest = _digest(iterator, case)
    except CheckpointError as refused:
        return [*found, f"{what} is refused: {refused}"]
    return found + _changes(f"rest after {what}", written["rest"], rest)


def _reread(case: registry.Case, form: str, written: JSON, copy: Path) -> list[str]:
    found = _found(case, form, *_places(case, form, copy))
    return _changes(f"{form} snapshot", written, found)


def _changes(what: str, there: JSON, here: JSON) -> list[str]:
    if there == here:
        return []
    if isinstance(there, dict) and isinstance(here, dict):
        return [
            change
            for name in sorted(set(there) | set(here))
            for change in _changes(f"{what}.{name}", there.get(name), here.get(name))
        ]
    return [f"{what}: {_short(there)} was written, {_short(here)} here"]


def _short(value: JSON) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def main(arguments: list[str], tell: Callable[[str], Any] = print) -> int:
    """Write or check a folder; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tundish.testing.between")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--write", type=Path, metavar="FOLDER", help="an empty folder to fill")
    how.add_argument("--check", type=Path, metavar="FOLDER", help="what the other version wrote")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="names of cases")
    given = parser.parse_args(arguments)
    if given.write:
        given.write.mkdir(parents=True, exist_ok=True)
        tell(f"{write(given.write.resolve(), given.only)} cases written")
        return 0
    compared, found = check(given.check.resolve(), given.only)
    tell("\n".join([*found, f"{compared} cases compared, {len(found)} differences"]))
    return bool(found) or not compared


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
