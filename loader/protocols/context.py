"""The context of an iterator, shared by its machines and evaluators: seeds, node numbers, options."""

from __future__ import annotations

import hashlib
import os
import weakref
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tundish.formats.kept import ROOM
from tundish.loader.plan.node import global_seed, walk
from tundish.loader.protocols.generating import BrokenElement
from tundish.loader.protocols.probes import Look, Probe, seeing
from tundish.loader.protocols.refs import not_there
from tundish.loader.protocols.shuffling import seed_pair
from tundish.loader.watch.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tundish.loader.protocols.items import Ref
    from tundish.loader.protocols.operator import Operator

    Replay = Callable[["Context", Operator, int], Iterator[tuple[Ref, Any]]]


@dataclass(eq=False)
class Context:
    """The data that is constant over an iterator's life, and the same in every worker.

    Parameters
    ----------
    root : Operator
        The plan.
    iteration : int
        The number of this iteration of the dataset object: the first digit of every pass number.
    base_seed : int
        The seed from which operators without one derive theirs.
    graph_seed : int or None
        The seed given to `set_seed`.
    prefix : tuple
        The origin of the element from which a `flat_map` made this plan; () for an iterator's own.
    """

    root: Operator
    iteration: int
    base_seed: int
    graph_seed: int | None = None
    prefix: tuple[Any, ...] = ()
    where: str = "in this process"
    """Describes the process that computes, for notes on errors."""
    labels: dict[int, str] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    """Skips and retries that evaluators have reported since the last look."""
    notes: list[Any] = field(default_factory=list)
    """The notes of noting operators about the element that was evaluated last."""
    replay: Replay | None = None
    """Replays a pass; set by the engine.

    It receives the context and keeps no reference to it: dropping a network must free what its plan holds (a window's
    arrays) at once, not at the next garbage collection.
    """
    wanted: dict[tuple[int, int], set[Ref]] = field(default_factory=dict)
    captured: dict[tuple[int, int, Ref], Any] = field(default_factory=dict)
    live: dict[int, Any] = field(default_factory=dict)
    """The `Recording` of each incomplete snapshot of the plan, by node."""
    records: dict[int, dict[int, Any]] = field(default_factory=dict)
    """Elements that were read from a source ahead of their items, by node and index (`reading`)."""

    room: int = ROOM
    """The bytes of decoded table rows that this process may keep for later requests."""

    files: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    """Objects with open files, whose ``close`` is called with the iterator's."""

    watch: Watch = field(default_factory=Watch)
    """Counts and times what is computed."""

    probes: tuple[Probe, ...] = ()
    """The probes, which see every element."""

    sampling: Any = None
    """Chooses when stages are timed, if this process computes them for the consumer."""

    def __post_init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self.nodes = list(walk(self.root))
        counts: dict[type, int] = {}
        # A node that passes elements on has its input's number, so that names do not depend on it.
        numbers: dict[int, int] = {}
        for node in self.nodes:
            passes = node.transparent and node.inputs
            numbers[id(node)] = (
                numbers[id(node.inputs[0])] if passes else len(set(numbers.values()))
            )
            self.labels[id(node)] = f"{node.label}#{numbers[id(node)]}"
            if node.seeded:
                self._numbers[id(node)] = counts.get(type(node), 0)
                counts[type(node)] = counts.get(type(node), 0) + 1
        self._index = {id(node): at for at, node in enumerate(self.nodes)}

    @property
    def looks(self) -> tuple[Look, ...]:
        """The wrappers that are applied to each evaluator."""
        return tuple(seeing(probe) for probe in self.probes)

    @property
    def recorders(self) -> list[Any]:
        """The recorders of its snapshots that are being written."""
        return [live.recorder for live in self.live.values() if live.recorder is not None]

    @cached_property
    def replays(self) -> bool:
        """True if an element of one of its nodes may need a pass replayed."""
        return any(node.replays for node in self.nodes)

    @cached_property
    def services(self) -> tuple[Any, ...]:
        """The services that the plan names, each once."""
        named = (node.service for node in self.nodes if node.service is not None)
        return tuple(dict.fromkeys(named))

    @property
    def line(self) -> str:
        """The names of its operators in one line, without those that do nothing."""
        return " -> ".join(node.label for node in self.nodes if not node.transparent)

    @property
    def reads_tables(self) -> bool:
        """True if it reads rows of tables by number."""
        return any(node.record_files is not None for node in self.nodes)

    def number(self, node: Operator) -> int:
        """Return the number of a node among the seeded operators of its kind, counted from the source."""
        return self._numbers[id(node)]

    def index(self, node: Operator) -> int:
        """Return the index of a node in the plan, in the order of `walk`."""
        return self._index[id(node)]

    def label(self, node: Operator) -> str:
        """Return a node's label, its operator and number in the plan: ``map#2``."""
        return self.labels[id(node)]

    def seed_of(self, node: Operator) -> int:
        """Return an operator's seed: its own, or a derived one."""
        seed: int | None = getattr(node, "seed", None)
        if seed is not None:
            return seed
        return derive_seed(self.base_seed, node.label, self.number(node), self.prefix)

    def pair_of(self, node: Operator) -> tuple[int, int]:
        """Return tf.data's pair of seeds for an operator that draws as tf.data does."""
        return seed_pair(self.seed_of(node), self.graph_seed)

    def draws(self, root: Operator) -> tuple[Any, ...]:
        """Return what decides how the operators up to a node draw; () if none draws.

        In datasets with equal draws, elements of equal operators are equal.
        """
        drawing = [node for node in walk(root) if node.seeded]
        if not drawing:
            return ()
        seeds = [(self.seed_of(node), self.number(node)) for node in drawing]
        return self.prefix, self.graph_seed, *seeds

    def again(self) -> Context:
        """Return a copy with empty counts and no captured values."""
        again = Context(
            self.root, self.iteration, self.base_seed, self.graph_seed, self.prefix, self.where
        )
        again.files, again.room = self.files, self.room
        again.live = {at: replace(live, recorder=None) for at, live in self.live.items()}
        return again  # with a watch of its own: what is made again has been counted

    def inner(self, root: Operator, origin: tuple[Any, ...]) -> Context:
        """Return the context of the dataset that a `flat_map` made from one element."""
        seed = derive_seed(self.base_seed, "inner", origin)
        watch = self.watch.inner()
        inner = Context(root, 0, seed, self.graph_seed, origin, self.where, watch=watch)
        inner.files, inner.room = self.files, self.room
        inner.probes = tuple(probe.bound(inner) for probe in self.probes)
        return inner

    def beside(self, root: Operator, iteration: int) -> Context:
        """Return the context of another plan, each pass of which is an iteration."""
        return Context(root, iteration, self.base_seed, self.graph_seed, self.prefix, self.where)

    def close_files(self) -> None:
        """Close open files; they are opened again when needed."""
        for each in list(self.files):
            each.close()

    def captured_value(self, node: Operator, pass_: int, ref: Ref) -> Any:
        """Return an element that a restored buffer names and that needs a replay; `BrokenElement` for an error."""
        from_start = (self.index(node), pass_)
        if (*from_start, ref) not in self.captured:
            wanted = self.wanted.pop(from_start, set()) | {ref}
            assert self.replay is not None
            for at, value in self.replay(self, node, pass_):
                if at in wanted:
                    wanted.discard(at)
                    self.captured[(*from_start, at)] = value
                if not wanted:
                    break
            for at in wanted:
                problem = not_there(f"element {at} of {node.label}")
                self.captured[(*from_start, at)] = BrokenElement(problem)
        return self.captured[(*from_start, ref)]

    def let_go(self, node: Operator, pass_: int, ref: Ref) -> None:
        """Discard a captured error: raising it ties it to the caller's frames, and so to its iterator."""
        self.captured.pop((self.index(node), pass_, ref), None)


def derive_seed(*parts: Any) -> int:
    """Derive a 63-bit seed from anything with a stable ``repr``."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def first_seed() -> int:
    """Return a seed for operators without one: derived from `set_seed`, else from the system."""
    seed = global_seed()
    return int.from_bytes(os.urandom(8)) >> 2 if seed is None else derive_seed("set_seed", seed)


def draw_seed(node: Operator) -> int:
    """Draw the seed from which operators without one derive theirs; 0 if a plan has no such operator."""
    return first_seed() if any(n.seedless for n in walk(node)) else 0
