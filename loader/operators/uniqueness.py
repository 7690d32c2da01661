"""The operator that leaves out what has come before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.loader.plan.node import UNKNOWN_CARDINALITY
from tundish.loader.protocols.operator import Operator, Unary
from tundish.loader.protocols.specs import static_spec
from tundish.spec import ArraySpec, flatten

KINDS = "int, bool, str or bytes, or arrays of them"


@dataclass(frozen=True, eq=False)
class Unique(Unary):
    """The elements that have not come before in this pass."""

    computing = dynamic = noting = passes = sequential = True
    cardinality = UNKNOWN_CARDINALITY
    positional = safe = False


class UniquenessMethods:
    """Methods of `Dataset` that leave out what has come before."""

    _node: Operator

    def _then(self, kind: Callable[..., Operator], *args: Any, **kwargs: Any) -> Self:
        raise NotImplementedError

    def unique(self, name: str | None = None) -> Self:
        """Deliver each element once: where it comes first, in each pass anew.

        Parameters
        ----------
        name : str, optional
            For tf.data's sake; ignored.

        Raises
        ------
        SpecError
            The plan tells that the elements are of another kind (below).

        Notes
        -----
        An element is one leaf: an int of any dtype, a bool, a str, bytes, or an array of these.
        Elements are equal when dtype, shape and every byte are. Any other element, a float above
        all, is a `SpecError` at its place, or when the pipeline is built if the plan tells what
        the elements are. tf.data takes int32, int64 and string.

        What has come is kept in the consumer's process: about 100 bytes for each different
        element, of an array or a long text only a digest. An iterator's state holds how many
        elements have been read: restoring runs the pass again up to there, in O(k) time.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.from_tensor_slices([1, 37, 2, 37, 2, 1]).unique()]
        [1, 37, 2]
        """
        spec = static_spec(self._node)
        if spec is not None:
            leaves, _ = flatten(spec)
            if len(leaves) != 1 or not _may_be(leaves[0]):
                raise SpecError(f"unique takes elements of {KINDS}, not {spec}")
        return self._then(Unique)


def _may_be(leaf: Any) -> bool:
    if not isinstance(leaf, ArraySpec):
        return False
    return leaf.dtype in (str, bytes, object) or np.dtype(leaf.dtype).kind in "iub"
