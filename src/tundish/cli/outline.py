"""An outline of a plan: its operators in order, their arguments, and where they run.

It is made without running anything. `tundish.cli.inspect` prints it, `tundish.cli.drawing`
draws it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tundish.loader.dataset import Dataset, show_cardinality
from tundish.loader.operators.options import options_of
from tundish.loader.plan.node import AUTOTUNE, function_name, walk
from tundish.loader.protocols.chains import chain_base
from tundish.loader.protocols.chains import computes as made_below
from tundish.loader.run.evaluating.effective import effective
from tundish.loader.run.external import external_state
from tundish.loader.run.parallelism import parallelism_of
from tundish.loader.run.storing.indexing import foreseen
from tundish.loader.watch.limit import scattered_text
from tundish.loader.watch.view import PlanNode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tundish.loader.plan.options import Options
    from tundish.loader.protocols.operator import Operator

_WIDEST = 44
_UNSAID = ("tree", "signature")  # the spec tells


@dataclass(frozen=True)
class OutlineStep:
    """One operator.

    Attributes
    ----------
    name, arguments, elements : str
        Its name, its arguments, and the number of its elements.
    stage : int
        Steps with the same number are computed together; 0: nothing is computed.
    place : str
        The process that runs it, and the reason.
    inputs : tuple of OutlineStep
        The steps of its inputs.
    """

    name: str
    arguments: str
    elements: str
    stage: int
    place: str
    inputs: tuple[OutlineStep, ...]


@dataclass(frozen=True)
class Outline:
    """A plan, and remarks on the whole of it."""

    last: OutlineStep
    elements: str
    workers: str
    resume: tuple[str, ...]
    slow: tuple[str, ...] = ()


def outline(dataset: Dataset) -> Outline:
    """Make a dataset's outline, without running any of its functions."""
    node = foreseen(effective(dataset._node))  # noqa: SLF001 - this is about what a dataset is made of
    count, why = workers(node)
    where = {0: "in this process", 1: "in a worker"}.get(count, f"in {count} workers")
    numbers = stages(node)
    done: dict[int, OutlineStep] = {}
    for each in walk(node):
        done[id(each)] = OutlineStep(
            name=each.label,
            arguments=arguments(each),
            elements=show_cardinality(each.cardinality),
            stage=numbers.get(id(each), 0),
            place=place(each, numbers.get(id(each), 0), where),
            inputs=tuple(done[id(up)] for up in each.inputs),
        )
    return Outline(
        last=done[id(node)],
        elements=show_cardinality(node.cardinality),
        workers=f"{count}: {why}",
        resume=tuple(dict.fromkeys(resume(node))) or ("nothing is computed again",),
        slow=tuple(dict.fromkeys(scattered(node))),
    )


def scattered(root: Operator) -> Iterator[str]:
    """Yield remarks on readers that decode rows in groups before a shuffle that requests single rows."""
    for shuffle in walk(root):
        if not shuffle.shuffles or shuffle.deals or made_below(shuffle.inputs[0]):
            continue
        reader = shuffle.inputs[0]
        while len(reader.inputs) == 1 and reader.origin == "input" and not reader.grouped:
            (reader,) = reader.inputs
        if reader.grouped:
            read = PlanNode(reader.label, reader.label)
            moved = PlanNode(shuffle.label, shuffle.label, permutes=not shuffle.holds)
            yield scattered_text(read, moved)


def stages(root: Operator) -> dict[int, int]:
    """Number the operators that are computed together, as `tundish.loader.run.inline.planner` joins them.

    Order is decided on indices wherever possible, so functions run where an element is
    needed: for a batch, a filter's decision or a note, before elements are stored or split, and at the end.
    """
    number_of: dict[int, int] = {}
    found: list[list[int]] = [[]]

    def visit(node: Operator, stage: list[int]) -> None:
        base, dropping = chain_base(node)
        if dropping and base is not node:
            stage = begin()
            inside = node
            while inside is not base:
                if not inside.transparent:
                    stage.append(id(inside))
                inside = inside.inputs[0]
            visit(base, stage)
            return
        if node.elementwise and node.calls:
            stage.append(id(node))
        elif node.joins or (node.noting and not node.cuts):
            stage = begin()
            stage.append(id(node))
        elif node.cuts:
            stage = begin()
        for up in node.inputs:
            visit(up, stage)

    def begin() -> list[int]:
        found.append([])
        return found[-1]

    visit(root, found[0])
    position = {id(node): at for at, node in enumerate(walk(root))}
    for number, stage in enumerate(sorted(filter(None, found), key=lambda s: position[s[-1]]), 1):
        number_of.update(dict.fromkeys(stage, number))
    return number_of


def place(node: Operator, stage: int, where: str) -> str:
    """Describe where an operator runs."""
    if stage:
        return f"stage {stage}, {where}"
    if node.transparent:
        sets = node.settings is not None or node.prefetched is not None
        return "a setting" if sets else "passes on, measured"
    if node.at_work:
        return node.at_work
    if not node.inputs:
        return "a source" if node.positional else "a source, read in order"
    return "on indices alone" if node.positional else "in order"


def arguments(node: Operator) -> str:
    """Return an operator's arguments in one line."""
    given = node.shown()
    if isinstance(given, str):
        return shortened(given)
    parts = []
    for key, value in given.items():
        if isinstance(value, dict) and "function" in value:
            parts.append(value["function"].rpartition("<locals>.")[2])
        elif key not in _UNSAID and value not in ([], {}, False):
            parts.append(f"{key}={function_name(value) if callable(value) else value}")
    return shortened(", ".join(parts))


def shortened(text: str) -> str:
    """Shorten a long line."""
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def workers(node: Operator) -> tuple[int, str]:
    """Return the number of workers of a plan, and what determines it."""
    options: Options = options_of(node)
    count = parallelism_of(node, options, None).workers
    calls = [asked for n in walk(node) if (asked := options.parallel_of(n)) is not None]
    if os.environ.get("TUNDISH_WORKERS"):
        return count, "TUNDISH_WORKERS says so"
    if options.asked_workers is not None:
        asked, who = options.asked_workers, "Options.workers"
    elif calls:
        asked, who = (AUTOTUNE if AUTOTUNE in calls else max(calls)), "num_parallel_calls"
    else:
        return count, "nothing asks for workers (num_parallel_calls=, Options(workers=))"
    if asked != AUTOTUNE:
        return count, f"{who} says so"
    return count, f"{who} is AUTOTUNE: the cores here{', to begin with' * options.autotune.tunes}"


def resume(node: Operator) -> Iterator[str]:
    """Yield remarks on the work that a restored iterator repeats, and on what its state lacks."""
    yield from filter(None, (each.redone for each in walk(node)))
    for state in external_state(node):
        yield f"not in the state: {state.node}, {state.what}; instead: {state.instead}"
