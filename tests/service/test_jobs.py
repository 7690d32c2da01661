"""Shared jobs: random schedules of everything that can go wrong, on real iterators and on recordings of them.

In the end every element must stand once in the history that survived: none missing, none twice. Where a job cannot know
that any more it must say so; then the training goes back to its last checkpoint.

Most of the time of a schedule is that of the iterators that it opens. So in `make test` most schedules play what real
iterators have given; each state from which one goes on was compared with a real iterator that goes on from it.
"""

from __future__ import annotations

import functools
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.service.asking import may_ask, take_back

import tundish as td
from tundish.errors import CheckpointError
from tundish.loader.run.iterator import Iterator
from tundish.loader.service.jobs.claims import Claim, Common
from tundish.loader.service.jobs.holding import Holding
from tundish.loader.service.jobs.job import SharedJob
from tundish.loader.service.jobs.merging import merge_claims
from tundish.loader.service.jobs.ranges import within
from tundish.loader.service.jobs.requests import (
    DealtElements,
    Declined,
    ElementRequest,
    JoinAnew,
    NothingMore,
    NothingYet,
)
from tundish.loader.service.jobs.window import SharedWindow

N = 40
LEASE_S = 10.0
MOST_STEPS = 60_000


def sometimes_fails(x: Any, rng: Any) -> int:
    if int(x) % 37 == 5:
        raise ValueError(f"element {int(x)}")
    return int(x) * 1000 + int(rng.integers(1000))


def dataset() -> td.Dataset:
    ds = td.Dataset.range(3 * N).shuffle(None).map(sometimes_fails, seed=5)
    return ds.ignore_errors().batch(3).map(fails)


def fails(batch: Any) -> Any:
    if int(batch[0]) % 11 == 3:
        raise ValueError(f"batch that begins with {int(batch[0])}")
    return batch


DS = dataset()


def shown(value: Any) -> Any:
    return str(value) if isinstance(value, (str, Exception)) else tuple(value.tolist())


def all_of(it: Any) -> list[Any]:
    found = []
    while True:
        try:
            found.append(shown(next(it)))
        except StopIteration:
            return found
        except ValueError as error:
            found.append(str(error))


SEEDS = (1, 2)


def opened(seed: int = SEEDS[0]) -> Iterator:
    return Iterator(DS._node, workers=0, base_seed=seed)


WANTS = {seed: all_of(opened(seed)) for seed in SEEDS}

Step = tuple[Any, str]
"""An element, or the text of an error, and the state behind it."""


MOST_AGAIN = 5
"""Elements that a real iterator gives from each state."""


def steps_of(it: Iterator, most: int | None = None) -> list[Step]:
    """Return what an iterator gives next."""
    found: list[Step] = []
    while len(found) != most:
        try:
            value: Any = next(it)
        except StopIteration:
            return found
        except ValueError as error:
            value = str(error)
        found.append((value, json.dumps(it.state_dict())))
    return found


@functools.cache
def recording(seed: int) -> list[Step]:
    """Return all that an iterator gives; the first stands for its beginning."""
    it = opened(seed)
    return [(None, json.dumps(it.state_dict())), *steps_of(it)]


@functools.cache
def place_of(state: str) -> tuple[int, int]:
    """Return the seed of a state and its place, from which a real iterator goes on as the recording does."""
    for seed, other in (SEEDS, SEEDS[::-1]):
        at = next((k for k, (_, text) in enumerate(recording(seed)) if text == state), None)
        if at is not None:
            it = opened(other)
            it.load_state_dict(json.loads(state))
            rest, want = steps_of(it, MOST_AGAIN), recording(seed)[at + 1 :][:MOST_AGAIN]
            assert [(shown(value), text) for value, text in rest] == [
                (shown(value), text) for value, text in want
            ]
            return seed, at
    raise AssertionError(f"no iterator was in the state {state}")


