"""What methods of `Dataset` stand on: each family of operators has a mixin of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

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
        raise NotImplementedError
