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
The snippets of TensorFlow's two guides on tf.data run here in a test, beside tf.data where it is installed. In all
of them `tf.data` becomes `td`, `tf.int32` becomes `np.int32`, and `.numpy()` goes away, because elements are NumPy's. Of
{count} snippets {same} need no other change and give the same values, dtypes and order; what is random without a seed
is compared without its order. The last column says what else changes in the code, and which dtype an element has here
for tf.data's. A text is `str` where its source is text (a file's name, a Python string), and `bytes` where it was read.
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
