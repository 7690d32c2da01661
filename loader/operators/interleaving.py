"""The operator that reads several datasets in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tundish.loader.operators.elementwise import FlatMap, check_parallel
from tundish.loader.plan.checks import check_callable, check_count, check_optional_flag
from tundish.loader.plan.node import AUTOTUNE

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator

CYCLE_LENGTH = 16
"""How many datasets are read in turn where nothing is said: the same on every machine."""


@dataclass(frozen=True, eq=False)
class Interleave(FlatMap):
    """The elements of ``function(element)``, of `cycle` datasets in turn."""

    cycle: int = CYCLE_LENGTH
    block: int = 1
    parallel: int | None = None

    op = "interleave"
    one_by_one = False


class InterleavingMethods:
    """Methods of `Dataset` that read several datasets in turn."""

    def _then(self, kind: Callable[..., Operator], *args: Any, **kwargs: Any) -> Self:
        raise NotImplementedError

    def interleave(  # noqa: PLR0917 - tf.data's order
        self,
        map_func: Callable[..., Any],
        cycle_length: int | None = None,
        block_length: int | None = None,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Self:
        """Make a dataset of every element and read several of them in turn.

        There are `cycle_length` slots. A slot without a dataset takes the next input when its turn
        comes; a slot gives `block_length` elements, or fewer if its dataset ends, then it is the
        next slot's turn.

        Parameters
        ----------
        map_func : callable
            Called as `map` calls its function; returns a `Dataset`.
        cycle_length : int, optional
            How many datasets are read in turn. None and ``AUTOTUNE``: 16.
        block_length : int, optional
            How many elements a dataset gives in its turn. None: 1.
        num_parallel_calls : int, optional
            How many workers to use, as for `map`; at most `cycle_length`, if that is given. The
            datasets are then read in workers, each by one, ahead of their turn.
        deterministic : bool, optional
            For tf.data's sake: the order is the same whatever it says.
        name : str, optional
            For tf.data's sake; ignored.

        Raises
        ------
        ValueError
            `cycle_length` or `block_length` is less than 1, or `num_parallel_calls` is more than
            `cycle_length`.

        Notes
        -----
        The slots' rules are tf.data's. Its default `cycle_length` is the number of the machine's
        cores, and so the order depends on the machine; here it is 16 everywhere.

        An input that is an error, one whose function fails, and an element that is an error stand
        where they come. As in tf.data they do not count towards `block_length`.

        Without workers a dataset is made when its slot's turn comes; workers make the next ones
        ahead.

        Examples
        --------
        >>> import tundish as td
        >>> ds = td.Dataset.range(1, 4).interleave(
        ...     lambda x: td.Dataset.from_tensors(x).repeat(3), cycle_length=2, block_length=2
        ... )
        >>> [int(x) for x in ds]
        [1, 1, 2, 2, 1, 2, 3, 3, 3]
        """
        check_callable("map_func", map_func)
        parallel = check_parallel(num_parallel_calls)
        check_optional_flag("deterministic", deterministic)
        cycle = CYCLE_LENGTH
        if cycle_length is not None:
            cycle_length = check_count("cycle_length", cycle_length)
            if cycle_length != AUTOTUNE:
                if cycle_length < 1:
                    raise ValueError(
                        f"cycle_length must be at least 1, AUTOTUNE or None, not {cycle_length}"
                    )
                cycle = cycle_length
                if parallel is not None and parallel > cycle:
                    raise ValueError(
                        f"num_parallel_calls must be at most cycle_length ({cycle}), not {parallel}"
                    )
        block = 1 if block_length is None else check_count("block_length", block_length, least=1)
        return self._then(Interleave, map_func, cycle, block, parallel)
