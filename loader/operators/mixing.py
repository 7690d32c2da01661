"""The common part of operators that mix several datasets, one element at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.items import End, Failure, Made, Ref, rewrap
from tundish.loader.protocols.operator import Operator
from tundish.loader.protocols.refs import numbered
from tundish.loader.protocols.specs import joined
from tundish.loader.protocols.state_parsing import (
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
    from tundish.loader.protocols.contracts import Builder, Machine, Maker, Mark, Spec, Value


@dataclass(frozen=True, eq=False)
class Mixing(Operator):
    """Elements of several inputs, one at a time."""

    ups: tuple[Operator, ...]
    stop: bool
    """True if the first input that is chosen and has ended ends all."""

    origin = "part"
    flat = False

    @property
    def sources(self) -> tuple[str, ...] | None:
        """The names of the inputs, whose elements are counted; None if they have none."""
        return None

    @property
    def counts(self) -> bool:
        return self.sources is not None

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        if numbered(ref)[0] >= len(self.inputs):
            raise ValueError(f"it must begin with one of {len(self.inputs)} inputs")
        return [ref]

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return self.ups

    def spec(self, below: Spec) -> Any:
        return joined(self.ups)

    def chooser(self, builder: Builder, pass_: int) -> Chooser:
        """Build the chooser of the next input."""
        raise NotImplementedError

    def machine(self, builder: Builder, pass_: int) -> Machine:
        chooser = self.chooser(builder, pass_)
        return Mixed(self, [builder.build(up, pass_) for up in self.ups], chooser)

    def evaluator(self, maker: Maker) -> Value:
        parts = self.evaluators(maker)

        def value(item: Any, pass_: int) -> Any:
            ref: Any = item if type(item) is tuple else item.ref
            which, below = ref
            return parts[which](below if ref is item else Made(below, item.value), pass_)

        return value

    def evaluators(self, maker: Maker) -> list[Value]:
        """Compile the evaluators of the inputs, by the number that a ref begins with."""
        return [maker.below(self, up) for up in self.ups]


class Chooser(Protocol):
    """Chooses the next input; may raise End and NotReady like a machine."""

    eligible: frozenset[int]
    """The inputs that may be chosen."""

    def next(self, ended: frozenset[int]) -> int | Failure: ...
    def mark(self) -> Mark: ...
    def dump(self, mark: Mark) -> Any: ...
    def load(self, state: Any) -> None: ...


class Mixed:
    """The stream of items from the inputs that a chooser names.

    A mark is (mark of the chooser, inputs that have ended, items given of each input, marks of the
    inputs), as of the last item: a choice whose item is not ready yet is not part of it, and is
    kept.
    """

    def __init__(self, node: Mixing, ups: list[Machine], chooser: Chooser) -> None:
        self._ups, self._chooser, self._stop = ups, chooser, node.stop
        self._names = node.sources
        self._chosen: int | None = None
        self._ended: frozenset[int] = frozenset()
        self._given = (0,) * len(ups)
        self._below: tuple[Mark, ...] = tuple(up.mark() for up in ups)
        self._over = False
        self._at: Mark = chooser.mark()
        self._keep()

    def _keep(self) -> None:
        """Record the present marks, so that a state can be taken here."""
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
                # Take the mark right after an item: an input that raises NotReady may have moved on in part.
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
    """Return how many elements named mixtures have taken from each source, from anywhere in a state."""
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


def several(datasets: Any) -> tuple[tuple[str, ...] | None, tuple[Operator, ...]]:
    """Return the names of datasets, if they have any, and their nodes."""
    names = None
    if isinstance(datasets, Mapping):
        names = tuple(datasets)
        for key in names:
            if not isinstance(key, str):
                raise TypeError(f"names of datasets must be str, not {key!r}")
        found = list(datasets.values())
    elif isinstance(datasets, Sequence) and not isinstance(datasets, (str, bytes)):
        found = list(datasets)
    else:
        raise TypeError(
            f"datasets must be a list or tuple of datasets, not {type(datasets).__name__}"
        )
    if not found:
        raise ValueError("datasets must hold at least one dataset, not 0")
    for at, dataset in enumerate(found):
        if not isinstance(dataset, Fluent):
            where = at if names is None else repr(names[at])
            raise TypeError(f"datasets[{where}] must be a Dataset, not {type(dataset).__name__}")
    return names, tuple(dataset._node for dataset in found)  # noqa: SLF001 - ours
