"""Pictures of the site as inline SVG, so that their colours follow the theme that a reader has chosen.

The operators' pages have typed pictures: a ``text`` block with rows of values, which can be read and checked
where it stands. The site shows the same rows as boxes. Other pages have SVG files, whose colours follow the
system where GitHub shows them; the site puts their text into the page and lets its own switch decide.
"""

from __future__ import annotations

import re
from html import escape

CHAR, ROW, BOX = 9.0, 34, 26
"""Pixels: width of a character, height of a row and of a box."""

RUN = re.compile(r"\S+(?: \S+)*")  # what no two blanks separate
VALUE = re.compile(r"\[+[^\[\]]*\]*|\([^()]*\)|<[^<>]*>|'[^']*'|[^\s\[\](]+\]*")
PROSE = re.compile(
    r"[a-z]{2,}[,:]? [\w+]|[a-z]+: \[|^\w+\(.*\)$|^at the|^def |^with |^boundaries|^batch sizes"
)


def draw(source: str) -> str:
    """Return the picture as the text of an SVG."""
    lines = source.rstrip("\n").split("\n")
    parts, y, drawn, kind = [], 8, 0, "in"
    for line in lines:
        if not line.strip():
            y, kind = y + 10, "in"
            continue
        kind = "out" if line.startswith("out") else kind if line[0] == " " else "in"
        parts += row(line, y, kind)
        y += ROW
        drawn = max(drawn, len(line))
    width, height = drawn * CHAR + 28, y + 4
    title = escape(source.strip(), quote=True)
    return (
        f'<svg class="picture" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
        f'width="{width:.0f}" height="{height}" role="img" aria-label="{title}">{"".join(parts)}</svg>'
    )


def row(line: str, y: int, kind: str) -> list[str]:
    """Draw one line: its label, values in boxes, and remarks."""
    parts = []
    for run in RUN.finditer(line):
        start, said = run.start(), run[0]
        label = start == 0 and not said[0].isdigit() and said[0] not in "[(<'"
        if label or PROSE.search(said):
            parts.append(text(start, y, said, "label" if label and start == 0 else "remark"))
        else:
            parts += values(said, start, y, kind)
    return parts


def values(said: str, start: int, y: int, kind: str) -> list[str]:
    """Draw what stands between two gaps, a box for each value."""
    parts = []
    for found in VALUE.finditer(said):
        value, column = found[0], start + found.start()
        if value in {"|", "·", "…"}:
            parts.append(text(column, y, value, "remark"))
            continue
        inner = value.strip("[]<>") if value[0] in "[<" or value.endswith("]") else value
        x = column * CHAR + 12
        if value[0] not in "[<" and not value.endswith("]"):
            shade = "bad" if value == "✗" else kind
            width = max(len(value) * CHAR + 8, BOX - 4)
            parts.append(box(x - 4, y, width, shade))
            parts.append(text(column, y, value, "value", width / 2 - 4))
            continue
        parts.append(box(x - 4, y, max(len(value) * CHAR + 8, BOX - 4), kind))
        offset = value.index(inner) if inner else 0
        parts += [
            text(column + offset + cell.start(), y, cell[0], "value", len(cell[0]) * CHAR / 2)
            for cell in re.finditer(r"'[^']*'|\S+", inner)
        ]
        for gap in re.finditer(r" ", inner):
            at = (column + offset + gap.start() + 0.5) * CHAR + 12
            parts.append(f'<path class="cut" d="M{at:.1f} {y + 5}v{BOX - 10}"/>')
    return parts


def box(x: float, y: int, width: float, shade: str) -> str:
    """Draw a rounded box."""
    return f'<rect class="{shade}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BOX}" rx="5"/>'


def text(column: int, y: int, said: str, role: str, middle: float = 0.0) -> str:
    """Write a text at its column; a value is centred in its box."""
    x = column * CHAR + 12 + middle
    return f'<text class="{role}" x="{x:.1f}" y="{y + 18}">{escape(said)}</text>'


STYLE = re.compile(
    r"<style>(.*?)@media \(prefers-color-scheme:dark\)\{(.*?)\}\s*</style>", re.DOTALL
)
RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")


def inline(svg: str, name: str) -> str:
    """Return the text of an SVG file for a page, where it follows the theme; without dark colours, as it is."""
    style = STYLE.search(svg)
    if style is None:
        return svg
    light, dark = style[1], style[2]
    rules = (
        scoped(light, f"#{name}")
        + scoped(dark, f"[data-theme=dark] #{name}")
        + "@media (prefers-color-scheme:dark){"
        + scoped(dark, f"body:not([data-theme=light]) #{name}")
        + "}"
    )
    svg = svg.replace(style[0], f"<style>{rules}</style>")
    svg = re.sub(r'\bid="(\w+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r"url\(#(\w+)\)", rf"url(#{name}-\1)", svg)
    return svg.replace("<svg ", f'<svg id="{name}" class="drawing" ', 1)


def scoped(rules: str, ancestor: str) -> str:
    """Put an ancestor before each selector of some rules of CSS."""
    return RULE.sub(
        lambda rule: (
            ",".join(f"{ancestor} {part.strip()}" for part in rule[1].split(",")) + f"{{{rule[2]}}}"
        ),
        rules,
    )
