"""A plan as an SVG: operators from top to bottom, those computed together on one band."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tundish.loader.watch.picture import CHARACTER, document, label

if TYPE_CHECKING:
    from tundish.cli.outline import Outline, OutlineStep

_PADDING = 14.0
_LEAST_WIDTH = 168.0
_GAP = 36.0  # between boxes, for the arrow and the number of elements
_JOIN = 68.0  # the same where several come together
_BESIDE = 32.0  # between joined inputs
_MARGIN = 28.0
_HEAD = 54.0
_LINE = 19.0

_STYLE = """\
.name { font-weight: 600; }
.box { fill: #ffffff; stroke: #b8c2cc; }
.work { fill: #e6f0fb; stroke: #6f9fd0; }
.band { fill: #f3f7fc; stroke: #d5e3f1; }
.arrow { stroke: #8895a3; fill: none; }
.tip { fill: #8895a3; }
"""


@dataclass
class StepBox:
    """A step with its position on the page; y grows downwards."""

    step: OutlineStep
    x: float
    y: float
    width: float
    height: float
    inputs: list[StepBox]


@dataclass
class Canvas:
    """The shapes drawn so far, the lower layers first."""

    bands: list[str] = field(default_factory=list)
    shapes: list[str] = field(default_factory=list)
    right: float = 0.0
    bottom: float = 0.0


def draw(plan: Outline, title: str, spec: str) -> str:
    """Draw an outline.

    Parameters
    ----------
    plan : Outline
        The plan to draw.
    title, spec : str
        To be written above, and below.

    Returns
    -------
    str
        An SVG document.
    """
    canvas = Canvas()
    bottom = put(plan.last, _MARGIN + _PADDING, _HEAD)
    for box in everything(bottom):
        draw_box(canvas, box)
    draw_bands(canvas, bottom)
    draw_output(canvas, bottom, plan.elements)
    notes = [("element", spec)] if spec else []
    notes.append(("workers", plan.workers))
    notes += zip(("resume", *[""] * len(plan.resume)), plan.resume, strict=False)
    y = canvas.bottom + _LINE * 1.5
    for name, text in notes:
        canvas.shapes.append(label(_MARGIN, y, name, "quiet"))
        canvas.shapes.append(label(_MARGIN + 70, y, text))
        canvas.right = max(canvas.right, _MARGIN + 70 + len(text) * CHARACTER)
        y += _LINE
    width = max(canvas.right, _MARGIN + len(title) * 1.3 * CHARACTER) + _MARGIN
    shapes = [label(_MARGIN, _MARGIN + 8, title, "title"), *canvas.bands, *canvas.shapes]
    return document(title, width, y + _MARGIN - _LINE, _STYLE, shapes)


def put(step: OutlineStep, left: float, top: float) -> StepBox:
    """Lay out a step and everything upstream of it."""
    inputs: list[StepBox] = []
    at = left
    for up in step.inputs:
        above = put(up, at, top)
        inputs.append(above)
        at = max(reach(box) for box in everything(above)) + _BESIDE
    text = max(len(step.name), len(step.arguments)) * CHARACTER + 2 * _PADDING
    width, height = max(text, _LEAST_WIDTH), 46.0 if step.arguments else 30.0
    if not inputs:
        return StepBox(step, left, top, width, height, [])
    floor = max(box.y + box.height for box in inputs)
    for box in inputs:  # joined inputs end on one line
        move(box, 0, floor - box.y - box.height)
    centre = (middle(inputs[0]) + middle(inputs[-1])) / 2
    x = centre - width / 2
    gap = _GAP if len(inputs) == 1 else _JOIN
    box = StepBox(step, x, floor + gap, width, height, inputs)
    if x < left:
        move(box, left - x, 0)
    return box


def reach(box: StepBox) -> float:
    """Return the right edge of a box with its text."""
    return box.x + box.width + (len(box.step.place) * CHARACTER + 20)


def everything(box: StepBox) -> list[StepBox]:
    """Return a box and all boxes upstream of it."""
    return [box, *(above for up in box.inputs for above in everything(up))]


def move(box: StepBox, right: float, down: float) -> None:
    """Move a box and all boxes upstream of it."""
    for each in everything(box):
        each.x += right
        each.y += down


def middle(box: StepBox) -> float:
    """Return the x coordinate of a box's arrows."""
    return box.x + box.width / 2


def draw_box(canvas: Canvas, box: StepBox) -> None:
    """Draw a step with its text and its incoming arrows."""
    step, centre = box.step, middle(box)
    kind = "work" if step.stage else "box"
    canvas.shapes.append(
        f'<rect class="{kind}" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}"'
        f' height="{box.height:.1f}" rx="6"/>'
    )
    canvas.shapes.append(label(centre, box.y + 19, step.name, "name", anchor="middle"))
    if step.arguments:
        canvas.shapes.append(label(centre, box.y + 36, step.arguments, "quiet", anchor="middle"))
    for up in box.inputs:
        arrow(canvas, middle(up), up.y + up.height, centre, box.y)
        if up.step.elements != step.elements or len(box.inputs) > 1:
            outside = middle(up) < centre - 1  # where the arrow does not cross it
            x = middle(up) + (-9 if outside else 9)
            anchor = "end" if outside else "start"
            at = up.y + up.height + 17
            canvas.shapes.append(label(x, at, up.step.elements, "quiet", anchor=anchor))
    canvas.right = max(canvas.right, reach(box))
    canvas.bottom = max(canvas.bottom, box.y + box.height)
    if not step.stage:
        beside = label(box.x + box.width + 16, box.y + box.height / 2 + 4, step.place, "quiet")
        canvas.shapes.append(beside)


def draw_bands(canvas: Canvas, last: StepBox) -> None:
    """Draw a band under each run of boxes of one stage."""
    runs: list[list[StepBox]] = []

    def visit(box: StepBox, run: list[StepBox]) -> None:
        if box.step.stage:
            if not run or run[-1].step.stage != box.step.stage:
                run = []
                runs.append(run)
            run.append(box)
        for up in box.inputs:
            visit(up, run if box.step.stage and len(box.inputs) == 1 else [])

    visit(last, [])
    for run in runs:
        left = min(box.x for box in run) - _PADDING
        right = max(box.x + box.width for box in run) + _PADDING
        top, bottom = run[-1].y - 10, run[0].y + run[0].height + 10
        canvas.bands.append(
            f'<rect class="band" x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}"'
            f' height="{bottom - top:.1f}" rx="10"/>'
        )
        canvas.shapes.append(label(right + 12, (top + bottom) / 2 + 4, run[0].step.place))
        canvas.right = max(canvas.right, right + 12 + len(run[0].step.place) * CHARACTER)


def draw_output(canvas: Canvas, last: StepBox, elements: str) -> None:
    """Draw the arrow that leaves the last box, with the elements' spec."""
    centre, y = middle(last), last.y + last.height
    arrow(canvas, centre, y, centre, y + _GAP)
    canvas.shapes.append(label(centre + 9, y + 27, elements))
    canvas.right = max(canvas.right, centre + 9 + len(elements) * CHARACTER)
    canvas.bottom = y + _GAP


def arrow(canvas: Canvas, x: float, y: float, to_x: float, to_y: float) -> None:
    """Draw a line that leaves downwards and arrives from above."""
    end = to_y - 6
    bend = (end - y) / 2
    line = (
        f"M{x:.1f} {y:.1f}C{x:.1f} {y + bend:.1f} {to_x:.1f} {end - bend:.1f} {to_x:.1f} {end:.1f}"
    )
    canvas.shapes.append(f'<path class="arrow" d="{line}"/>')
    tip = f"M{to_x - 4:.1f} {end - 1:.1f}L{to_x + 4:.1f} {end - 1:.1f}L{to_x:.1f} {to_y:.1f}Z"
    canvas.shapes.append(f'<path class="tip" d="{tip}"/>')
