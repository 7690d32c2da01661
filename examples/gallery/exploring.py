"""A notebook: look at a pipeline before anything is trained on it, with numpy alone.

Which words do the functions of Python's standard library have in their names? The cells build a pipeline step by
step, look at elements, structure and plan, run it in workers, and ask what it was waiting for. The count can be
killed and continued like a training.

    pip install .
    python examples/gallery/exploring.py --steps 40 --state exploring.json

Data: Python's standard library (PSF licence).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sysconfig
from collections import Counter
from pathlib import Path

import tundish as td

FILES = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))

# %% A reader of lines is a dataset: it has a length, and any line can be asked for.
lines = td.TextLineDataset(FILES, encoding="utf-8")
print(f"{len(FILES)} files; line 500: {lines[500]!r}")

# %% Operators make new datasets of it. `element_spec` says what an element is.
DEFINITION = re.compile(r"\s*(?:async )?def (\w+)")


def named(line: str) -> bool:
    """Say if a function begins here."""
    return DEFINITION.match(line) is not None


def words(line: str) -> str:
    """Give the words of the function's name."""
    return " ".join(re.findall(r"[a-z]+", DEFINITION.match(line)[1].lower()))


names = lines.filter(named).map(words)
print(names.element_spec, list(names.take(3)))


# %% The whole pipeline, and the plan that will be run. Nothing has been computed yet.
def data(workers: int) -> td.Dataset:
    """Batches of names in random order, without end."""
    options = td.Options(workers=workers)
    shuffled = lines.shuffle(None, seed=1).repeat()
    return shuffled.filter(named).map(words).batch(100).with_options(options)


print(data(workers=2))


# %% Run it: the count is saved with the pipeline's state, and continues where a killed run has stopped.
def main(arguments: list[str] | None = None) -> None:
    """Count the words of so many batches, and say what the pipeline was waiting for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--state", type=Path, default=Path("exploring.json"))
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args(arguments)

    count: Counter[str] = Counter()
    step = 0
    with iter(data(args.workers)) as batches:
        if args.state.exists():
            saved = json.loads(args.state.read_text(encoding="utf-8"))
            count, step = Counter(saved["count"]), saved["step"]
            batches.load_state_dict(saved["data"])
            print(f"continuing after step {step}")
        while step < args.steps:
            for name in next(batches):
                count.update(name.split())
            step += 1
            print(f"step {step}, {len(count)} words", flush=True)
            if step % 5 == 0:
                saved = {"count": count, "step": step, "data": batches.state_dict()}
                new = args.state.with_suffix(".new")
                new.write_text(json.dumps(saved), encoding="utf-8")
                new.replace(args.state)  # whole at any instant: the old one or the new one
        print(batches.explain())

    print(count.most_common(5))
    print(f"counts {hashlib.sha256(json.dumps(sorted(count.items())).encode()).hexdigest()[:16]}")


# %% Here it is called with its defaults; the program takes them from the command line.
if __name__ == "__main__":
    main()
