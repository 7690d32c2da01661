"""A case: a pipeline with its known properties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tundish.loader.dataset import Dataset
from tundish.testing.folders import standing
from tundish.testing.functions import Fail
from tundish.testing.model import Model

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.testing.compare import Outcome


@dataclass(frozen=True)
class Case:
    """One small pipeline.

    Parameters
    ----------
    name : str
        ``operator`` or ``operator-what``.
    pipeline : callable
        Makes the pipeline of a class with the methods of `Dataset`.
    modelled : bool
        Whether the reference knows the order of its elements.
    limit : int
        The number of elements to look at; for pipelines that never end.
    stands : int or None
        The number of elements that an iterator of a case with files has taken before; None for all.
    """

    name: str
    pipeline: Callable[[Any], Any]
    modelled: bool = True
    limit: int = 10_000
    stands: int | None = 0

    def build(self) -> Dataset:
        """Make a new dataset of the case."""
        made: Dataset = self.pipeline(Dataset)
        return made if self.stands == 0 else standing(made, self.stands)

    def expected(self, iteration: int = 0) -> list[Outcome]:
        """Return the reference's outcomes."""
        model: Model = self.pipeline(Model)
        return model.outcomes(iteration, self.limit)


def failing(d: Any, n: int = 23) -> Any:
    """Elements of which some fail, for operators to carry."""
    return d.range(n).map(Fail(3, 25))
