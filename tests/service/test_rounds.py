"""A consumer of rounds that is killed for good: the others go on with their own elements, to the end."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from tests.service.asking import may_ask, take_back

from tundish.loader.service.jobs.claims import Claim
from tundish.loader.service.jobs.holding import Holding
from tundish.loader.service.jobs.job import SharedJob
from tundish.loader.service.jobs.requests import DealtElements, NothingMore, NothingYet

N, LEASE_S, MOST_STEPS = 60, 10.0, 5_000


class Rounds:
    """A job that deals 0 to N - 1 in rounds, its consumers, and what each has had."""

    def __init__(self, seed: int, consumers: int) -> None:
        self.random = random.Random(seed)
        self.consumers, self.now, self.lives = consumers, 0.0, 0
        self.holdings = {
            str(index): Holding(str(index), self.random.randrange(1, 4))
            for index in range(consumers)
        }
        self.had: dict[str, list[int]] = {name: [] for name in self.holdings}
        self.life = dict.fromkeys(self.holdings, "")
        self.start(again=False)

    def start(self, *, again: bool) -> None:
        """Begin the job, or begin it again in another process."""
        most = self.random.choice([4, 16])
        self.job = SharedJob(
            rounds=self.consumers, most=most, lease_s=LEASE_S, again=again, now=self.now, every=4
        )
        self.place = 0
        for holding in self.holdings.values():
            holding.joined = False

    def kill(self, name: str) -> None:
        """Kill a consumer; the job notices that its connection has ended."""
        del self.holdings[name]
        self.job.members.cut(name, self.life[name], self.now)

    def make(self) -> None:
        order = self.job.order()
        if order is None:
            return
        if order.begin:
            self.place = 0 if order.state is None else order.state["place"]
            if order.state is None:
                self.job.began(order.turn, {"place": 0})
        elif self.place == N:
            self.job.end(order.turn)
        else:
            self.place += 1
            state = {"place": self.place} if self.random.random() < 0.3 else None
            error = ValueError(f"element {self.place - 1}")
            late = self.place > N - 8 and self.place % 3 == 0  # elements that fail, up to the end
            self.job.made(order.turn, error if late else self.place - 1, 1, state)

    def talk(self, name: str) -> None:
        holding = self.holdings[name]
        if holding.ready:
            number, value = holding.deliver()
            assert value == number or str(value) == f"element {number}"
            self.had[name].append(number)
            return
        if not holding.joined:
            self.lives += 1
            self.life[name] = str(self.lives)
            claim: Any = json.loads(json.dumps(holding.claim().to_json()))
            assert self.job.join(Claim.from_json(claim), self.life[name], self.now) is None
            holding.join()
            return
        ask = holding.request() if may_ask(holding) else holding.report()
        answer = self.job.ask(name, self.life[name], ask)
        assert isinstance(answer, (DealtElements, NothingMore, NothingYet)), answer
        if isinstance(answer, DealtElements):
            assert ask.request is not None
            holding.came(ask.request, answer.elements, answer.told)
        elif isinstance(answer, NothingMore):
            holding.ended = True
        elif ask.request is not None:
            take_back(holding)
        if answer != NothingYet(heard=False):
            holding.heard(ask.received)

    def go(self, until: int) -> None:
        """Go on until so many elements were had, or to the end."""
        for _ in range(MOST_STEPS):
            waiting = [name for name, holding in self.holdings.items() if not holding.done]
            if not waiting or sum(map(len, self.had.values())) >= until:
                return
            self.now += 0.02
            self.job.tick(self.now)
            self.make()
            self.talk(self.random.choice(waiting))
        raise AssertionError("the others wait for ever")


@pytest.mark.parametrize("again", [False, True], ids=["it goes on", "it begins again"])
@pytest.mark.parametrize("seed", range(10))
def test_one_that_is_gone_for_good_holds_nobody_up(seed: int, again: bool) -> None:
    draw = random.Random(seed)
    rounds = Rounds(seed, draw.randrange(2, 5))
    rounds.go(draw.randrange(8, 30))
    gone = str(draw.randrange(rounds.consumers))
    rounds.kill(gone)
    if again:
        rounds.go(draw.randrange(20, 40))
        rounds.start(again=True)
    rounds.go(N)

    for name in rounds.holdings:
        whole = N // rounds.consumers * rounds.consumers
        assert rounds.had[name] == list(range(int(name), whole, rounds.consumers))
