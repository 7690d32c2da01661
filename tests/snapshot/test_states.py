"""Every state of the disk has a name, and what was durable in it is read and continued."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import pytest
from tests.snapshot.disk import DEAD, FIRST, KEY, RUN, SECOND, UNNAMED, Disk

from tundish.errors import SnapshotError
from tundish.snapshot import lease
from tundish.snapshot.lease import Holder, adopt_run
from tundish.snapshot.manifest import RunOutcome
from tundish.snapshot.run import read_run

# The parts that a state has or lacks; two journal records with their shards, so that there is an end,
# a middle and a gap.
PARTS = {
    "manifest": ("manifest.json",),
    "pipeline": ("pipeline.json",),
    "lease": ("lease.json",),
    "header": ("run.json",),
    "tmp": (f"{UNNAMED}.tmp",),
    "shard0": (FIRST,),
    "shard1": (SECOND,),
    "state": ("state/00000000.json", "state/00000001.json"),
    "journal0": ("journal/00000000.json",),
    "journal1": ("journal/00000001.json",),
    "index": ("index.arrow",),
}
OF_RUN = set(PARTS) - {"manifest", "pipeline", "lease"}


@dataclass(frozen=True)
class Rule:
    """A state that has some parts and lacks others, and what it is: the first that fits counts."""

    has: str
    lacks: str
    outcome: RunOutcome
    durable: int | None = 0
    """How many elements the run still gives; None: it has no header, so there is no run."""

    def fits(self, parts: set[str]) -> bool:
        return set(self.has.split()) <= parts and not set(self.lacks.split()) & parts


ALL_OF_RUN = " ".join(OF_RUN)
RULES = (
    # Complete once, and something is gone: always an error that names it.
    Rule("manifest", ALL_OF_RUN, RunOutcome.LOST_RUN, None),
    Rule("manifest", "header", RunOutcome.LOST_HEADER, None),
    Rule("manifest journal0 shard0 journal1 shard1", "index", RunOutcome.LOST_INDEX, 10),
    Rule("manifest journal0 shard0", "index", RunOutcome.LOST_INDEX, 5),
    Rule("manifest", "index", RunOutcome.LOST_INDEX, 0),
    Rule("manifest", "shard0", RunOutcome.LOST_SHARD, 0),
    Rule("manifest journal0", "shard1", RunOutcome.LOST_SHARD, 5),
    Rule("manifest", "shard1", RunOutcome.LOST_SHARD, 0),
    # Complete: the index needs no journal, but the journal alone gives what it has.
    Rule("manifest journal0 journal1", "", RunOutcome.COMPLETE, 10),
    Rule("manifest journal0", "", RunOutcome.COMPLETE, 5),
    Rule("manifest", "", RunOutcome.COMPLETE, 0),
    # No manifest. Without its header a run is not one.
    Rule("", ALL_OF_RUN, RunOutcome.EMPTY, None),
    Rule("", "header", RunOutcome.LOST_HEADER, None),
    # The journal says what is durable; whatever it does not name counts for nothing.
    Rule("journal1", "journal0", RunOutcome.LOST_RECORD, 0),
    Rule("index", "journal0", RunOutcome.LOST_RECORD, 0),
    Rule("", "journal0", RunOutcome.FRESH, 0),
    Rule("journal0", "shard0", RunOutcome.LOST_SHARD, 0),
    Rule("journal0 journal1", "shard1", RunOutcome.LOST_SHARD, 5),
    Rule("journal0 index", "journal1", RunOutcome.LOST_RECORD, 5),
    Rule("journal0 journal1 index", "", RunOutcome.FINISHED, 10),
    Rule("journal0 journal1", "state", RunOutcome.LOST_STATE, 10),
    Rule("journal0", "state", RunOutcome.LOST_STATE, 5),
    Rule("journal0 journal1 state", "", RunOutcome.PREFIX, 10),
    Rule("journal0 state", "", RunOutcome.PREFIX, 5),
)


def subsets() -> Iterator[set[str]]:
    for count in range(len(PARTS) + 1):
        yield from map(set, combinations(PARTS, count))


def rule_of(parts: set[str]) -> Rule:
    return next(rule for rule in RULES if rule.fits(parts))


def test_every_rule_is_of_some_state() -> None:
    assert {rule_of(parts) for parts in subsets()} == set(RULES)


@pytest.mark.slow
def test_every_subset_of_the_files_has_its_name(tmp_path: Path) -> None:
    """All 2048, one file after the other coming and going on one disk."""
    disk, there, wrong = Disk(tmp_path), set[str](), []
    for wanted in sorted(subsets(), key=gray):
        for part in there ^ wanted:
            for name in PARTS[part]:
                disk.take(name) if part in there else disk.put(name)
        there = wanted
        rule = rule_of(wanted)
        found = disk.catalog.examine(KEY)[0], durable(disk)
        if found != (rule.outcome, rule.durable):
            wrong.append((sorted(wanted), found, (rule.outcome, rule.durable)))

    assert not wrong


def gray(parts: set[str]) -> int:
    """A place in an order in which neighbours differ by one part."""
    code = sum(1 << k for k, part in enumerate(PARTS) if part in parts)
    place = 0
    while code:
        place ^= code
        code >>= 1
    return place


def durable(disk: Disk) -> int | None:
    try:
        return read_run(disk.catalog.at(KEY), RUN).next
    except SnapshotError:
        return None


@pytest.mark.slow
def test_every_unfinished_state_is_continued_or_left_alone(tmp_path: Path) -> None:
    """After taking over, the run holds what is durable and nothing else; what is damaged stays."""
    for number, parts in enumerate(subsets()):
        if {"manifest", "pipeline", "lease"} & parts:
            continue
        disk = Disk(tmp_path / str(number))
        for part in parts:
            for name in PARTS[part]:
                disk.put(name)
        rule, before = rule_of(parts), disk.files()
        best = disk.catalog.best_run(KEY)
        if not rule.outcome.continued:
            assert best is None
            with suppress(SnapshotError):  # without a header there is nothing to take over
                assert adopt_run(disk.catalog.at(KEY), RUN, Holder.here().to_json()) is None
            assert disk.files() == before
            continue
        assert best is not None
        prefix = adopt_run(disk.catalog.at(KEY), best.run, Holder.here().to_json())

        assert prefix is not None
        assert prefix.next == rule.durable
        assert prefix.state == ({"n": rule.durable} if rule.durable and "state" in parts else None)
        records = (rule.durable or 0) // 5
        kept = {"run.json"} | {f"journal/{n:08d}.json" for n in range(records + 1)}
        kept |= {FIRST, SECOND} & {shard.file for shard in prefix.shards}
        kept |= {name for name in PARTS["state"][:records] if "state" in parts}
        kept |= {"index.arrow"} & before
        assert disk.files() == kept
        again = read_run(disk.catalog.at(KEY), RUN)
        assert (again.next, again.records, again.state) == (
            prefix.next,
            prefix.records,
            prefix.state,
        )


def test_a_shard_that_comes_while_one_looks_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of a run that is being written lists the folder, and then the writer commits."""
    disk = Disk(tmp_path).put_all("index.arrow", "manifest.json", SECOND)
    store = disk.catalog.at(KEY)
    before = store.sizes(f"runs/{RUN}")
    disk.put(SECOND)
    monkeypatch.setattr(type(store), "sizes", lambda self, folder: before)

    assert (read_run(store, RUN).outcome, read_run(store, RUN).next) == (RunOutcome.PREFIX, 10)