class Played:
    """An iterator that gives what real ones have given."""

    def __init__(self, seed: int = SEEDS[0]) -> None:
        self._seed, self._at = seed, 0

    def __next__(self) -> Any:
        steps = recording(self._seed)
        if self._at + 1 == len(steps):
            raise StopIteration
        self._at += 1
        value = steps[self._at][0]
        if isinstance(value, str):
            raise ValueError(value)  # noqa: TRY004 - as the real one raised it
        return value

    def state_dict(self) -> Any:
        return json.loads(recording(self._seed)[self._at][1])

    def load_state_dict(self, state: Any) -> None:
        self._seed, self._at = place_of(json.dumps(state))


@dataclass
class Trainer:
    """A consumer, and what its user has of it."""

    holding: Holding
    life: str = ""
    got: list[Any] = field(default_factory=list)
    saved: Any = None  # a state, and what had come by then
    cut: bool = False
    ended: bool = False
    over: bool = False  # it had ended, and the job has begun again without it


class Run:
    """One random schedule."""

    def __init__(self, seed: int, *, rounds: bool, opened: Callable[[int], Any] = Played) -> None:
        self.random, self.opened = random.Random(seed), opened
        self.rounds, self.counts = rounds, Counter[str]()
        self.now, self.lives, self.names = 0.0, 0, 0
        self.came: defaultdict[str, set[int]] = defaultdict(set)  # what ever came to which consumer
        self.dead: set[int] = set()  # numbers that consumers had who never came back
        self.unnoticed: list[tuple[str, str]] = []  # who is gone, and the job does not know yet
        self.checkpoint: Any = None  # what all had at one step, and what had come by then
        self.members = self.random.randrange(1, 5)
        self.trainers: dict[str, Trainer] = {}
        for index in range(self.members):
            self.add(str(index))
        self.start(again=False)

    # -- the job and its iterator -------------------------------------------------------------

    def start(self, *, again: bool) -> None:
        self.job = SharedJob(
            rounds=self.members if self.rounds else None,
            most=self.random.choice([4, 8, 64]),
            lease_s=LEASE_S,
            again=again,
            now=self.now,
            every=self.random.choice([1, 4, 16]),
        )
        self.iterator: Any = None
        self.beginning: Any = None  # an iterator that has begun, which the job does not know yet

    def work(self) -> None:
        if self.beginning is not None:
            self.job.began(*self.beginning)
            self.beginning = None
            return
        order = self.job.order()
        if order is None:
            return
        if order.begin:
            # A dataset without a seed is in another order each time, unless the job has a state of it.
            self.iterator = self.opened(self.random.choice(SEEDS))
            if order.state is not None:
                self.iterator.load_state_dict(order.state)
            state = order.state or json.loads(json.dumps(self.iterator.state_dict()))
            self.beginning = order.turn, state
            self.counts["begun"] += 1
            if self.random.random() < 0.5:
                self.work()
            return
        try:
            value = next(self.iterator)
        except StopIteration:
            self.job.end(order.turn)
            return
        except ValueError as error:
            value = error
        state = self.iterator.state_dict() if self.random.random() < 0.4 else None
        self.job.made(order.turn, value, 1, state)
        self.counts["made"] += 1

    # -- consumers ----------------------------------------------------------------------------

    def add(self, name: str, state: Any = None, got: Any = ()) -> None:
        trainer = Trainer(Holding(name, self.random.randrange(1, 4)), got=list(got))
        for _ in range(self.random.choice([0, 50, 500])):  # one that asks for several at once
            trainer.holding.used(0.0)
        if state is not None:
            trainer.holding.load(Claim.from_json(json.loads(state)))
        self.trainers[name] = trainer

    def save(self, trainer: Trainer) -> None:
        state = json.dumps(trainer.holding.dump(trainer.holding.mark()))
        trainer.saved = state, list(trainer.got)

    def talk(self, name: str) -> None:
        """Let a consumer take, or say, one thing."""
        trainer, holding = self.trainers[name], self.trainers[name].holding
        if holding.ready and self.random.random() < 0.7:
            number, value = holding.deliver()
            trainer.got.append((number, shown(value)))
            holding.used(self.random.choice([0.0, 0.004, 0.1]))
            return
        if trainer.cut or trainer.ended:
            return
        if not holding.joined:
            self.lives += 1
            trainer.life = str(self.lives)
            claim = Claim.from_json(json.loads(json.dumps(holding.claim().to_json())))
            answer: Any = self.job.join(claim, trainer.life, self.now)
            if self.lost(trainer):
                return
            if answer is None:
                holding.join()
            else:
                self.refused(answer)
            return
        asks = may_ask(holding)
        ask = holding.request() if asks else holding.report()
        request = ask.request
        answer = self.job.ask(name, trainer.life, ask)
        if request is not None and self.random.random() < 0.3:  # it is asked twice
            same = self.job.ask(name, trainer.life, ask)
            assert getattr(answer, "elements", None) == getattr(same, "elements", None)
        if self.lost(trainer):
            return
        match answer:
            case Declined():
                self.refused(answer)
                return
            case JoinAnew():
                trainer.holding.joined = False
                return
            case DealtElements(elements, told):
                assert request is not None
                assert 1 <= len(elements) <= ask.most
                self.counts["elements with others"] += len(elements) - 1
                self.came[name].update(number for number, _ in elements)
                holding.came(request, elements, told)
            case NothingMore():
                holding.ended = True
            case NothingYet():
                if request is not None:
                    take_back(holding)
        if answer != NothingYet(heard=False):
            holding.heard(ask.received)
        if holding.done:
            trainer.ended = True
            self.job.leave(name, trainer.life)

    def lost(self, trainer: Trainer) -> bool:
        if self.random.random() > 0.08:
            return False
        self.counts["lost answers"] += 1
        trainer.holding.joined = False
        return True

    def refused(self, answer: Declined) -> None:
        """Let all go back to the last checkpoint, as its message says."""
        self.counts["refused"] += 1
        self.go_back(merged=not self.rounds and self.random.random() < 0.5)

    # -- what goes wrong ----------------------------------------------------------------------

    def go_back(self, *, merged: bool) -> None:
        self.counts["gone back"] += 1
        self.dead = set()
        for name, trainer in self.trainers.items():  # they are noticed at once, or later
            self.unnoticed.append((name, trainer.life))
        self.notice(0.7)
        if self.checkpoint is None:
            for name in list(self.trainers):
                self.add(name)
            self.start(again=False)
            return
        states, gots = self.checkpoint
        merged = merged or "" in states
        keeps = self.random.random() < 0.5 and not merged
        merged = merged or (self.rounds and self.random.random() < 0.3)
        if merged:
            base = merge_claims([Claim.from_json(json.loads(s)) for s in states.values()])
            state = json.dumps(Claim("", base).to_json())
            members = self.random.randrange(1, 5)
            keeps = not self.rounds or members == self.members
            self.members = members
            self.trainers = {}
            names = (
                [str(i) for i in range(members)]
                if self.rounds
                else [self.new() for _ in range(members)]
            )
            for name in names:
                self.add(name, state)
            self.trainers[names[0]].got = [e for got in gots.values() for e in got]
            for trainer in self.trainers.values():
                trainer.saved = (state, list(trainer.got))
            self.checkpoint = {"": state}, {"": list(self.trainers[names[0]].got)}
            self.counts["merged"] += 1
        else:
            self.trainers = {}
            for name, state in states.items():
                self.add(name, state, gots[name])
                self.trainers[name].saved = (state, list(gots[name]))
        if not keeps:
            self.start(again=self.random.random() < 0.5)

    def rest(self) -> None:
        """Have the iterator end as all consumers are gone for longer than a lease; then they are back."""
        for name, member in self.job.members.items():
            self.job.members.cut(name, member.life, self.now)
        for trainer in self.trainers.values():
            trainer.holding.joined = False
        self.now += LEASE_S
        while self.job.members:
            self.job.tick(self.now)
        rested = self.job.rested()
        if rested is not None:
            self.counts["rested"] += 1
            self.job, self.iterator, self.beginning = rested, None, None

    def notice(self, probability: float) -> None:
        for each in list(self.unnoticed):
            if self.random.random() < probability:
                self.unnoticed.remove(each)
                self.job.members.cut(*each, self.now)

    def new(self) -> str:
        self.names += 1
        return f"c{self.names}"

    def happen(self) -> None:
        """Let something happen that is no consumer's own."""
        what = self.random.random()
        name = self.random.choice(list(self.trainers))
        trainer = self.trainers[name]
        if what < 0.15:
            self.counts["job crashes"] += 1
            self.start(again=self.random.random() < 0.8)
            for each in self.trainers.values():
                each.over = each.over or each.ended
                if self.random.random() < 0.5:  # others notice when they ask
                    each.holding.joined = False
        elif what < 0.45:  # a checkpoint of all, or of one
            for each in self.trainers.values():
                self.save(each)
            states = {n: t.saved[0] for n, t in self.trainers.items()}
            gots = {n: t.saved[1] for n, t in self.trainers.items()}
            try:
                merge_claims([Claim.from_json(json.loads(s)) for s in states.values()])
            except CheckpointError:  # one has gone back, and others have not heard of it yet
                self.counts["checkpoints that do not fit"] += 1
                return
            self.checkpoint = None if self.dead else (states, gots)
            self.counts["checkpoints"] += 1
        elif what < 0.5:
            self.save(trainer)
        elif what < 0.62:
            self.counts["cut off"] += 1
            trainer.cut, trainer.holding.joined = True, False
            self.job.members.cut(name, trainer.life, self.now)
        elif what < 0.72:
            self.counts["killed, back with its state"] += 1
            self.job.members.cut(name, trainer.life, self.now)
            self.add(name, *(trainer.saved or (None, ())))
            self.trainers[name].saved = trainer.saved
            if self.random.random() < 0.3:  # it reads before its state is loaded
                self.lives += 1
                self.job.join(Claim(name), str(self.lives), self.now)
        elif what < 0.76 and len(self.trainers) > 1 and not self.rounds:
            self.counts["killed for ever"] += 1
            self.job.members.cut(name, trainer.life, self.now)
            del self.trainers[name]
            # What it had, was about to deliver, or had before it went back may count as had.
            self.dead |= {number for number, _ in trainer.got} | self.came[name]
            self.checkpoint = None  # a training that goes on without one of its trainers
        elif what < 0.82 and not self.rounds and len(self.trainers) < 5:
            self.counts["joined"] += 1
            self.add(self.new())
            self.checkpoint = None
        elif what < 0.9:
            self.go_back(merged=not self.rounds and self.random.random() < 0.5)
        elif what < 0.94:
            self.rest()
        else:
            self.now += LEASE_S * self.random.random()

    def step(self) -> None:
        self.now += 0.01
        self.notice(0.01)
        what = self.random.random()
        if what < 0.3:
            self.work()
        elif what < 0.985:
            name = self.random.choice(list(self.trainers))
            trainer = self.trainers[name]
            if trainer.cut and self.random.random() < 0.02:
                trainer.cut = False
            self.talk(name)
        else:
            self.happen()
        self.job.tick(self.now)
        owners = self.job._owners
        above = {owners._names[each] for each in owners._owners[owners.low - owners.floor :]}
        assert owners.above_low() == above - {""}

    def go(self) -> None:
        for _ in range(MOST_STEPS):
            if all(trainer.ended for trainer in self.trainers.values()):
                break
            self.step()
        else:
            raise AssertionError("it came to no end")
        self.compare()
        self.compare_alone()

    # -- what must hold -----------------------------------------------------------------------

    def want(self, got: list[Any]) -> list[Any]:
        """Return all elements in the order that those have, whichever it is."""
        orders = [list(enumerate(want)) for want in WANTS.values()]
        return max(orders, key=lambda order: sum(each in got for each in order))

    def compare(self) -> None:
        there, before = list[Any](), list[Any]()
        for trainer in self.trainers.values():
            (before if trainer.over else there).extend(trainer.got)
            assert not [each for each in trainer.got if each not in self.want(trainer.got)]
        want = self.want(there or before)
        assert len({number for number, _ in there}) == len(there), "twice"
        # If nobody was there any more, the job may have begun in another order.
        got = there + [each for each in before if each in want]
        missing = [each for each in want if each not in got]
        if self.rounds:  # a round that is not whole is nobody's
            assert len(missing) < self.members
        else:
            assert not [number for number, _ in missing if number not in self.dead]
        assert not [each for each in got if each not in want]

    def compare_alone(self) -> None:
        if self.checkpoint is None:
            return
        states, gots = self.checkpoint
        base = merge_claims([Claim.from_json(json.loads(s)) for s in states.values()])
        it = self.opened(SEEDS[0])
        if base.state is not None:
            it.load_state_dict(dict(base.state))
        rest = list(enumerate(all_of(it), base.at))
        had = within(base.ahead, base.low)
        rest = [
            each for each in rest if each[0] >= base.low and not within(had, each[0], each[0] + 1)
        ]
        got = [each for got in gots.values() for each in got]
        assert sorted(got + rest) == self.want(got + rest)


