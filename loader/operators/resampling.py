"""The operator that gives classes another distribution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from tundish.loader.operators.elementwise import Map
from tundish.loader.plan.checks import check_callable, check_seed
from tundish.loader.plan.node import UNKNOWN_CARDINALITY
from tundish.loader.protocols.operator import Operator, Unary


class Classified:
    """``(class, element)`` of an element.

    Parameters
    ----------
    func : callable
        What tells the class; its code is what states compare.
    """

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func

    def __call__(self, *element: Any) -> Any:
        """The class, called as `map` calls its function, and the element."""
        return self.func(*element), element[0] if len(element) == 1 else element


@dataclass(frozen=True, eq=False)
class RejectionResample(Unary):
    """Some of the pairs (class, element), so that classes have another distribution."""

    target: tuple[float, ...]
    initial: tuple[float, ...] | None
    seed: int | None

    op = "rejection_resample"
    computing = dynamic = noting = sequential = True
    seeded = True
    cardinality = UNKNOWN_CARDINALITY
    positional = False
    safe = False

    @property
    def seedless(self) -> bool:
        return self.seed is None


class ResamplingMethods:
    """Methods of `Dataset` that give classes another distribution."""

    _node: Operator

    @classmethod
    def _of(cls, node: Operator) -> Self:
        raise NotImplementedError

    def rejection_resample(
        self,
        class_func: Callable[..., Any],
        target_dist: Sequence[float],
        initial_dist: Sequence[float] | None = None,
        seed: int | None = None,
        name: str | None = None,
    ) -> Self:
        """Leave out elements at random, so that the classes of the rest have a given distribution.

        Parameters
        ----------
        class_func : callable
            Called as `map` calls its function, in workers if the plan has them; returns the
            element's class, an int from 0.
        target_dist : (k,) sequence of float
            How often each class is wanted, up to a common factor.
        initial_dist : (k,) sequence of float, optional
            How often each class comes, up to a common factor. Default: estimated from the classes
            that have come, in each pass anew.
        seed : int, optional
            Without one, it is derived from a number that the dataset object draws for its first
            iterator, and that is in each iterator's state.
        name : str, optional
            For tf.data's sake; ignored.

        Raises
        ------
        TypeError
            `class_func` is not callable, or a distribution holds no numbers.
        ValueError
            A distribution is empty, negative or all zeros, they have different lengths, or a
            wanted class never comes.

        Notes
        -----
        Delivers pairs ``(class, element)``, as tf.data does. An element of class c passes with
        probability ``(target[c] / initial[c]) / max(target / initial)``: no more is left out than
        has to be. The estimate counts from 10 a class, so that it does not jump at first. A class
        that is not in range is a `SpecError` at the element's place.

        tf.data mixes in elements of a second reading of the input, and so may deliver an element
        twice; here each comes at most once, and the input is read once. The draw of an element is
        keyed by the seed, the pass and its place in the pass: the same for any number of workers,
        and after a resume.

        Examples
        --------
        >>> import tundish as td
        >>> ds = td.Dataset.range(10_000).rejection_resample(
        ...     lambda x: int(x % 10 == 0), target_dist=[0.5, 0.5], initial_dist=[0.9, 0.1], seed=1
        ... )
        >>> kept = [int(c) for c, _ in ds]
        >>> len(kept), sum(kept)
        (2015, 1000)
        """
        check_callable("class_func", class_func)
        target = _distribution("target_dist", target_dist)
        initial = None
        if initial_dist is not None:
            initial = _distribution("initial_dist", initial_dist)
            if len(initial) != len(target):
                raise ValueError(
                    f"initial_dist and target_dist must have one number for each class, not {len(initial)} and {len(target)}"
                )
            for at, (wanted, there) in enumerate(zip(target, initial, strict=True)):
                if wanted and not there:
                    raise ValueError(
                        f"target_dist asks for class {at} ({wanted}), and initial_dist says that it never "
                        "occurs (0.0)"
                    )
        pairs = Map(self._node, Classified(class_func))
        return self._of(RejectionResample(pairs, target, initial, check_seed(seed)))


def _distribution(name: str, given: Any) -> tuple[float, ...]:
    try:
        array = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a sequence of numbers, not {given!r}") from None
    if array.ndim != 1 or not len(array):
        raise ValueError(f"{name} must have one dimension and a class or more, not {given!r}")
    if not np.isfinite(array).all() or (array < 0).any() or not array.any():
        raise ValueError(f"{name} must be finite, at least 0 and not all 0, not {given!r}")
    return tuple(array.tolist())
