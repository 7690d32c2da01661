"""Windows over a dataset: elements that are datasets, and the dataset of values at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

from tundish.loader.plan.checks import check_count, check_flag
from tundish.loader.protocols.operator import Operator, SourceNode, Spec, Unary
from tundish.loader.protocols.refs import numbered, some
from tundish.spec import DatasetSpec, map_leaves


class DatasetClass(Protocol):
    """The class of datasets, as a node that makes some of them needs it."""

    _of: ClassVar[Callable[[Operator], Any]]


@dataclass(frozen=True, eq=False)
class Elements(SourceNode):
    """Elements at hand; one that is an error (`Broken`) is raised when it is read."""

    values: tuple[Any, ...]

    op = "elements"
    positional = True
    safe = False

    @property
    def cardinality(self) -> int:
        return len(self.values)

    def params(self) -> dict[str, Any]:
        return {"count": len(self.values)}


@dataclass(frozen=True, eq=False)
class Window(Unary):
    """Datasets of `size` elements, each `shift` elements behind the one before."""

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
        """From a window's first element to just behind its last."""
        return (self.size - 1) * self.stride + 1

    @property
    def cardinality(self) -> int:
        below = self.up.cardinality
        if below < 0:
            return below
        if self.drop_remainder:
            below = max(0, below - self.span + 1)
        return -(-below // self.shift)


class WindowMethods:
    """Methods of `Dataset` that make windows."""

    def _then(self, kind: Callable[..., Operator], *args: Any, **kwargs: Any) -> Self:
        raise NotImplementedError

    def window(
        self,
        size: int,
        shift: int | None = None,
        stride: int = 1,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Self:
        """Make datasets of the elements: windows, which may overlap.

        Window k has the elements ``k * shift + j * stride`` for ``j = 0 .. size - 1``. There are
        windows as long as their first element exists.

        Parameters
        ----------
        size : int
            How many elements a window has, at least 1.
        shift : int, optional
            From a window's first element to that of the next, at least 1; None: `size`.
        stride : int
            From one element of a window to its next, at least 1.
        drop_remainder : bool
            End at the first window that has fewer than `size` elements.
        name : str, optional
            For tf.data's sake; ignored.

        Returns
        -------
        Dataset
            A window of numbers or arrays is a `Dataset`. One of tuples or dicts is a tuple or a
            dict of datasets, one for each leaf; ``Dataset.zip`` puts them together again.

        Notes
        -----
        An element that is an error stays in its windows: it is raised where they are read, and
        not at all where they are not. It stands in the dataset of every leaf. Where all elements
        of a window are errors, the window is one dataset, whatever the other windows look like.
        An element whose structure is not that of the window's first is a `SpecError` there.

        A window can be read any number of times. The elements are computed once, however many
        windows hold them.

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
