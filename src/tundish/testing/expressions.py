"""Pipelines as expressions: drawn, shortened, printed, and built from `Dataset` or the reference."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.dataset import Dataset
from tundish.loader.plan.inputs import InputContext
from tundish.spec import ArraySpec
from tundish.testing import functions, misbehaving, values
from tundish.testing.cases import tables
from tundish.testing.configured import Configured
from tundish.testing.files import Reading, at_home, files, home, read
from tundish.testing.folders import folder, saved
from tundish.testing.functions import Inner
from tundish.testing.passes import Count
from tundish.testing.raising import Quit

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Pipeline", "Step", "Within", "evaluate"]

FILES = str(Path(__file__).parent / "*.py")


def evaluate(text: str, dataset: Any, **more: Any) -> Any:
    """Evaluate an expression, with the class `dataset` for ``D``."""
    names = {
        name: getattr(home, name)
        for home in (functions, misbehaving, values)
        for name in home.__all__
    }
    names |= {
        "InputContext": InputContext,
        "FILES": FILES,
        "Within": Within,
        "ArraySpec": ArraySpec,
        "np": np,
    }
    names |= {
        "folder": folder,
        "saved": saved,
        "files": files,
        "read": read,
        "Reading": Reading,
        "Quit": Quit,
        "Count": Count,
        "Configured": Configured,
        "tables": tables,
    }
    return eval(text, {"D": dataset, **names, **more})  # noqa: S307 - our own expression


@dataclass(frozen=True)
class Within:
    """A function for `flat_map`, `interleave`, `group_by_window`: a pipeline over its argument's elements.

    Parameters
    ----------
    dataset : type
        The class to make it of, as for `Inner`.
    k : int
        The argument of the `Inner` that ``X`` is, if the element itself is no dataset.
    text : str
        The expression, in which ``X`` is the inner dataset.
    """

    dataset: Any
    k: int
    text: str
    home: str = field(default_factory=home, repr=False, compare=False)
    """Where the files are that the expression reads, whichever process evaluates it."""

    def __call__(self, *element: Any) -> Any:
        at_home(self.home)
        given = element[-1]
        inner = given if hasattr(given, "take_while") else Inner(self.dataset, self.k)(*element)
        return evaluate(self.text, self.dataset, X=inner)


@dataclass(frozen=True)
class Step:
    """One operator applied to a pipeline.

    Parameters
    ----------
    text : str
        A method call such as ``.batch(2)``, or an expression in which ``@`` stands for what is
        there so far; ``<0>`` for the first other pipeline, ``<0!r>`` for that as a string.
    parts : tuple of Pipeline
        The other pipelines.
    """

    text: str
    parts: tuple[Pipeline, ...] = ()

    def after(self, before: str) -> str:
        """Return the expression of this step applied to another expression."""
        text = before + self.text if self.text.startswith(".") else self.text.replace("@", before)
        for number, part in enumerate(self.parts):
            text = text.replace(f"<{number}>", str(part)).replace(f"<{number}!r>", repr(str(part)))
        return text

    def shorter(self) -> Iterator[Step]:
        """Yield versions of the step with one of its other pipelines shortened."""
        for number, part in enumerate(self.parts):
            for less in part.shorter():
                if f"<{number}!r>" not in self.text or less.source == part.source:
                    parts = (*self.parts[:number], less, *self.parts[number + 1 :])
                    yield replace(self, parts=parts)


@dataclass(frozen=True)
class Pipeline:
    """An expression for a pipeline, in parts.

    Parameters
    ----------
    source : str
        An expression for a dataset of the class ``D``.
    steps : tuple of Step
        The operators that are applied to it.
    """

    source: str
    steps: tuple[Step, ...] = ()

    def __str__(self) -> str:
        text = self.source
        for step in self.steps:
            text = step.after(text)
        return text

    def build(self, kind: Any = Dataset, **more: Any) -> Any:
        """Build the pipeline from `Dataset` or from the reference."""
        return evaluate(str(self), kind, **more)

    def then(self, step: Step) -> Pipeline:
        """Return the pipeline with one more step."""
        return replace(self, steps=(*self.steps, step))

    def shorter(self) -> Iterator[Pipeline]:
        """Yield shortened versions of the pipeline, shortest first."""
        for number, step in reversed(list(enumerate(self.steps))):
            yield from (p for i, p in enumerate(step.parts) if f"<{i}>" in step.text)
            yield Pipeline(self.source, self.steps[:number] + self.steps[number + 1 :])
        for number, step in enumerate(self.steps):
            for less in step.shorter():
                steps = (*self.steps[:number], less, *self.steps[number + 1 :])
                yield Pipeline(self.source, steps)
        if not self.source.startswith(("D.range", "X")):
            yield Pipeline("D.range(9)", self.steps)