def run_all(
    count: int, *, rounds: bool, first: int = 0, opened: Callable[[int], Any] = Played
) -> Counter[str]:
    total: Counter[str] = Counter()
    for seed in range(first, first + count):
        run = Run(seed, rounds=rounds, opened=opened)
        try:
            run.go()
        except Exception as error:
            error.add_note(f"schedule {seed}, rounds={rounds}: {dict(run.counts)}")
            raise
        total += run.counts
    return total


@functools.cache
def of_forty(*, rounds: bool) -> Counter[str]:
    """What happens in forty schedules of a job that nobody has broken."""
    return run_all(40, rounds=rounds)


KINDS = pytest.mark.parametrize("rounds", [False, True], ids=["shared", "rounds"])


@KINDS
def test_nothing_is_missing_and_nothing_comes_twice(rounds: bool) -> None:
    counts = of_forty(rounds=rounds)
    few = run_all(4, rounds=rounds, opened=opened)

    assert few == run_all(4, rounds=rounds)
    assert counts["job crashes"] > 30
    assert counts["rested"] > 5
    assert counts["killed, back with its state"] > 20
    assert counts["elements with others"] > 100


@pytest.mark.thorough
@KINDS
@pytest.mark.parametrize("first", range(1000, 2500, 100))
def test_many_schedules(first: int, rounds: bool) -> None:
    run_all(100, rounds=rounds, first=first, opened=opened)


