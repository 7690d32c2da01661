"""The tables of the snippets in docs/guide/coming-from-tfdata.md.

``python -m tests.guides.page`` writes them.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.guides.recording import GUIDES
from tests.guides.snippets import Guide, Snippet

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "coming-from-tfdata.md"
HEADING = "## The snippets of TensorFlow's guides\n"
SECTION = re.compile(rf"(?<=^{re.escape(HEADING)}).*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
INTRODUCTION = """
A test runs the snippets of TensorFlow's two guides on tf.data here, and also with tf.data where it is installed. In all
of them `tf.data` becomes `td`, `tf.int32` becomes `np.int32`, and `.numpy()` is dropped, because elements are NumPy's. Of
{count} snippets {same} need no other change and give the same values, dtypes and order. Results that are random without a
seed are compared without their order. The last column lists what else changes in the code, and where an element has
another dtype (`int64` for `int32`: int64 here, int32 in tf.data). Text is `str` if its source is text (a file's name, a
Python string), and `bytes` if it was read from a file.
"""


def section() -> str:
    """All that stands below the heading."""
    snippets = [snippet for guide in GUIDES for snippet in guide]
    same = sum(rest(snippet) == "same" for snippet in snippets)
    told = INTRODUCTION.format(count=len(snippets), same=same)
    return told + "".join(map(table, GUIDES)) + "\n"


def table(guide: Guide) -> str:
    lines = [f"\n**{guide.title}**\n", "| section | snippet | what else differs |", "|---|---|---|"]
    last = ""
    for snippet in guide:
        above = "" if snippet.section == last else snippet.section
        lines.append(f"| {above} | {snippet.title} | {rest(snippet)} |")
        last = snippet.section
    return "\n".join(lines) + "\n"


def rest(snippet: Snippet) -> str:
    """The differences of a snippet, or "same"."""
    kinds = [
        f"`{is_}` for `{was}`" for is_, _, was in (d.partition(" for ") for d in snippet.differs)
    ]
    return "; ".join(kinds + [snippet.change] * bool(snippet.change)) or "same"


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(SECTION.sub(lambda _: section(), text), encoding="utf-8")


if __name__ == "__main__":
    main()
