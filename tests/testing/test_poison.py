"""Memory that nobody has written is found: `tundish.testing.poison`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tundish.testing import poison


@pytest.mark.slow
def test_in_a_process_of_its_own() -> None:
    tests = Path(__file__).with_name("under_poison.py")

    assert poison.run(["-m", "pytest", "-q", str(tests)]) == 0


def test_a_process_that_was_started_without_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poison, "active", lambda: False)
    with pytest.raises(RuntimeError, match=r"start the process by `python -m tundish.testing"):
        poison.install()


def test_the_environment_is_added_to_and_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.arena_max=2")
    found = poison.environ()

    assert found["GLIBC_TUNABLES"].split(":")[-1] == "glibc.malloc.arena_max=2"
    assert "glibc.malloc.perturb=127" in found["GLIBC_TUNABLES"]


def test_a_file_that_is_mostly_a_hole_is_looked_through(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.write(b"written")
        file.seek(1 << 40)
        file.write(bytes([poison.FRESH]) * 16)
        file.truncate(1 << 41)
    poison.look_through_files(tmp_path)

    with pytest.raises(AssertionError, match="sparse holds memory that was never"):
        poison.assert_clean()