def forget_who_was_there(self: SharedJob, now: float) -> None:
    """Deal as soon as one consumer has joined."""
    self._began = now - 2 * LEASE_S
    SETTLE(self, now)


def believe(self: SharedJob, claim: Claim) -> None:
    """Forget what a consumer says that it has had."""
    self.members[claim.consumer].refused = None


def know_everybody(self: SharedJob, consumer: str, life: str, ask: ElementRequest) -> Any:
    """Answer consumers of the job before this one as if they had joined."""
    if consumer not in self.members:
        self.join(Claim(consumer), life, 0.0)
    return ASK(self, consumer, life, ask)


def tell_nobody(self: SharedJob, number: int) -> None:
    """Leave what a consumer gives up with it."""


SETTLE, ASK = SharedJob._settle, SharedJob.ask


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("_apply", believe),
        ("_give_up", tell_nobody),
        ("ask", know_everybody),
    ],
    ids=["claims", "freeing", "epoch"],
)
def test_a_broken_job_is_caught(name: str, broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharedJob, name, broken)

    with pytest.raises((AssertionError, CheckpointError)):
        run_all(300, rounds=False)


def test_a_job_that_does_not_wait_for_who_was_there_refuses_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = of_forty(rounds=False)["refused"]
    monkeypatch.setattr(SharedJob, "_settle", forget_who_was_there)

    assert run_all(40, rounds=False)["refused"] > 2 * waits


