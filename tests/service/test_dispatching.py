"""The dispatcher's answers, without sockets: what is journalled before an answer, what waits, what a restart goes on with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tundish.errors import DataLossError, IncompatibleJobError
from tundish.loader.service.connections.answering import Later
from tundish.loader.service.connections.handshake import digest_of
from tundish.loader.service.dispatching.datasets import FOLDER, DatasetsInMemory, StoredDatasets
from tundish.loader.service.dispatching.dispatching import Dispatching, Patience
from tundish.loader.service.dispatching.journal import LocalJournal, NoJournal

PATIENCE = Patience(agent_s=15.0, job_s=300.0, check_s=60.0)


A = ["a", 1]
"""The address of the agent of this name."""


def end(job: str, life: str, *, gave: bool = False) -> dict[str, Any]:
    """Return what an agent says of a job whose process has ended."""
    return {job: {"how": f"end {life}", "life": life, "gave": gave}}


@dataclass
class Bench:
    """A dispatcher whose clock is set by hand."""

    folder: Path | None = None
    members: tuple[str, ...] = ()
    now: float = 0.0
    wakes: int = 0
    patience: Patience = PATIENCE
    answers: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        folder = self.folder
        self.it = Dispatching(
            LocalJournal(folder) if folder is not None else NoJournal(),
            StoredDatasets(str(folder)) if folder is not None else DatasetsInMemory(),
            self.patience,
            clock=lambda: self.now,
            wake=self.wake,
            members=self.members,
        )

    def wake(self) -> None:
        self.wakes += 1

    def restart(self) -> None:
        self.it.close()
        self.begin()

    def ask(self, do: str, caller: int = 1, blobs: tuple[bytes, ...] = (), **fields: Any) -> Any:
        """The answer of a call; None if it waits, and then it comes to `answers` of its caller."""
        found = self.it.handle({"do": do, **fields}, list(blobs), caller)
        if isinstance(found, Later):
            found.bind(lambda what: self.answers.update({caller: what}))
            return None
        return found[0] if not found[1] else found

    def pass_time(self, seconds: float) -> None:
        """Let time pass, with the ticks that the dispatcher asks for."""
        until = self.now + seconds
        while self.now < until:
            self.now = min(until, self.now + max(self.it.tick(), 0.001))
        self.it.tick()

    def heard(self, caller: int) -> Any:
        """The answer that has come since to a call that waited."""
        what = self.answers.pop(caller)
        if isinstance(what, BaseException):
            raise what
        return what[0]

    def agent(self, name: str, caller: int, cores: int = 2, **fields: Any) -> Any:
        address = fields.pop("address", [name, 1])
        return self.ask("heartbeat", caller, name=name, address=address, cores=cores, **fields)

    def register(self, id_: str, payload: bytes, plan: Any = None, **fields: Any) -> Any:
        digest = digest_of(payload)
        return self.ask("register", id=id_, digest=digest, nbytes=len(payload), plan=plan, **fields)

    def job(self, name: str = "train", caller: int = 9, **fields: Any) -> Any:
        return self.ask("job", caller, name=name, **{"dataset": "d", "kind": "dealt", **fields})


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Bench]:
    """One with a folder."""
    bench = Bench(tmp_path)
    yield bench
    bench.it.close()


def registered(bench: Bench) -> Bench:
    bench.register("d", b"payload", [["range#0", {"stop": 3}]], blobs=(b"payload",))
    return bench


class TestDatasets:
    def test_a_payload_is_sent_once(self, bench: Bench) -> None:
        assert bench.register("d", b"payload") == {"want": True}
        assert bench.register("d", b"payload", blobs=(b"payload",)) == {"id": "d"}
        assert bench.register("d", b"payload") == {"id": "d"}
        assert bench.ask("dataset", id="d") == ({}, [b"payload"])

    def test_one_that_nobody_registered(self, bench: Bench) -> None:
        with pytest.raises(FileNotFoundError, match="no dataset 'x' is registered"):
            bench.ask("dataset", id="x")

    def test_a_payload_that_was_changed_on_its_way(self, bench: Bench) -> None:
        with pytest.raises(ValueError, match="not that of its digest"):
            bench.register("d", b"payload", blobs=(b"other",))

    def test_they_outlive_the_dispatcher(self, kept: Bench) -> None:
        bench = registered(kept)
        bench.restart()
        assert bench.ask("dataset", id="d") == ({}, [b"payload"])
        assert bench.register("d", b"payload") == {"id": "d"}

    def test_a_payload_without_its_entry_is_removed(self, kept: Bench, tmp_path: Path) -> None:
        """As when the process ended between the two."""
        bench = registered(kept)
        StoredDatasets(str(tmp_path)).keep(digest_of(b"other"), b"other")
        bench.restart()
        assert [path.name for path in (tmp_path / FOLDER).iterdir()] == [digest_of(b"payload")]

    def test_what_is_no_payload_stays(self, tmp_path: Path) -> None:
        """A dispatcher may be given a folder in which somebody keeps data."""
        folder = tmp_path / FOLDER
        (folder / "train").mkdir(parents=True)
        for name in ("cats.parquet", "train/0.parquet", digest_of(b"named by another's digest")):
            (folder / name).write_bytes(b"data")
        for _ in range(2):
            bench = Bench(tmp_path)
            registered(bench)
            bench.it.close()
        assert sorted(path.name for path in folder.rglob("*")) == sorted(
            [
                *("cats.parquet", "train", "0.parquet"),
                *(digest_of(b"named by another's digest"), digest_of(b"payload")),
            ]
        )

    @pytest.mark.parametrize("change", ["was changed", "is not there any more"])
    def test_a_payload_that_was_changed_since(
        self, kept: Bench, tmp_path: Path, change: str
    ) -> None:
        bench = registered(kept)
        path = tmp_path / FOLDER / digest_of(b"payload")
        if "changed" in change:
            path.write_bytes(b"pay1oad")
        else:
            path.unlink()
        bench.restart()
        with pytest.raises(DataLossError, match=change):
            bench.ask("dataset", id="d")


class TestHeartbeats:
    def test_waits_until_the_interval_is_over(self, bench: Bench) -> None:
        assert bench.agent("a", 1) == {"start": [], "stop": []}
        assert bench.agent("a", 1, wait_s=4.0) is None
        bench.pass_time(3.99)
        assert not bench.answers
        bench.pass_time(0.02)
        assert bench.heard(1) == {"start": [], "stop": []}

    def test_is_answered_well_before_the_agent_counts_as_gone(self, bench: Bench) -> None:
        assert bench.agent("a", 1, wait_s=1000.0) is None
        bench.pass_time(5.1)
        assert bench.heard(1) == {"start": [], "stop": []}

    def test_a_silent_agent_is_gone_and_comes_back(self, bench: Bench) -> None:
        bench.agent("a", 1)
        bench.pass_time(14.0)
        assert bench.it.agents()
        bench.pass_time(2.0)
        assert not bench.it.agents()
        bench.agent("a", 1)
        assert bench.it.agents()

    def test_a_connection_that_ended_is_an_agent_that_left_unless_it_has_a_newer_one(
        self, bench: Bench
    ) -> None:
        bench.agent("a", 1)
        bench.agent("a", 2)
        bench.it.left(1)
        bench.pass_time(1.1)
        assert bench.it.agents()
        bench.it.left(2)
        assert bench.it.agents(), "it may dial anew"
        bench.pass_time(1.1)
        assert not bench.it.agents()

    def test_one_that_dials_anew_at_once_has_not_left(self, bench: Bench) -> None:
        bench.agent("a", 1)
        TestSeats().ask(bench, "t", 5, 1)
        assert TestSeats().ask(bench, "t", 5, 1, known=[["a", 1]], wait_s=30.0) is None
        bench.it.left(1)
        bench.pass_time(0.9)
        bench.agent("a", 2)
        bench.pass_time(9.0)
        assert bench.it.agents()
        assert not bench.answers, "the seats stayed"

    def test_members(self) -> None:
        bench = Bench(members=("b:7", "a", "c:%port%", "[::1]:9"))
        for name, address in {"2": ["a", 3], "1": ["c", 4], "3": ["b", 7], "0": ["::1", 9]}.items():
            bench.agent(name, 1, address=address)
        assert [agent.address[0] for agent in bench.it.agents()] == ["b", "a", "c", "::1"]
        with pytest.raises(PermissionError, match=r"the agent at b:8 is not among .* b:7, a"):
            bench.agent("5", 1, address=["b", 8])
        assert bench.ask("status")["members"] == ["b:7", "a", "c:%port%", "[::1]:9"]

    @pytest.mark.parametrize("listens", ["127.0.0.1", "::1", "localhost"])
    @pytest.mark.parametrize("member", ["localhost:%port%", "localhost", "127.0.0.1:4", "[::1]:4"])
    def test_a_member_of_this_machine_is_known_by_each_of_its_names(
        self, member: str, listens: str
    ) -> None:
        bench = Bench(members=(member, "a"))
        bench.agent("0", 1, address=[listens, 4])
        bench.agent("1", 1, address=["a", 4])
        with pytest.raises(PermissionError):
            bench.agent("2", 1, address=["b", 4])


class TestSeats:
    def ask(self, bench: Bench, name: str, caller: int, wanted: int, **fields: Any) -> Any:
        return bench.ask("seats", caller, name=name, wanted=wanted, **fields)

    def test_are_told_when_they_change(self, bench: Bench) -> None:
        assert self.ask(bench, "t", 5, 4) == {"seats": []}
        assert self.ask(bench, "t", 5, 4, known=[], wait_s=30.0) is None
        bench.agent("a", 1)
        bench.agent("b", 2)
        bench.pass_time(0.03)
        assert bench.heard(5) == {"seats": [["a", 1], ["b", 1], ["a", 1], ["b", 1]]}

        known = [["a", 1], ["b", 1], ["a", 1], ["b", 1]]
        assert self.ask(bench, "t", 5, 4, known=known, wait_s=30.0) is None
        bench.it.left(2)
        bench.pass_time(1.03)
        assert bench.heard(5) == {"seats": [["a", 1], ["a", 1]]}

    def test_are_dealt_to_all_who_want_some(self, bench: Bench) -> None:
        bench.agent("a", 1, cores=8)
        assert len(self.ask(bench, "t", 5, 8)["seats"]) == 8
        assert self.ask(bench, "t", 5, 8, known=[["a", 1]] * 8, wait_s=30.0) is None
        assert len(self.ask(bench, "u", 6, 8)["seats"]) == 4
        assert len(bench.heard(5)["seats"]) == 4
        assert self.ask(bench, "t", 5, 8, known=[["a", 1]] * 4, wait_s=30.0) is None
        bench.it.left(6)
        bench.pass_time(1.03)
        assert len(bench.heard(5)["seats"]) == 8

    def test_are_the_same_after_a_restart(self, kept: Bench) -> None:
        bench = kept
        for caller, name in enumerate("abc"):
            bench.agent(name, caller)
        seats = {name: self.ask(bench, name, 9, 2)["seats"] for name in ("t", "u", "v")}
        bench.restart()
        for caller, name in enumerate("cab"):  # in another order
            bench.agent(name, caller)
        for name in ("v", "t", "u"):
            assert self.ask(bench, name, 9, 2, held=seats[name])["seats"] == seats[name]

    def test_are_kept_until_agents_have_had_time_to_come_back(self, bench: Bench) -> None:
        held = [["a", 1], ["a", 1], ["b", 1]]
        assert self.ask(bench, "t", 5, 4, held=held)["seats"] == held
        assert self.ask(bench, "u", 6, 2, held=[["c", 1]])["seats"] == [["c", 1]]
        assert self.ask(bench, "t", 5, 4, held=held, known=held, wait_s=30.0) is None
        bench.agent("b", 1, cores=3)
        bench.pass_time(0.03)
        assert bench.heard(5)["seats"] == [*held, ["b", 1]]
        assert self.ask(bench, "t", 5, 4, known=[*held, ["b", 1]], wait_s=30.0) is None
        bench.pass_time(4.9)
        assert not bench.answers
        bench.pass_time(0.2)
        assert bench.heard(5)["seats"] == [["b", 1], ["b", 1]], "a did not come back"
        assert self.ask(bench, "u", 6, 2)["seats"] == [["b", 1]]

    def test_are_not_kept_where_a_trainer_could_not_have_them(self, bench: Bench) -> None:
        held = [["a", 1], ["b", 1]]
        assert self.ask(bench, "t", 5, 2, held=held)["seats"] == held
        bench.agent("b", 1, cores=3)
        bench.pass_time(0.03)
        assert self.ask(bench, "t", 5, 2, held=held, known=held, wait_s=30.0) is None
        told = {"held": held, "known": held, "lost": [["a", 1]], "wait_s": 30.0}
        assert self.ask(bench, "t", 5, 2, **told)["seats"] == [["b", 1], ["b", 1]]
        bench.agent("a", 2)
        bench.pass_time(0.03)
        assert ["a", 1] in self.ask(bench, "u", 6, 3)["seats"], "it is there after all"

    def test_are_not_told_when_the_time_is_up_as_news(self, bench: Bench) -> None:
        self.ask(bench, "t", 5, 4)
        assert self.ask(bench, "t", 5, 4, known=[], wait_s=2.0) is None
        bench.pass_time(2.1)
        assert bench.heard(5) == {"seats": []}


class TestJobs:
    def test_an_agent_starts_it_and_the_consumer_is_told(self, bench: Bench) -> None:
        registered(bench)
        assert bench.agent("a", 1, wait_s=5.0) is None
        assert bench.job(caller=9, wait_s=20.0, parameters={"n": 2}) is None
        order: dict[str, Any] = {"name": "train", "dataset": "d", "kind": "dealt"}
        order |= {"parameters": {"n": 2}, "again": False}
        assert bench.heard(1) == {"start": [order], "stop": []}
        assert bench.agent("a", 1, serves={"train": [0]}, wait_s=5.0) is None
        assert bench.heard(9) == {"address": A}
        assert bench.job(caller=10, parameters={"n": 2}) == {"address": A}

    def test_it_waits_for_an_agent(self, bench: Bench) -> None:
        registered(bench)
        assert bench.job(wait_s=20.0) is None
        assert bench.agent("a", 1)["start"]
        assert bench.job(caller=3) == {"address": None}

    def test_another_agent_starts_it_when_the_first_is_gone(self, bench: Bench) -> None:
        registered(bench)
        bench.agent("a", 1, wait_s=5.0)
        bench.agent("b", 2, wait_s=5.0)
        bench.job(wait_s=20.0)
        assert not bench.heard(1)["start"][0]["again"]
        bench.it.left(1)
        bench.pass_time(1.1)
        assert bench.heard(2)["start"][0]["again"], "it may have been served"

    def test_one_that_cannot_be_started(self, bench: Bench) -> None:
        registered(bench)
        bench.agent("a", 1, wait_s=5.0)
        bench.job(wait_s=20.0)
        bench.heard(1)
        bench.agent("a", 1, failed={"train": "ImportError: no module named x"}, wait_s=5.0)
        with pytest.raises(RuntimeError, match=r"'train' could not be started: ImportError: no"):
            bench.heard(9)
        assert bench.job(wait_s=20.0) is None, "asked again, it is tried again"
        assert not bench.heard(1)["start"][0]["again"], "nobody has served it"

    def test_one_whose_process_ends_after_it_gave_elements_is_started_again_as_such(
        self, bench: Bench
    ) -> None:
        registered(bench)
        bench.agent("a", 1, wait_s=5.0)
        bench.job(wait_s=20.0)
        assert not bench.heard(1)["start"][0]["again"]
        assert bench.agent("a", 1, serves={"train": [2]}, gave=[], wait_s=5.0) is None
        assert bench.agent("a", 1, gave=[], ended=end("train", "x"))["start"][0]["again"] is False
        assert bench.agent("a", 1, serves={"train": [2]}, gave=[], wait_s=5.0) is None
        ended = end("train", "y", gave=True)
        assert bench.agent("a", 1, gave=[], ended=ended)["start"][0]["again"] is True

    @pytest.mark.parametrize("gave", [{}, {"gave": ["train"]}])
    def test_one_that_its_agent_serves_no_more_gave_elements(
        self, bench: Bench, gave: dict[str, Any]
    ) -> None:
        """An agent of an earlier version does not tell; nor does one whose message was lost."""
        registered(bench)
        bench.agent("a", 1, wait_s=5.0)
        bench.job(wait_s=20.0)
        bench.agent("a", 1, serves={"train": [2]}, **gave)
        assert bench.agent("a", 1)["start"][0]["again"] is True

    def test_one_whose_process_ends_again_and_again(self, bench: Bench) -> None:
        registered(bench)
        bench.agent("a", 1, wait_s=5.0)
        assert bench.job(wait_s=20.0) is None
        for life in "xx", "xy", "xy":
            assert bench.agent("a", 1, ended=end("train", life))["start"], "the same end told twice"
        assert bench.job(caller=8, wait_s=20.0) is None
        assert bench.agent("a", 1, ended=end("train", "xz"), wait_s=5.0) is None
        for caller in (8, 9):
            with pytest.raises(RuntimeError, match=r"3 times in a row .* the last time, end xz"):
                bench.heard(caller)
        with pytest.raises(RuntimeError, match="3 times in a row"):
            bench.job(caller=10)
        bench.pass_time(4)
        assert bench.agent("a", 1) == {"start": [], "stop": []}
        bench.pass_time(7)
        assert bench.job(wait_s=20.0) is None, "much later it is tried again"
        assert bench.agent("a", 1)["start"]

    def test_one_whose_process_ends_often_and_goes_on_each_time(self, bench: Bench) -> None:
        registered(bench)
        bench.agent("a", 1)
        for life in map(str, range(9)):
            assert bench.job(wait_s=20.0, received=True) is None
            assert bench.agent("a", 1, ended=end("train", life))["start"]

    def test_the_loss_of_another_one_of_the_name_does_not_count(self, bench: Bench) -> None:
        registered(bench)
        bench.agent("a", 1)
        bench.job(wait_s=20.0)
        orders = {"train": {"dataset": "old", "kind": "dealt", "parameters": None}}
        for life in "xyz":
            bench.agent("a", 1, ended=end("train", life), orders=orders)
        assert bench.agent("a", 1, failed={"train": "no module"}, orders=orders)["start"]
        assert bench.job(caller=8, wait_s=20.0) is None

    def test_an_agent_of_the_consumers_versions_is_asked_first(self, bench: Bench) -> None:
        registered(bench)
        bench.agent("a", 1, versions=["1"])
        bench.agent("b", 2, versions=["2"])
        bench.job(wait_s=20.0, versions=["2"])
        assert bench.agent("b", 2, versions=["2"])["start"]

    def test_one_of_another_dataset(self, bench: Bench) -> None:
        registered(bench)
        bench.register("e", b"other", [["range#0", {"stop": 4}]], blobs=(b"other",))
        bench.job()
        with pytest.raises(IncompatibleJobError, match=r"range#0#0.stop: 4 here, 3 in the job"):
            bench.job(dataset="e")

    def test_an_agent_that_serves_another_one_of_the_name_is_told_to_serve_this(
        self, bench: Bench
    ) -> None:
        registered(bench)
        bench.agent("a", 1)
        older = {"dataset": "old", "kind": "dealt", "parameters": None}
        serves = {"train": [1, older]}
        assert bench.agent("a", 1, serves=serves) == {"start": [], "stop": ["train"]}
        assert bench.job(wait_s=20.0) is None
        told = bench.agent("a", 1, serves=serves)
        assert [order["dataset"] for order in told["start"]] == ["d"]
        assert told["stop"] == ["train"]
        newer = {"dataset": "d", "kind": "dealt", "parameters": None}
        assert bench.agent("a", 1, serves={"train": [0, newer]}, wait_s=5.0) is None
        assert bench.heard(9) == {"address": A}

    def test_is_not_forgotten_while_a_consumer_waits_for_it(self, bench: Bench) -> None:
        bench.it.close()
        bench.patience = replace(PATIENCE, job_s=5.0, check_s=1.0)
        bench.begin()
        registered(bench)
        bench.agent("a", 1)
        bench.job(wait_s=20.0)
        bench.pass_time(19.0)
        assert bench.it.state.jobs
        bench.pass_time(8.0)
        assert not bench.it.state.jobs

    def test_is_forgotten_and_stopped_when_nobody_uses_it(self, bench: Bench) -> None:
        registered(bench)
        bench.agent("a", 1)
        bench.job()
        serves = {"train": [1]}
        for _ in range(100):
            assert bench.agent("a", 1, serves=serves, wait_s=5.0) is None
            bench.pass_time(5.1)
            assert bench.heard(1) == {"start": [], "stop": []}
        stop: list[str] = []
        serves = {"train": [0]}
        while not stop and bench.now < 2000.0:
            assert bench.agent("a", 1, serves=serves, wait_s=5.0) is None
            bench.pass_time(5.1)
            stop = bench.heard(1)["stop"]
        assert stop == ["train"]
        assert not bench.ask("status")["jobs"]

    def test_goes_on_after_a_restart_where_it_is_served(self, kept: Bench) -> None:
        bench = registered(kept)
        bench.agent("a", 1)
        bench.job()
        bench.restart()
        assert bench.job(wait_s=20.0) is None
        assert not bench.agent("b", 2)["start"], "another agent may serve it, and say so soon"
        bench.pass_time(2.0)
        bench.agent("a", 1, serves={"train": [3]})
        assert bench.heard(9) == {"address": A}

    def test_goes_to_another_after_a_restart_if_nobody_says_that_he_serves_it(
        self, kept: Bench
    ) -> None:
        bench = registered(kept)
        bench.agent("a", 1)
        bench.job()
        bench.restart()
        assert bench.job(wait_s=20.0) is None
        assert bench.job("new", caller=8, wait_s=20.0) is None
        [order] = bench.agent("b", 2)["start"]
        assert (order["name"], order["again"]) == ("new", False)
        assert bench.agent("b", 2, serves={"new": [0]}, wait_s=12.0) is None
        bench.pass_time(5.1)
        [order] = bench.heard(2)["start"]
        assert (order["name"], order["again"]) == ("train", True)

    def test_is_not_told_to_be_where_its_agent_is_about_to_leave(self, bench: Bench) -> None:
        registered(bench)
        serves = {"train": [1]}
        bench.agent("a", 1)
        bench.job()
        bench.agent("a", 1, serves=serves)
        bench.agent("b", 2, wait_s=12.0)
        bench.it.left(1)
        assert bench.job(wait_s=20.0) is None
        bench.agent("a", 3, serves=serves)
        assert bench.heard(9) == {"address": A}, "it has dialled anew"
        bench.it.left(3)
        assert bench.job(wait_s=20.0) is None
        bench.pass_time(1.1)
        assert bench.heard(2)["start"][0]["again"]


def test_the_number_of_agents_that_are_wanted(kept: Bench) -> None:
    bench = kept
    bench.ask("scale", agents=7)
    bench.restart()
    assert bench.ask("status")["wanted"] == 7
    bench.ask("scale", agents=None)
    assert bench.ask("status")["wanted"] is None
    with pytest.raises(ValueError, match="from 0 on"):
        bench.ask("scale", agents=-1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"do": "nothing"}, "has no call 'nothing'; it knows heartbeat"),
        ({}, "has no call None"),
        ({"do": "heartbeat"}, "'heartbeat' with wrong fields"),
        ({"do": "heartbeat", "name": "a", "address": 3, "cores": 1}, "wrong fields"),
        ({"do": "seats", "name": "t", "wanted": None}, "wanted=None; it must be"),
        ({"do": "job", "name": "t"}, "wrong fields"),
    ],
)
def test_calls_that_are_wrong(bench: Bench, call: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bench.it.handle(dict(call), [], 1)


VALUES: list[Any] = [
    None, True, -1, 0, 3, 1e400, float("nan"), -1e9, 2**70, "", "a", "t", "é" * 99, [], ["h", 1], ["h", "x"],
    [["h", 1]], {}, {"j": [["h", 1], 0]}, {"j": 3}, {"j": "why"},
]  # fmt: skip
FIELDS = [
    "name",
    "address",
    "cores",
    "host",
    "versions",
    "serves",
    "failed",
    "ended",
    "gave",
    "orders",
    "received",
    "wait_s",
    "wanted",
    "held",
    "known",
    "near",
    "id",
    "digest",
    "nbytes",
    "plan",
    "dataset",
    "kind",
    "parameters",
    "agents",
    "trainer",
    "told",
]
CALLS = [
    "heartbeat",
    "leave",
    "register",
    "dataset",
    "seats",
    "job",
    "scale",
    "needs",
    "agents",
    "status",
    "nothing",
]


@pytest.mark.parametrize("seed", range(30))
def test_any_fields_are_answered_or_refused(seed: int) -> None:
    rng, bench = Random(seed), registered(Bench())
    for _ in range(200):
        fields = {
            name: rng.choice(VALUES) for name in rng.sample(FIELDS, rng.randrange(len(FIELDS)))
        }
        if rng.random() < 0.5:
            good = {"name": rng.choice("ab"), "address": ["h", 1], "cores": 1, "wanted": 2}
            fields = good | {name: rng.choice(VALUES) for name in rng.sample(FIELDS, 2)}
        try:
            bench.it.handle({"do": rng.choice(CALLS), **fields}, [b"x"], rng.randrange(9))
        except (ValueError, FileNotFoundError, RuntimeError):
            continue
        assert 0.0 <= bench.it.tick() <= 1.001
        bench.now += rng.random()
    assert bench.ask("status")["datasets"]
    bench.agent("after", 1)
    assert "after" in {agent.name for agent in bench.it.agents()}
    bench.pass_time(100.0)
    assert bench.it._parking.due() is None


def test_what_is_not_written_down_has_not_happened(kept: Bench) -> None:
    bench = registered(kept)

    def full(_: Any) -> None:
        raise OSError(28, "no space")

    append = bench.it._journal.append
    bench.it._journal.append = full  # type: ignore[method-assign, assignment]
    with pytest.raises(OSError, match="no space"):
        bench.job()
    with pytest.raises(OSError, match="no space"):
        bench.ask("scale", agents=3)
    status = bench.ask("status")
    assert (status["jobs"], status["wanted"]) == ([], None)
    bench.it._journal.append = append  # type: ignore[method-assign]
    bench.job()
    bench.restart()
    assert [job["name"] for job in bench.ask("status")["jobs"]] == ["train"]


def anything(rng: Random, bench: Bench, caller: int) -> Any:
    """A call of an agent, a trainer or a consumer."""
    match rng.randrange(3):
        case 0:
            return bench.agent(f"a{caller}", caller, wait_s=5.0)
        case 1:
            wanted = rng.randrange(5)
            return bench.ask(
                "seats", caller, name=f"t{caller}", wanted=wanted, known=[], wait_s=9.0
            )
        case _:
            return bench.job(f"j{caller % 3}", caller, wait_s=9.0)


@pytest.mark.parametrize("seed", range(10))
def test_agents_trainers_and_consumers_at_random(seed: int) -> None:
    """Every call that waits is answered once, whatever happens; nothing is kept of those that left."""
    rng, bench = Random(seed), registered(Bench())
    waiting: set[int] = set()
    for step in range(400):
        caller = rng.randrange(30)
        if caller in waiting:
            bench.pass_time(rng.random())
        elif rng.random() < 0.3:
            bench.it.left(caller)
        elif anything(rng, bench, caller) is None:
            waiting.add(caller)
        assert set(bench.answers) <= waiting, step
        waiting -= set(bench.answers)
        bench.answers.clear()
    for caller in range(30):
        bench.it.left(caller)
        waiting.discard(caller)
        assert set(bench.answers) <= waiting
        waiting -= set(bench.answers)
        bench.answers.clear()
    bench.pass_time(50.0)
    assert not bench.answers
    assert not bench.it._leaving
    assert bench.it._parking.due() is None
    assert not bench.it._speakers
    assert not bench.it.state.agents
    assert not bench.it.state.trainers
