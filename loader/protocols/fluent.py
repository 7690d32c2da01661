"""The base class of the mixins with `Dataset`'s methods, one for each family of operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from tundish.loader.protocols.specs import static_spec

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator


class Fluent:
    """The base of the mixins that `Dataset` joins, with the methods of `Dataset` that they call."""

    _node: Operator

    def iterator(
        self, *, iteration: int = 0, workers: int | None = None, executor: str | None = None
    ) -> Any:
        """Make an iterator for a given iteration number."""
        raise NotImplementedError

    def cardinality(self) -> int:
        """Return the number of elements, as far as the plan tells."""
        raise NotImplementedError

    @property
    def element_spec(self) -> Any:
        """The nest of `ArraySpec` of an element."""
        raise NotImplementedError

    @classmethod
    def _of(cls, node: Operator) -> Self:
        """Make a dataset from a plan."""
        raise NotImplementedError

    def _then(self, kind: Callable[..., Operator], *args: Any, **kwargs: Any) -> Self:
        """Make a dataset with another operator at the end of the plan."""
        return self._of(kind(self._node, *args, **kwargs))

    def _arguments(self) -> int | None:
        """Return how many arguments a function is called with; None if the plan does not tell."""
        spec = static_spec(self._node)
        if spec is None:
            return None
        return len(spec) if type(spec) is tuple else 1