def claim(name: str, low: int, had: Any = (), **fields: Any) -> Claim:
    return Claim(name, Common(low, **{"state": {"seed": 1}, **fields}), tuple(had))


def test_states_of_different_steps_are_not_merged() -> None:
    first = claim("a", 4, counts={"a": 2, "b": 2}, members=("a", "b"))
    older = claim("b", 1, counts={"a": 1}, members=("a", "b"))

    with pytest.raises(CheckpointError, match="'b' has had 0 of the first 4 elements in its own"):
        merge_claims([first, older])
    with pytest.raises(CheckpointError, match="the states of consumers 'b' are missing"):
        merge_claims([first])
    with pytest.raises(CheckpointError, match="two of the states are of consumer 'a'"):
        merge_claims([first, first])


def test_merged_states_have_low_water_and_the_ranges_above_it() -> None:
    members = {"members": ("a", "b"), "counts": {"a": 2, "b": 2}, "at": 3}
    merged = merge_claims(
        [claim("a", 4, [(4, 5), (7, 9)], **members), claim("b", 4, [(5, 6)], **members)]
    )

    assert (merged.low, merged.ahead, merged.at) == (6, ((7, 9),), 3)
    assert merge_claims([Claim("", merged)]) == merged


def test_a_consumer_that_comes_back_after_its_lease_goes_on() -> None:
    job, a, b = SharedJob(lease_s=1.0), Holding("a"), Holding("b")
    for holding in (a, b):
        assert job.join(holding.claim(), holding.consumer, 0.0) is None
        holding.join()
    order = job.order()
    assert order is not None
    job.began(order.turn, {"seed": 1})
    for value in "xyz":
        job.made(order.turn, value)

    for _ in range(2):  # the job hears that 0 has come, and not that 1 has
        ask = a.request()
        answer = job.ask("a", "a", ask)
        assert isinstance(answer, DealtElements)
        assert ask.request is not None
        a.came(ask.request, answer.elements, answer.told)
        a.heard(ask.received)
    job.members.cut("a", "a", 0.0)
    assert a.deliver() == (0, "x")
    assert not a.ready  # somebody else may get it, once the lease has run out
    job.tick(1.0)
    taken = job.ask("b", "b", b.request())
    assert isinstance(taken, DealtElements)
    assert [number for number, _ in taken.elements] == [1]

    assert job.join(a.claim(), "a again", 2.0) is None
    a.join()
    answer = job.ask("a", "a again", a.request())
    assert isinstance(answer, DealtElements)
    assert [number for number, _ in answer.elements][:1] == [2]
    assert isinstance(job.ask("a", "a", ElementRequest(None, 0, 0)), Declined)


