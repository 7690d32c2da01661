"""window: elements that are datasets of consecutive elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from tundish.errors import SpecError
from tundish.loader.plan.checks import check_count, check_flag
from tundish.loader.protocols.failure import without_frames
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.generating import BrokenElement
from tundish.loader.protocols.items import End, Ref, ref_of, to_json
from tundish.loader.protocols.lineage import add_origin, describe_origin, note_wanted, refs
from tundish.loader.protocols.operator import Operator, SourceNode, Unary
from tundish.loader.protocols.ownership import read_only
from tundish.loader.protocols.refs import numbered, some
from tundish.loader.protocols.state_parsing import count, load_part
from tundish.spec import (
    DatasetSpec,
    flatten,
    leaves_like,
    map_leaves,
    paths,
    same_structure,
    show_tree,
    unflatten,
)

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Builder, Machine, Maker, Mark, Spec, Value


class DatasetClass(Protocol):
    """The part of the class of datasets that a node needs to make one."""

    _of: ClassVar[Callable[[Operator], Any]]


@dataclass(frozen=True, eq=False)
class Elements(SourceNode):
    """Elements held in memory; an error among them (`BrokenElement`) is raised when it is read."""

    values: tuple[Any, ...]

    op = "elements"
    positional = True
    safe = False

    @property
    def cardinality(self) -> int:
        return len(self.values)

    def evaluator(self, maker: Maker) -> Value:
        values, hand = self.values, maker.hand

        def value(item: Any, _: int) -> Any:
            found = values[item]
            if type(found) is BrokenElement:
                # A cache stores windows: through the frames that an error passes, it would refer to itself.
                raise without_frames(found.error)
            return found if hand is None else hand(found)

        return value

    def params(self) -> dict[str, Any]:
        return {"count": len(self.values)}


@dataclass(frozen=True, eq=False)
class Window(Unary):
    """Datasets of `size` elements, each starting `shift` elements after the previous one."""

    size: int
    shift: int
    stride: int
    drop_remainder: bool
    make: type[DatasetClass]

    op = "window"
    origin = "ordinal"
    flat = False
    positional = False
    sequential = True

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        return [(0, held) for held in some(numbered(ref)[1])]

    def spec(self, below: Spec) -> Any:
        told = below(self.up)
        return None if told is None else map_leaves(DatasetSpec, told)

    @property
    def dynamic(self) -> bool:
        return True

    @property
    def span(self) -> int:
        """The number of input elements from a window's first to its last."""
        return (self.size - 1) * self.stride + 1

    @property
    def cardinality(self) -> int:
        below = self.up.cardinality
        if below < 0:
            return below
        if self.drop_remainder:
            below = max(0, below - self.span + 1)
        return -(-below // self.shift)

    def machine(self, builder: Builder, pass_: int) -> Machine:
        return Windowed(self, builder.computed(self.up, pass_), pass_, builder.context)

    def evaluator(self, maker: Maker) -> Value:
        parts = parts_of(maker, self)
        return lambda item, pass_: _nest(self.make, parts(item[1], pass_))


_LOG = 1024


class Windowed:
    """Computed items gathered as windows: ``(n, (item, ...))``.

    The items from the next window's first one on are held. A mark names the refs of those that
    have been read; they are in a list that only grows. When it has grown long, a new one replaces it, and the marks
    that refer to it keep it.
    """

    def __init__(self, node: Window, up: Machine, pass_: int, context: Context) -> None:
        self._node, self._up, self._pass, self._context = node, up, pass_, context
        self._count = self._pulled = 0
        self._held: list[Any] = []
        self._refs: list[Ref] = []
        self._ended = False
        self._reached: Mark = up.mark()

    def next(self) -> Any:
        node = self._node
        start = self._count * node.shift
        self._forget(start)
        self._pull(start, start + node.span)
        held = self._held[: node.span : node.stride]
        if not held or (node.drop_remainder and len(held) < node.size):
            raise End
        self._count += 1
        return (self._count - 1, tuple(held))

    def _forget(self, start: int) -> None:
        """Drop the items that no later window contains."""
        first = self._pulled - len(self._held)
        if start > first:
            del self._held[: start - first]
        if len(self._refs) > _LOG + 2 * len(self._held):
            self._refs = [ref_of(item) for item in self._held]

    def _pull(self, start: int, stop: int) -> None:
        """Read items up to the window's last one."""
        while self._pulled < stop and not self._ended:
            try:
                item = self._up.next()
            except End:
                self._ended = True
            else:
                self._pulled += 1
                if self._pulled > start:
                    self._held.append(item)
                    self._refs.append(ref_of(item))
            # Take the mark right after an item: an input that raises NotReady may have moved on in part.
            self._reached = self._up.mark()

    def mark(self) -> Mark:
        refs = self._refs
        return (self._count, self._pulled, refs, len(refs), self._reached)

    def dump(self, mark: Mark) -> Any:
        count, pulled, refs, known, up = mark
        wanted = max(0, pulled - count * self._node.shift)
        held = refs[known - wanted : known]
        return {
            "n": count,
            "pulled": pulled,
            "held": to_json(tuple(held)),
            "up": self._up.dump(up),
        }

    def load(self, state: Any) -> None:
        self._count, self._pulled = count(state, "n"), count(state, "pulled")
        self._held = refs(state, "held", self._node.up, most=self._pulled)
        self._refs = list(self._held)
        note_wanted(self._node.up, self._held, self._pass, self._context)
        load_part(self._up, state)
        self._reached = self._up.mark()


def parts_of(maker: Maker, node: Unary) -> Callable[[Any, int], list[Any]]:
    """Compile the elements of a node's composed items; an error among them is a `BrokenElement`."""
    up, identity = maker.held(node.up), maker.identity(node.up)
    where = maker.context.where

    def part(item: Any, pass_: int) -> Any:
        try:
            return map_leaves(read_only, up(item, pass_))  # several windows may contain it
        except Exception as error:  # noqa: BLE001 - the element's error, raised where it is read
            origin = describe_origin(*identity(ref_of(item), pass_))
            return BrokenElement(without_frames(add_origin(error, origin, where)))

    return lambda items, pass_: [part(item, pass_) for item in items]


def dataset_of(make: type[DatasetClass], values: list[Any]) -> Any:
    """Make an element that is a dataset of values held in memory."""
    made = make._of(Elements(tuple(values)))  # noqa: SLF001 - ours
    return made._as_element()  # noqa: SLF001 - ours


def _nest(make: type[DatasetClass], elements: list[Any]) -> Any:
    """Make a dataset of each leaf, in the structure of the first element that is not an error."""
    good = next((x for x in elements if type(x) is not BrokenElement), None)
    leaves, tree = flatten(good)
    columns: list[list[Any]] = [[] for _ in leaves]
    for element in elements:
        for column, leaf in zip(columns, _leaves(element, tree), strict=True):
            column.append(leaf)
    return unflatten(tree, [dataset_of(make, column) for column in columns])


def _leaves(element: Any, tree: Any) -> list[Any]:
    """Return an element's leaves in the order of a tree; for a failed element, its error for each leaf."""
    count = len(paths(tree))
    if type(element) is BrokenElement:
        return [element] * count
    leaves, own = flatten(element)
    if own == tree:
        return leaves
    if not same_structure(own, tree):
        told = f"the element has the structure {show_tree(own)}, the window {show_tree(tree)}"
        return [BrokenElement(SpecError(told))] * count
    return leaves_like(element, tree)


class WindowMethods(Fluent):
    """Methods of `Dataset` that make windows."""

    def window(
        self,
        size: int,
        shift: int | None = None,
        stride: int = 1,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Self:
        """Make windows of the elements, which are datasets and may overlap.

        Window k has the elements ``k * shift + j * stride`` for ``j = 0 .. size - 1``. The last window is the
        last one whose first element exists.

        Parameters
        ----------
        size : int
            The number of elements in a window, at least 1.
        shift : int, optional
            The distance between the first elements of two windows, at least 1. Default: `size`.
        stride : int
            The distance between two elements of a window, at least 1.
        drop_remainder : bool
            True to end before the first window that has fewer than `size` elements.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Returns
        -------
        Dataset
            The windows. A window of numbers or arrays is a `Dataset`. A window of tuples or dicts is a tuple or a
            dict of datasets, one for each leaf; ``Dataset.zip`` joins them again.

        Notes
        -----
        An element that failed is part of its windows: its error is raised only if a window is read, in
        the dataset of every leaf. If all elements of a window failed, the window is one dataset, even if other
        windows are tuples or dicts. An element whose structure differs from that of the window's first element is a
        `SpecError` in the window.

        A window can be read any number of times. An element is computed once, even if it is in several windows.

        Examples
        --------
        >>> import tundish as td
        >>> [[int(x) for x in w] for w in td.Dataset.range(7).window(3, shift=2)]
        [[0, 1, 2], [2, 3, 4], [4, 5, 6], [6]]
        >>> ds = td.Dataset.range(7).window(3, shift=1, stride=2, drop_remainder=True)
        >>> [x.tolist() for x in ds.flat_map(lambda w: w.batch(3))]
        [[0, 2, 4], [1, 3, 5], [2, 4, 6]]
        """
        size = check_count("size", size, least=1)
        shift = size if shift is None else check_count("shift", shift, least=1)
        stride = check_count("stride", stride, least=1)
        return self._then(
            Window,
            size,
            shift,
            stride,
            check_flag("drop_remainder", drop_remainder),
            type(self),
        )
