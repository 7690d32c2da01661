"""The command line itself: what it loads, and what it says when something is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tundish.cli import main


def test_help_loads_nothing_heavy() -> None:
    program = "import sys, tundish.cli as c; c.parser(); sys.exit('numpy' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_package_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.delitem(sys.modules, "tundish.cli.photographs", raising=False)
    monkeypatch.delitem(sys.modules, "tundish.cli.demo", raising=False)

    assert main(["demo"]) == 2
    assert "pip install pillow" in capsys.readouterr().err


def test_benchmarks_that_are_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "no_such_benchmark"]) == 2
    assert "inprocess, jpeg" in capsys.readouterr().err


def test_only_what_is_required_is_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["inspect"])
    assert "the following arguments are required: MODULE:NAME\n" in capsys.readouterr().err


def test_an_early_reader_of_the_output_is_no_error() -> None:
    program = "from tundish.cli import main; raise SystemExit(main(['doctor']))"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141
