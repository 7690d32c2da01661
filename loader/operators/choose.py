"""choose_from_datasets: elements of several datasets, chosen by another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.loader.operators.mixing import Chooser, Mixing, several
from tundish.loader.plan.checks import check_flag
from tundish.loader.plan.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.items import Failure
from tundish.loader.protocols.raised import raise_from
from tundish.loader.protocols.refs import not_there
from tundish.loader.protocols.specs import check_alike

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import Builder, Machine, Maker, Mark, Value
    from tundish.loader.protocols.operator import Operator


@dataclass(frozen=True, eq=False)
class Choose(Mixing):
    """Elements of several inputs, chosen by the numbers of another dataset."""

    choice: Operator

    op = "choose_from_datasets"
    safe = False
    dynamic = sequential = True

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (*self.ups, self.choice)

    @property
    def cardinality(self) -> int:
        endless = [up.cardinality == INFINITE_CARDINALITY for up in self.ups]
        for_ever = self.choice.cardinality == INFINITE_CARDINALITY and (
            all(endless) if self.stop else any(endless)
        )
        return INFINITE_CARDINALITY if for_ever else UNKNOWN_CARDINALITY

    def params(self) -> dict[str, Any]:
        return {"stop": self.stop, "of": len(self.ups)}

    def chooser(self, builder: Builder, pass_: int) -> Chooser:
        choices = builder.computed(self.choice, pass_)
        return Choices(choices, len(self.ups), builder.context.label(self))

    def evaluators(self, maker: Maker) -> list[Value]:
        parts, label = super().evaluators(maker), maker.context.label(self)
        choice, count = maker.at_hand(maker.value(self.choice)), len(self.ups)

        def refused(item: Any, pass_: int) -> Any:
            try:
                check_choice(choice(item, pass_), count)
            except (SpecError, IndexError) as error:
                raise_from(error, label)
            raise not_there("a choice that was refused")

        return [*parts, refused]


class Choices:
    """Chooses inputs by the elements of another dataset; its mark is the mark of that dataset's stream."""

    def __init__(self, up: Machine, count: int, label: str) -> None:
        self.eligible = frozenset(range(count))
        self._up, self._count, self._label = up, count, label

    def next(self, _: frozenset[int]) -> int | Failure:
        item = self._up.next()
        ref = (self._count, item.ref)
        if type(item) is Failure:
            return Failure(ref, item.error)
        try:
            return check_choice(item.value, self._count)
        except (SpecError, IndexError) as error:
            error.add_note(f"tundish: in {self._label}, at element {item.ref} of the choices")
            return Failure(ref, error)

    def mark(self) -> Mark:
        return self._up.mark()

    def dump(self, mark: Mark) -> Any:
        return self._up.dump(mark)

    def load(self, state: Any) -> None:
        self._up.load(state)


def check_choice(value: Any, count: int) -> int:
    """Return a choice as an int, after checking that it is the number of an input.

    Raises
    ------
    SpecError
        The choice is not an int64 scalar.
    IndexError
        The choice is out of range.
    """
    if type(value) is not np.int64:
        shown = f"{type(value).__name__} {value!r}"
        raise SpecError(f"a choice must be a scalar int64, not {shown:.200}")
    if not 0 <= value < count:
        raise IndexError(f"a choice must be from 0 to {count - 1}, not {value}")
    return int(value)


class ChooseMethods(Fluent):
    """The class method of `Dataset` that chooses among several by the numbers of another."""

    @classmethod
    def choose_from_datasets(
        cls,
        datasets: Any,
        choice_dataset: Any,
        stop_on_empty_dataset: bool = True,
        name: str | None = None,
    ) -> Self:
        """Take elements from several datasets, in the order given by another dataset.

        Parameters
        ----------
        datasets : sequence of Dataset
            The datasets to take elements from, at least one.
        choice_dataset : Dataset
            A dataset of int64 scalars, each the index of the dataset to take the next element from.
            When the choices end, the result ends.
        stop_on_empty_dataset : bool, default True
            True: end when the chosen dataset has ended. False: skip such a choice, and end when
            all datasets have ended.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Raises
        ------
        TypeError, ValueError
            `datasets` is empty or holds anything other than datasets, or `choice_dataset` is not a
            dataset.

        Notes
        -----
        A choice that is not a scalar int64 raises a `SpecError` at its position, and one that is
        out of range an ``IndexError``. Iteration continues with the next choice. tf.data refuses
        choices of another dtype when the dataset is built.

        Examples
        --------
        >>> import tundish as td
        >>> letters = [td.Dataset.from_tensors(x).repeat() for x in "abc"]
        >>> list(td.Dataset.choose_from_datasets(letters, td.Dataset.range(3).repeat(2)))
        ['a', 'b', 'c', 'a', 'b', 'c']
        """
        names, nodes = several(datasets)
        if names is not None:
            raise TypeError("datasets must be a list or tuple of datasets, not dict")
        if not isinstance(choice_dataset, Fluent):
            raise TypeError(
                f"choice_dataset must be a Dataset, not {type(choice_dataset).__name__}"
            )
        check_alike("choose_from_datasets", nodes)
        stop = check_flag("stop_on_empty_dataset", stop_on_empty_dataset)
        return cls._of(Choose(nodes, stop, choice_dataset._node))  # noqa: SLF001 - ours
