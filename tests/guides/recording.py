"""tf.data's results of the snippets, in recorded.json.

``python -m tests.guides.recording`` writes the file afresh, where TensorFlow is installed.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tests.guides import given, performance, shaping, shown
from tests.guides.snippets import Guide, Side, Snippet

FILE = Path(__file__).with_name("recorded.json")
GUIDES: list[Guide] = [shaping.GUIDE, performance.GUIDE]
SNIPPETS: list[Snippet] = [snippet for guide in GUIDES for snippet in guide]


def there(folder: Path) -> Side:
    """The side of TensorFlow."""
    import tensorflow as tf

    tf.random.set_seed(None)  # as in a new process: a test before this one may have set it
    return Side(tf.data, folder, tf)


def result(snippet: Snippet, side: Side) -> Any:
    """What a snippet gives, as JSON."""
    return json.loads(json.dumps(shown.show(snippet.run(side))))


def recorded() -> dict[str, Any]:
    """tf.data's results by the snippets' names."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def record() -> dict[str, Any]:
    """Run every snippet with tf.data."""
    found = {}
    for snippet in SNIPPETS:
        with tempfile.TemporaryDirectory() as folder:
            given.write_files(Path(folder))
            found[snippet.name] = result(snippet, there(Path(folder)))
    return found


def main() -> None:
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in record().items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
