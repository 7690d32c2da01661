"""Try the wheel and the sdist as users install them, in clean virtual environments (`make test-release`).

Each environment is made once, in `.venv-release`, and used again until the interpreter, the requirements or
what the wheel requires change; the wheel itself is installed anew each time. In each runs `smoke.py`, away
from the checkout. `python tests/release/environments.py --only oldest sdist` takes those whose names begin so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / ".venv-release"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = tuple(PROJECT["optional-dependencies"])
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
"""Of Python: those that are found are tried."""
OLDEST = ("3.11", "3.12")
"""For these Pythons there are wheels of the oldest numpy and pyarrow that `pyproject.toml` allows."""
LIMIT_S = 120


@dataclass(frozen=True)
class Environment:
    """One clean environment: an interpreter, what is installed, and what it shall be with."""

    name: str
    python: Path
    extra: str | None = None
    pins: tuple[str, ...] = ()
    constraints: str | None = None
    source: bool = False

    @property
    def folder(self) -> Path:
        return HERE / self.name

    @property
    def interpreter(self) -> Path:
        return self.folder / "bin" / "python"


def lowest() -> tuple[str, ...]:
    """Return the oldest versions of the core dependencies that are declared, as pins."""
    return tuple(each.replace(">=", "==") for each in PROJECT["dependencies"])


def pythons() -> dict[str, Path]:
    """Find interpreters: this one, those on the path, and those of pyenv."""
    here = ".".join(map(str, sys.version_info[:2]))
    found = {here: Path(sys.executable).resolve()}
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for wanted in VERSIONS:
        on_path = shutil.which(f"python{wanted}")
        named = [Path(on_path)] if on_path is not None else []
        for path in [*named, *root.glob(f"versions/{wanted}.*/bin/python")]:
            if wanted not in found and version_of(path).startswith(f"{wanted}."):
                found[wanted] = path
    return found


def version_of(python: Path) -> str:
    code = "import ensurepip, platform; print(platform.python_version())"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def environments() -> Iterator[Environment]:
    """List what is tried: oldest and newest of the core, the sdist, and each extra alone."""
    found = pythons()
    for wanted, python in sorted(found.items()):
        if wanted in OLDEST:
            yield Environment(f"oldest-{wanted}", python, pins=lowest())
        yield Environment(f"newest-{wanted}", python)
    first = found[min(found, key=lambda each: int(each.partition(".")[2]))]
    yield Environment("sdist", first, source=True)
    for extra in EXTRAS:
        yield Environment(f"extra-{extra}", first, extra, constraints="constraints-frameworks.txt")


def build(folder: Path) -> tuple[Path, Path]:
    """Build wheel and sdist with the installed backend, and return their paths."""
    shutil.rmtree(folder, ignore_errors=True)
    for target in ("wheel", "sdist"):
        command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


def install(environment: Environment, artefact: Path) -> None:
    """Install into a new environment as a user does, or only the artefact into one that has the rest."""
    stamp = environment.folder / "made-of"
    wanted = digest(environment)
    pip = [str(environment.interpreter), "-m", "pip", "install", "--quiet", "--no-compile"]
    if stamp.exists() and stamp.read_text() == wanted:
        run([*pip, "--no-deps", "--force-reinstall", str(artefact)])
    else:
        run([str(environment.python), "-m", "venv", "--clear", str(environment.folder)])
        extra = f"[{environment.extra}]" if environment.extra else ""
        limits = (
            ["--constraint", str(ROOT / environment.constraints)] if environment.constraints else []
        )
        run([*pip, "--prefer-binary", f"{artefact}{extra}", *environment.pins, *limits])
        stamp.write_text(wanted)
    run([str(environment.interpreter), "-m", "pip", "check"])


def digest(environment: Environment) -> str:
    """Return what an environment depends on, as a short text."""
    constraints = environment.constraints and (ROOT / environment.constraints).read_text()
    parts = [
        version_of(environment.python),
        str(ROOT),
        environment.pins,
        PROJECT["dependencies"],
        PROJECT["optional-dependencies"].get(environment.extra, []),
        constraints,
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def tour(environment: Environment) -> dict[str, str]:
    """Run the smoke program, away from the checkout, and return the versions that it names."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(Path(__file__).with_name("smoke.py"), folder)
        clean["TUNDISH_SERVICE_TOKEN_FILE"] = f"{folder}/token"
        Path(folder, "token").touch(0o600)
        Path(folder, "token").write_text(os.urandom(16).hex())
        extra = [environment.extra] if environment.extra else []
        done = run([str(environment.interpreter), "smoke.py", *extra], cwd=folder, env=clean)
    found: dict[str, str] = json.loads(done.splitlines()[-1])
    if not Path(found["from"]).is_relative_to(environment.folder):
        raise RuntimeError(f"{environment.name} imported tundish from {found['from']}")
    for pin in environment.pins:
        name, _, oldest = pin.partition("==")
        if not f"{found[name]}.".startswith(f"{oldest}."):
            raise RuntimeError(f"{environment.name} has {name} {found[name]}, not {oldest}")
    return found


def run(command: Sequence[str], cwd: str | None = None, env: dict[str, str] | None = None) -> str:
    """Run a command and return its output; on failure the error has the end of it."""
    limit = LIMIT_S if env is not None else None  # installing takes what the network gives
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=limit
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description="Try wheel and sdist in clean environments.")
    parser.add_argument("--only", nargs="*", default=[""], metavar="NAME", help="names begin so")
    parser.add_argument("--dist", type=Path, default=HERE / "dist", help="where the files go")
    parser.add_argument("--oldest", action="store_true", help="only print the oldest pins")
    parser.add_argument(
        "--sbom", action="store_true", help="write the bill of materials there, too"
    )
    arguments = parser.parse_args()
    if arguments.oldest:
        say(" ".join(lowest()))
        return 0
    names = tuple(arguments.only)
    wheel, sdist = build(arguments.dist)
    chosen = [each for each in environments() if each.name.startswith(names)]
    failed = 0
    for environment in chosen:
        begun = time.monotonic()
        try:
            install(environment, sdist if environment.source else wheel)
            found = tour(environment)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            failed += 1
            say(f"{environment.name}: FAILED\n{error}")
            continue
        if arguments.sbom:
            script = str(Path(__file__).with_name("sbom.py"))
            text = run([str(environment.interpreter), "-I", script, str(wheel)])
            (arguments.dist / f"tundish-{found['tundish']}.cdx.json").write_text(text)
        shown = "  ".join(f"{name} {found[name]}" for name in ("tundish", "numpy", "pyarrow"))
        say(f"{environment.name:18}{shown}  {time.monotonic() - begun:.0f} s")
    say(f"{len(chosen) - failed} passed, {failed} failed")
    return int(failed > 0 or not chosen)


if __name__ == "__main__":
    raise SystemExit(main())