def test_a_job_does_not_begin_with_the_merged_state_of_one_that_left_before() -> None:
    """A new consumer begins alone then, and the other is not taken for one of the same run when it comes back."""
    job = SharedJob(lease_s=1.0, again=True)
    merged = claim("old", 3, generation=(1, "d"), origin=3, state={"seed": 7})
    assert job.join(merged, "1", 0.0) is None
    job.members.cut("old", "1", 0.0)
    job.tick(1.0)
    assert job.join(Holding("new").claim(), "2", 2.0) is None
    order = job.order()
    assert order is not None
    assert order.state is None
    job.began(order.turn, {"seed": 8})
    job.made(order.turn, "x")
    assert isinstance(job.ask("new", "2", ElementRequest(0, 0, 0)), DealtElements)

    assert job.join(merged, "3", 3.0) is None
    assert job.ask("new", "2", ElementRequest(1, 1, 0)) == JoinAnew()
    other = claim("new", 0, [(0, 1)], state={"seed": 8})
    assert isinstance(job.join(other, "4", 3.0), Declined)


def test_a_consumer_that_is_silent_costs_the_others_no_memory() -> None:
    """In a long step it keeps the elements that are on their way to it, and what others have from there on stays listed."""
    job, quick, silent = SharedJob(), Holding("quick"), Holding("silent")
    for holding in (quick, silent):
        assert job.join(holding.claim(), holding.consumer, 0.0) is None
        holding.join()
    order = job.order()
    assert order is not None
    job.began(order.turn, {"seed": 1})
    for number in range(20_000):
        order = job.order()
        assert order is not None
        job.made(order.turn, number, 1, {"seed": 1, "number": number})
        if number == 0:
            assert isinstance(job.ask("silent", "silent", silent.request()), DealtElements)
            continue
        ask = quick.request()
        assert ask.request is not None
        answer = job.ask("quick", "quick", ask)
        assert isinstance(answer, DealtElements)
        quick.came(ask.request, answer.elements, answer.told)
        quick.heard(quick._received)
        assert quick.deliver() == (number, number)

    assert len(job._made.states) < 200
    assert quick._links <= 1024
    assert quick.claim().had == ((1, 20_000),)


