"""``tundish inspect``: a dataset's operators, and how it would be run."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import sys
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from tundish.cli.drawing import draw
from tundish.cli.outline import Outline, OutlineStep, outline
from tundish.cli.running import run_for
from tundish.cli.snapshot import raised_by_the_user, users_traceback
from tundish.cli.terminal import bold, dim, refuse, say, warn
from tundish.errors import TundishError
from tundish.loader.dataset import Dataset
from tundish.loader.run.starting.byvalue import never_import
from tundish.spec import ArraySpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tundish.cli.running import Ran

_REFUSED = (ImportError, OSError, AttributeError, TypeError, ValueError, SyntaxError)


def run(
    target: str, svg: str | None = None, *, spec: bool = False, seconds: float | None = None
) -> int:
    """Print a dataset's outline; on request, also draw it and run it for a while.

    Parameters
    ----------
    target : str
        ``package.module:name`` or ``folder/file.py:name``: a `Dataset`, or a function without
        arguments that returns one.
    svg : str, optional
        The file for the drawing: of the plan, or of the verdict of a run.
    spec : bool
        Learn the elements' spec by running the plan on the first one.
    seconds : float, optional
        Run the dataset for this time, and print what it waits for.

    Returns
    -------
    int
        The exit status: 1 if the spec was requested and the first element fails, or if all elements of the run
        failed; 2 if the dataset cannot be found, or the drawing cannot be written to `svg`; 130 after Ctrl-C.
    """
    try:
        if svg is not None:
            check_folder(svg)
        dataset = find(target)
    except Exception as error:
        told = users_traceback(error)
        if not told and not isinstance(error, _REFUSED):
            raise
        return refuse(told or f"{target}: {error}")
    plan = outline(dataset)
    known, status = "not asked for (--spec)", 0
    cheap = dataset._node.safe  # noqa: SLF001 - no user code below: nothing is run
    if spec or cheap:
        try:
            known = show_spec(dataset.element_spec)
        except Exception as error:
            if not (raised_by_the_user(error) or isinstance(error, TundishError)):
                raise
            known, status = f"the first one failed: {type(error).__name__}: {error}", 1
            refuse(users_traceback(error) or str(error))
    show(plan, target, known)
    picture = draw(plan, target, known if spec or cheap else "")
    if seconds is not None:
        try:
            ran = run_for(dataset, seconds)
        except TundishError as error:  # no iterator can be made, of what its files are now
            return refuse(f"{target}: {error}")
        show_run(ran)
        picture = ran.verdict.svg(f"{target}: {ran.verdict.headline}")
        status = 130 if ran.interrupted else 1 if ran.failed else status
    if svg is not None:
        Path(svg).write_text(picture, encoding="utf-8")
        say(dim(f"drawn into {svg}"))
    return status


def check_folder(path: str) -> None:
    """Raise before a run if the drawing's folder does not exist."""
    if Path(path).is_dir():
        raise IsADirectoryError(f"--svg names a folder, not a file: {path}")
    if not Path(path).absolute().parent.is_dir():
        raise FileNotFoundError(f"--svg: there is no folder {Path(path).absolute().parent}")


def show_run(ran: Ran) -> None:
    """Print the result of a run."""
    width = max(40, min(100, shutil.get_terminal_size((100, 24)).columns))
    if ran.failed:
        say()
        say(warn("every element failed"))
        for line in ran.notes:
            say(line)
        return
    head, *rest = ran.verdict.text(width).split("\n- ")
    say()
    say(bold(ran.verdict.headline))
    for line in (head, *ran.notes):
        say(line)
    if rest:
        say()
        say(bold("what would change it"))
        for each in rest:
            say(f"- {each}")


def find(target: str) -> Dataset:
    """Import what `target` names; to it, ``sys.argv`` is as if it had been started itself."""
    module_name, _, name = target.rpartition(":")
    if not module_name or not name:
        raise ValueError("name a dataset as MODULE:NAME, such as train:data or train.py:data")
    sys.argv[0] = module_name
    found: Any = load(module_name)
    for part in name.split("."):
        found = getattr(found, part)
    if callable(found) and not isinstance(found, Dataset):
        found = found()
    if not isinstance(found, Dataset):
        kind = type(found).__qualname__
        hint = ": name the one that it divides" if kind == "DistributedDataset" else ""
        raise TypeError(f"this is not a Dataset, but of type {kind}{hint}")
    return found


def load(name: str) -> Any:
    """Import a module by its name, or a file by its path."""
    if not name.endswith(".py"):
        sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(name)
    path = Path(name).resolve()
    if not path.is_file():
        raise FileNotFoundError("there is no such file")
    sys.path.insert(0, str(path.parent))
    made = importlib.util.spec_from_file_location(path.stem, path)
    assert made is not None
    assert made.loader is not None
    module = importlib.util.module_from_spec(made)
    sys.modules[path.stem] = module
    never_import(path.stem)  # as `python train.py` does it
    made.loader.exec_module(module)
    return module


def show(plan: Outline, title: str, spec: str) -> None:
    """Print the steps, the source first, then the remarks on the whole plan."""
    steps = list(lines(plan.last))
    widths = [max(len(row[column]) for row, _ in steps) for column in range(4)]
    say(bold(title))
    say()
    for (left, name, arguments, elements), place in steps:
        cells = (
            f"{left:<{widths[0]}}",
            bold(f"{name:<{widths[1]}}"),
            f"{arguments:<{widths[2]}}",
            f"{elements:>{widths[3]}}",
            place if place.startswith("stage") else dim(place),
        )
        say("  ".join(cells).rstrip())
    say()
    say(f"element    {spec}")
    say(f"workers    {plan.workers}")
    for number, again in enumerate(plan.resume):
        say(f"{'' if number else 'resume':<11}{again}")
    for text in plan.slow:
        for number, line in enumerate(
            wrap(text, max(40, shutil.get_terminal_size((100, 24)).columns - 11))
        ):
            say(warn(f"{'' if number else 'slow':<11}{line}"))


def lines(step: OutlineStep, left: str = "") -> Iterator[tuple[tuple[str, str, str, str], str]]:
    """Yield the cells and the place of each step; joined inputs are listed one after another."""
    joined = len(step.inputs) > 1
    for number, up in enumerate(step.inputs):
        above = list(lines(up, left + ("│ " if joined else "")))
        if joined:
            (mark, name, arguments, elements), place = above[0]
            corner = left + ("├ " if number else "┌ ") + mark[len(left) + 2 :]
            above[0] = ((corner, name, arguments, elements), place)
        yield from above
    mark = left + "└ " if joined else left
    yield (mark, step.name, step.arguments, step.elements), step.place


def show_spec(spec: Any) -> str:
    """Return a nest of specs in one line: ``{image: uint8 [64, 224, 224, 3], name: str}``."""
    if isinstance(spec, ArraySpec):
        dtype = spec.dtype.__name__ if isinstance(spec.dtype, type) else str(spec.dtype)
        return f"{dtype} {list(spec.shape)}" if spec.shape else dtype
    if isinstance(spec, dict):
        return f"{{{', '.join(f'{key}: {show_spec(value)}' for key, value in spec.items())}}}"
    if isinstance(spec, tuple):
        return f"({', '.join(map(show_spec, spec))})"
    return str(spec)
