"""Computing one element again, in this process, to reproduce a bad record."""

from __future__ import annotations

import pdb  # noqa: T100 - asked for with --pdb
import re
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tundish.cli.snapshot import BAD_RECORDS, DONE, USAGE, Refusal, traceback_of
from tundish.cli.snapshot.badrecords import origin_of
from tundish.cli.terminal import say
from tundish.errors import RangeError, SpecError
from tundish.loader.plan.node import walk
from tundish.loader.protocols.operator import Operator, Unary
from tundish.loader.run.evaluating.ranges import base_of, only, over
from tundish.loader.run.iterator import Iterator
from tundish.spec import spec_of

if TYPE_CHECKING:
    from tundish.cli.snapshot.pipeline import KeptPipeline

_WHICH = re.compile(r"(?:(\w+)#(\d+):)?(\d+(?:\.\d+)*)(?:@(\d+))?\Z")
_AT = re.compile(r"tundish: in \w+#\d+, ")


def run_alone(pipeline: KeptPipeline, which: str, *, debug: bool) -> int:
    """Compute one element again, and show the result.

    Parameters
    ----------
    pipeline : KeptPipeline
        The pipeline of the element.
    which : str
        The result of `origin_of`, or ``index:N`` for the N-th kept element.
    debug : bool
        Stop in the debugger where it fails.

    Returns
    -------
    int
        The exit status, which tells whether it fails again.
    """
    if which.startswith("index:"):
        return _by_index(pipeline, which.removeprefix("index:"), debug=debug)
    found = _WHICH.match(which)
    if found is None:
        raise Refusal(
            USAGE, f"--only-element is MAP#NODE:ELEMENT as in --bad-records, not {which!r}"
        )
    place = _place(pipeline, found)
    plan, quick = _plan_of(place.node, place.position)
    if not quick:
        say("this pipeline has no random access: what comes before the element is run, too")
    iteration = place.iteration if quick else 0
    value: Any = None
    with Iterator(plan, iteration=iteration, workers=0, base_seed=pipeline.base_seed) as elements:
        while True:
            try:
                value = next(elements)
            except StopIteration:
                break
            except Exception as error:  # noqa: BLE001 - the element's error, which is asked for
                told = origin_of(error)
                if told is None or told.rpartition(":")[2] == which.rpartition(":")[2]:
                    return _failed(error, debug=debug)
    made = "nothing was made of it" if value is None else f"the last made of it: {_shown(value)}"
    say(f"element {which} did not fail this time; {made}")
    return DONE


@dataclass(frozen=True)
class Place:
    """Where to look for an element.

    Parameters
    ----------
    node : Operator
        The operator at which it failed, or the last one of the plan.
    position : int
        The source element that it is made from.
    iteration : int
        The number of the pass.
    """

    node: Operator
    position: int
    iteration: int


def _place(pipeline: KeptPipeline, which: re.Match[str]) -> Place:
    """Parse an origin: a node of the plan, or one of a dataset that a function made."""
    kind, at, path, pass_ = which.groups()
    root = pipeline.whole
    numbers, iteration = tuple(map(int, path.split("."))), int(pass_ or 0)
    if at is None:
        return Place(root, numbers[0], iteration)
    nodes = list(walk(root))
    node = nodes[int(at)] if int(at) < len(nodes) else None
    if node is not None and node.label == kind and len(numbers) in _lengths(node):
        return Place(node, numbers[0], iteration)
    if len(numbers) > 2:  # the pass, the element of which a function made a dataset, and within
        return Place(root, numbers[1], numbers[0])
    raise Refusal(USAGE, f"--only-element {which[0]}: this pipeline has no operator {kind}#{at}")


def _lengths(node: Operator) -> tuple[int, ...]:
    """Return how many numbers identify an element of a node, and of its input."""
    length, below = 1, node
    while isinstance(below, Unary) and below.origin != "ordinal":
        length += below.origin == "inside"
        below = below.up
    return (length, length - 1) if node.origin == "inside" else (length,)


def _plan_of(node: Operator, origin: int) -> tuple[Operator, bool]:
    """Return a plan of the elements made from one source element, and True if it gives only these."""
    try:
        base = base_of(node)
    except RangeError:
        return node, False
    source = base
    while (
        not _is_source(source)
        and isinstance(source, Unary)
        and (source.passes or source.elementwise)
    ):
        source = source.up
    if _is_source(source):
        if 0 <= source.cardinality <= origin:
            raise Refusal(USAGE, f"there is no element {origin}: there are {source.cardinality:,}")
        # What chooses and orders is left out: refs, and so random numbers, are the source's.
        return over(node, base, _unchosen(base, only(source, source, origin, origin + 1))), True
    if base.origin == "ordinal":
        return only(node, base, origin, origin + 1), True
    return node, False


def _is_source(node: Operator) -> bool:
    """Return True if the node's elements are identified by number, with random access."""
    return node.positional and node.numbers is not None


def _unchosen(node: Operator, source: Operator) -> Operator:
    """Return the functions between a source and a node, applied to another source."""
    if _is_source(node):
        return source
    assert isinstance(node, Unary)
    below = _unchosen(node.up, source)
    chooses = node.passes and not node.elementwise
    return below if chooses else replace(node, up=below)


def _by_index(pipeline: KeptPipeline, text: str, *, debug: bool) -> int:
    """Return the N-th kept element, by random access, or by running all before it."""
    if not text.isdigit():
        raise Refusal(USAGE, f"--only-element index:N has a number, not {text!r}")
    index, node = int(text), pipeline.upstream
    count = index + 1
    if node.positional and 0 <= index < (node.cardinality if node.cardinality >= 0 else count):
        node, count = only(node, node, index, index + 1), 1
    value: Any = None
    with Iterator(node, workers=0, base_seed=pipeline.base_seed) as elements:
        for k in range(count):
            try:
                value = next(elements)
            except StopIteration:
                raise Refusal(USAGE, f"there are only {k} elements") from None
            except Exception as error:  # noqa: BLE001 - the element's error, which is asked for
                if k == count - 1:
                    return _failed(error, debug=debug)
    say(f"element {index} did not fail this time: {_shown(value)}")
    return DONE


def _failed(error: BaseException, *, debug: bool) -> int:
    # What is run is a shorter plan: the number of its operator is none of the pipeline's.
    notes = getattr(error, "__notes__", [])
    notes[:] = [_AT.sub("tundish: ", note) for note in notes]
    print(traceback_of(error), file=sys.stderr)  # noqa: T201 - as Python would
    if debug:
        pdb.post_mortem(error.__traceback__)
    return BAD_RECORDS


def _shown(value: Any) -> str:
    try:
        return str(spec_of(value))
    except SpecError:
        return repr(value)