def test_an_index_that_is_made_anew_while_one_looks_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path).put_all("manifest.json")
    store = disk.catalog.at(KEY)
    before = store.sizes(f"runs/{RUN}")
    disk.take("index.arrow")
    monkeypatch.setattr(type(store), "sizes", lambda self, folder: before)

    assert read_run(store, RUN).outcome is RunOutcome.PREFIX


def test_who_comes_too_late_takes_nothing_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its look at the journal and its fence, another's fence, or the old writer's commit."""
    disk = Disk(tmp_path).put_all("index.arrow", "manifest.json")
    store = disk.catalog.at(KEY)
    seen = read_run(store, RUN)
    assert adopt_run(store, RUN, DEAD.to_json()) is not None
    disk.put(f"{UNNAMED}.tmp")
    before = disk.files()
    monkeypatch.setattr(lease, "read_run", lambda store, run: seen)

    assert adopt_run(store, RUN, Holder.here().to_json()) is None
    assert disk.files() == before
    assert read_run(store, RUN).holder == DEAD.to_json()


def test_what_is_taken_over_by_one_is_not_committed_to_by_another(tmp_path: Path) -> None:
    """The fence: of two that take a run over, and of its old writer, one goes on."""
    disk = Disk(tmp_path).put_all("index.arrow", "manifest.json")
    store = disk.catalog.at(KEY)
    first = adopt_run(store, RUN, Holder.here().to_json())
    late = read_run(store, RUN, upto=2)

    assert first is not None
    assert (first.records, late.records) == (3, 2)
    assert not store.create(f"runs/{RUN}/journal/00000002.json", b"the old writer's")
    assert read_run(store, RUN).holder == Holder.here().to_json()


def test_a_process_goes_on_with_its_own_run_without_a_fence(tmp_path: Path) -> None:
    """Unless something stands there that the journal does not name: a writer of its own may be about to commit it."""
    disk = Disk(tmp_path).put_all("index.arrow", "manifest.json")
    store, here = disk.catalog.at(KEY), Holder.here().to_json()
    assert adopt_run(store, RUN, here) is not None  # it was another's

    again = adopt_run(store, RUN, here)
    assert again is not None
    assert again.records == read_run(store, RUN).records == 3
    disk.put(f"{UNNAMED}.tmp")
    fenced = adopt_run(store, RUN, here)
    assert fenced is not None
    assert fenced.records == read_run(store, RUN).records == 4
    assert f"{UNNAMED}.tmp" not in disk.files()