def test_consumers_with_states_merged_before_the_first_element_take_part_together() -> None:
    """Such states name a generation, and no state of the iterator."""
    job = SharedJob()
    for name in "ab":
        assert job.join(claim(name, 0, state=None, generation=(1, "d")), name, 0.0) is None

    assert job.generation == (1, "d")
    assert job.members.keys() == {"a", "b"}


def test_the_first_elements_of_a_consumer_come_with_the_run_that_they_are_of() -> None:
    """Also while another is doubted: else it would bring elements, and no seed, to the job that starts again."""
    job = SharedJob()
    for name in "ab":
        assert job.join(claim(name, 0, state=None, generation=(1, "d")), name, 0.0) is None
    order = job.order()
    assert order is not None
    job.began(order.turn, {"seed": 8})
    job.made(order.turn, "x")
    assert job.members["a"].doubted
    answer = job.ask("b", "b", ElementRequest(0, 0, 0))

    assert isinstance(answer, DealtElements)
    assert answer.told is not None
    assert answer.told[0].state == {"seed": 8}
    assert answer.told[0].members == ("a", "b")


def test_a_consumer_with_elements_in_hand_alone_brings_their_run() -> None:
    job, holding = SharedJob(), Holding("a")
    assert job.join(holding.claim(), "1", 0.0) is None
    holding.join()
    order = job.order()
    assert order is not None
    job.began(order.turn, {"seed": 8})
    job.made(order.turn, "x")
    ask = holding.request()
    answer = job.ask("a", "1", ask)
    assert isinstance(answer, DealtElements)
    assert ask.request is not None
    holding.came(ask.request, answer.elements, answer.told)
    holding.heard(1)
    again = SharedJob()
    assert again.join(holding.claim(), "2", 0.0) is None
    order = again.order()

    assert order is not None
    assert order.state == {"seed": 8}
    assert holding.deliver() == (0, "x")


def test_a_job_whose_iterator_was_not_ordered_takes_the_seeds_of_a_state_that_comes() -> None:
    job = SharedJob()
    assert job.join(Holding("new").claim(), "1", 0.0) is None
    with_state = claim("old", 0, [(0, 3)], state={"seed": 7}, members=("old",))
    assert job.join(with_state, "2", 0.0) is None

    assert job.ask("new", "1", ElementRequest(0, 0, 0)) == JoinAnew()
    order = job.order()
    assert order is not None
    assert order.state == {"seed": 7}


@pytest.mark.parametrize("job", [SharedJob(), SharedWindow(), SharedWindow(waits=True)])
def test_a_job_that_begins_takes_the_seeds_of_a_state_that_comes_meanwhile(job: Any) -> None:
    """A new consumer came first, and the iterator has begun with seeds of its own, when one comes with its state."""
    assert job.join(Holding("new").claim(), "1", 0.0) is None
    begun = job.order()
    assert begun.begin
    assert begun.state is None
    with_state = claim("old", 0, [(0, 3)], state={"seed": 7}, members=("old",))
    assert job.join(with_state, "2", 0.0) is None
    job.began(begun.turn, {"seed": 8})
    job.made(begun.turn, "of seed 8")

    assert job.ask("new", "1", ElementRequest(0, 0, 0)) == JoinAnew()
    order = job.order()
    assert order.begin
    assert order.state == {"seed": 7}
    assert job.join(Holding("new").claim(), "3", 0.0) is None
    for value in "abcd":
        job.made(order.turn, value)
    answer = job.ask("new", "3", ElementRequest(0, 0, 0))
    assert [(number, value) for number, value in answer.elements] == [(3, "d")]
