"""Elements of several datasets, one at a time: the draws, and the machine that follows them."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tundish.errors import SpecError
from tundish.loader.operators.mixing import Choose, Mixing, Sample, Weighed
from tundish.loader.protocols.blame import raise_from
from tundish.loader.protocols.items import End, Failure, Made, Ref, rewrap
from tundish.loader.protocols.machines import Enumerated
from tundish.loader.protocols.refs import not_there
from tundish.loader.protocols.shuffling import pair_of_pass, philox32, philox_block
from tundish.loader.protocols.stated import (
    check_whole,
    count,
    flag,
    items,
    load_part,
    load_parts,
    part,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tundish.loader.protocols.operator import Builder, Machine, Mark, Operator, Value
    from tundish.loader.run.machines import MakeMachine
    from tundish.loader.run.values import Make, Maker

_KEY = (0x3EC8F720, 0x02461E29)
"""The key by which TensorFlow scrambles the two seeds of a stateless draw."""
_AT_ONCE = 1024


def uniforms(pair: tuple[int, int], first: int, count: int) -> np.ndarray:
    """The float64 numbers in [0, 1) that decide tf.data's weighted draws.

    Each takes two words of the stream of `pair` as the seeds of a generator of its own.

    Parameters
    ----------
    pair : (int, int)
        Of `seed_pair`.
    first, count : int
        Which draws; `first` is even.

    Returns
    -------
    (count,) float64 ndarray
    """
    words = philox32(*pair, first // 2, -(-count // 2))[: 2 * count]
    zero = np.zeros(count, np.uint64)
    mixed = philox_block((words[0::2], zero, words[1::2], zero), _KEY)
    high, low, _, _ = philox_block((zero, zero, mixed[2], mixed[3]), (mixed[0], mixed[1]))
    bits = np.uint64(1023 << 52) | (high & np.uint64(0xFFFFF)) << np.uint64(32) | low
    found: np.ndarray = bits.view(np.float64) - 1.0
    return found


def cumulated(weights: Sequence[float], *, wide: bool) -> list[float]:
    """The sums of weights up to each, as tf.data has them: relative to the largest.

    Of weight 0: no more than the one before, so that it is never drawn.
    """
    with np.errstate(divide="ignore"):
        logs = np.log(np.asarray(weights, np.float64 if wide else np.float32)).tolist()
    most, total, sums = max(logs), 0.0, []
    for log in logs:
        if log != -math.inf:
            total += math.exp(log - most)
        sums.append(total)
    return sums


class WeightedDraws:
    """Which input each draw of a `sample_from_datasets` chooses; a mark is how many there were.

    Parameters
    ----------
    node : Sample
        For its weights.
    pair : (int, int)
        The seeds of this pass.
    """

    def __init__(self, node: Sample, pair: tuple[int, int]) -> None:
        weights = node.weights or (1.0,) * len(node.ups)
        self.eligible = frozenset(at for at, weight in enumerate(weights) if weight)
        self._pair, self._count = pair, len(weights)
        self._sums = np.array(cumulated(weights, wide=node.wide)) if self.eligible else None
        self._last = max(self.eligible, default=0)
        self._drawn = 0
        self._left: list[int] = []

    def next(self, ended: frozenset[int]) -> int:
        if ended and len(ended) == self._count - 1:
            # As drawing until it comes, which might take for ever.
            return next(at for at in range(self._count) if at not in ended)
        if not self._left:
            assert self._sums is not None
            first = self._drawn - self._drawn % 2
            found = uniforms(self._pair, first, _AT_ONCE) * self._sums[-1]
            places = np.searchsorted(self._sums, found, side="right")
            chosen = np.minimum(places, self._last).tolist()
            self._left = chosen[self._drawn - first :][::-1]
        self._drawn += 1
        return self._left.pop()

    def mark(self) -> Mark:
        return self._drawn

    def dump(self, mark: Mark) -> Any:
        return mark

    def load(self, state: Any) -> None:
        self._drawn, self._left = check_whole(state), []


class Choices:
    """Which input each element of another dataset chooses; a mark is that of its stream."""

    def __init__(self, up: Machine, count: int, label: str) -> None:
        self.eligible = frozenset(range(count))
        self._up, self._count, self._label = up, count, label

    def next(self, _: frozenset[int]) -> int | Failure:
        item = self._up.next()
        ref = (self._count, item.ref)
        if type(item) is Failure:
            return Failure(ref, item.error)
        try:
            return check_choice(item.value, self._count)
        except (SpecError, IndexError) as error:
            error.add_note(f"tundish: in {self._label}, at element {item.ref} of the choices")
            return Failure(ref, error)

    def mark(self) -> Mark:
        return self._up.mark()

    def dump(self, mark: Mark) -> Any:
        return self._up.dump(mark)

    def load(self, state: Any) -> None:
        self._up.load(state)


def check_choice(value: Any, count: int) -> int:
    """A choice among so many inputs.

    Raises
    ------
    SpecError
        It is no scalar int64.
    IndexError
        There is no such input.
    """
    if type(value) is not np.int64:
        shown = f"{type(value).__name__} {value!r}"
        raise SpecError(f"a choice must be a scalar int64, not {shown:.200}")
    if not 0 <= value < count:
        raise IndexError(f"a choice must be from 0 to {count - 1}, not {value}")
    return int(value)


class Chooser(Protocol):
    """Who says which input comes next; may raise End and NotReady as a machine does."""

    eligible: frozenset[int]
    """Which inputs may be chosen at all."""

    def next(self, ended: frozenset[int]) -> int | Failure: ...
    def mark(self) -> Mark: ...
    def dump(self, mark: Mark) -> Any: ...
    def load(self, state: Any) -> None: ...


class Mixed:
    """An item of the input that a chooser names, at a time.

    A mark is (mark of the chooser, inputs that have ended, items given of each input, marks of the
    inputs), taken just after an item: a choice whose item is not ready yet is not in it, and is
    kept.
    """

    def __init__(self, node: Mixing, ups: list[Machine], chooser: Chooser) -> None:
        self._ups, self._chooser, self._stop = ups, chooser, node.stop
        self._names = node.names if isinstance(node, Sample) else None
        self._chosen: int | None = None
        self._ended: frozenset[int] = frozenset()
        self._given = (0,) * len(ups)
        self._below: tuple[Mark, ...] = tuple(up.mark() for up in ups)
        self._over = False
        self._at: Mark = chooser.mark()
        self._keep()

    def _keep(self) -> None:
        """Here a state may begin."""
        self._mark = (self._at, self._over, self._ended, self._given, self._below)

    def next(self) -> Any:
        while not self._over:
            if not self._chooser.eligible - self._ended:
                break
            which = self._chosen
            if which is None:
                try:
                    chosen = self._chooser.next(self._ended)
                except End:
                    self._at = self._chooser.mark()
                    break
                # A mark is good just after an item, not when one was not ready.
                self._at = self._chooser.mark()
                if isinstance(chosen, Failure):
                    self._keep()
                    return chosen
                which = self._chosen = chosen
            if which not in self._ended:
                try:
                    item = self._ups[which].next()
                except End:
                    self._ended |= {which}
                    self._reached(which)
                    if self._stop:
                        break
                else:
                    self._chosen = None
                    self._reached(which)
                    if self._names is not None:
                        given = self._given
                        self._given = (*given[:which], given[which] + 1, *given[which + 1 :])
                    self._keep()
                    return rewrap(item, partial(_in_part, which))
            self._chosen = None
        self._over, self._chosen = True, None
        self._keep()
        raise End

    def _reached(self, which: int) -> None:
        below = self._below
        self._below = (*below[:which], self._ups[which].mark(), *below[which + 1 :])

    def mark(self) -> Mark:
        return self._mark

    def dump(self, mark: Mark) -> Any:
        choice, over, ended, given, below = mark
        state = {
            "choice": self._chooser.dump(choice),
            "over": over,
            "ended": sorted(ended),
            "ups": [up.dump(m) for up, m in zip(self._ups, below, strict=True)],
        }
        if self._names is not None:
            state["sources"] = dict(zip(self._names, given, strict=True))
        return state

    def load(self, state: Any) -> None:
        load_part(self._chooser, state, "choice")
        load_parts(self._ups, state)
        self._over = flag(state, "over")
        ended = items(state, "ended", most=len(self._ups))
        with within("ended"):
            self._ended = frozenset(check_whole(at, most=len(self._ups) - 1) for at in ended)
        if self._names is not None:
            sources = part(state, "sources")
            with within("sources"):
                self._given = tuple(count(sources, name) for name in self._names)
        self._below = tuple(up.mark() for up in self._ups)
        self._at, self._chosen = self._chooser.mark(), None
        self._keep()


def _in_part(which: int, ref: Ref) -> Ref:
    return (which, ref)


def count_sources(state: Any) -> dict[str, int]:
    """How many elements named mixtures have given of each source, wherever they stand in a state."""
    found: dict[str, int] = {}
    if isinstance(state, dict):
        for key, value in state.items():
            below = value if key == "sources" else count_sources(value)
            for name, count in below.items():
                found[name] = found.get(name, 0) + count
    elif isinstance(state, list):
        for value in state:
            for name, count in count_sources(value).items():
                found[name] = found.get(name, 0) + count
    return found


def _sampled(builder: Builder, node: Sample, pass_: int) -> Machine:
    pair = pair_of_pass(builder.context.pair_of(node), pass_ if node.rerandomize else None)
    ups = [builder.build(up, pass_) for up in node.ups]
    return Mixed(node, ups, WeightedDraws(node, pair))


def _chosen(builder: Builder, node: Choose, pass_: int) -> Machine:
    choices = builder.computed(node.choice, pass_)
    ups = [builder.build(up, pass_) for up in node.ups]
    return Mixed(node, ups, Choices(choices, len(ups), builder.context.label(node)))


def _weighed(builder: Builder, node: Weighed, pass_: int) -> Machine:
    return Enumerated(builder.build(node.up, pass_))


def _mixed(maker: Maker, node: Mixing) -> Value:
    """The element of the input that a ref names; of a choice that failed, its error."""
    parts = [maker.below(node, up) for up in node.ups]
    count = len(parts)
    label = maker.context.label(node)
    if isinstance(node, Choose):
        choice = maker.at_hand(maker.value(node.choice))

        def refused(item: Any, pass_: int) -> Any:
            try:
                check_choice(choice(item, pass_), count)
            except (SpecError, IndexError) as error:
                raise_from(error, label)
            raise not_there("a choice that was refused")

        parts.append(refused)

    def value(item: Any, pass_: int) -> Any:
        ref: Any = item if type(item) is tuple else item.ref
        which, below = ref
        return parts[which](below if ref is item else Made(below, item.value), pass_)

    return value


def _drawn(maker: Maker, node: Weighed) -> Value:
    up, label = maker.below(node, node.up), maker.context.label(node)
    pair, count = maker.context.pair_of(node), node.count

    def value(item: Any, pass_: int) -> Any:
        weights = up(item[1], pass_)
        try:
            sums = _sums_of(weights, count)
        except SpecError as error:
            raise_from(error, label)
        drawn = item[0]
        seeds = pair_of_pass(pair, pass_ if node.rerandomize else None)
        found = uniforms(seeds, drawn - drawn % 2, 2)[drawn % 2] * sums[-1]
        last = max(at for at in range(count) if sums[at] > (sums[at - 1] if at else 0.0))
        return np.int64(min(int(np.searchsorted(sums, found, side="right")), last))

    return value


def _sums_of(weights: Any, count: int) -> list[float]:
    """Checked weights of one draw, cumulated.

    Raises
    ------
    SpecError
        They are not so many floats, or none is positive.
    """
    right = isinstance(weights, np.ndarray) and weights.dtype.kind == "f"
    if not right or weights.shape != (count,):
        raise SpecError(f"weights must be an array of {count} floats, not {weights!r:.200}")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise SpecError(f"weights must be finite, at least 0, and not all 0, not {weights!r:.200}")
    return cumulated(weights, wide=weights.dtype == np.float64)


MACHINES: dict[type[Operator], MakeMachine] = {Sample: _sampled, Choose: _chosen, Weighed: _weighed}
VALUES: dict[type[Operator], Make] = {Sample: _mixed, Choose: _mixed, Weighed: _drawn}
