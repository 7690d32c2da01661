"""The ground under the methods of `Dataset`: each family of operators has a mixin of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from tundish.loader.protocols.specs import static_spec

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator


class Fluent:
    """The base of the mixins that `Dataset` joins."""

    _node: Operator

    @classmethod
    def _of(cls, node: Operator) -> Self:
        """Make a dataset of a plan."""
        raise NotImplementedError

    def _then(self, kind: Callable[..., Operator], *args: Any, **kwargs: Any) -> Self:
        """Make a dataset with another operator after this one's."""
        return self._of(kind(self._node, *args, **kwargs))

    def _arguments(self) -> int | None:
        """Return the number of arguments a function is called with; None where the plan does not tell."""
        spec = static_spec(self._node)
        if spec is None:
            return None
        return len(spec) if type(spec) is tuple else 1
