"""Damaged files: what was before the damage comes, then one error that says where; no wrong record."""

from __future__ import annotations

import faulthandler
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.formats.damaged import outcomes
from tests.formats.registry import SAMPLES, Sample
from tests.formats.trying import Problem, tried

NAMES = [sample.name for sample in SAMPLES]
BITS = 20
CASES = 20
NOBODY = 65534

Tried = dict[str, tuple[int, list[Problem]]]


def named(sample: Sample) -> str:
    return sample.name


@pytest.fixture(scope="module")
def swept() -> Tried:
    """Files cut and bits flipped, each in some places, spread over all."""
    return tried(NAMES, way="sweep", bits=BITS, keep="")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_cut_anywhere_and_any_bit_flipped(name: str, swept: Tried) -> None:
    count, problems = swept[name]

    assert count >= 14
    assert not problems


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_each_single_bit_flipped(name: str) -> None:
    faulthandler.cancel_dump_traceback_later()  # the limit of one test; each case in there has its own
    _, problems = tried([name], way="sweep", bits=1 << 30, keep="")[name]

    assert not problems


@pytest.mark.slow
def test_random_damage() -> None:
    found = tried(NAMES, way="fuzz", seed=0, cases=CASES, keep="")

    assert not {name: problems for name, (_, problems) in found.items() if problems}
    assert all(count >= CASES for count, _ in found.values())


APART = [each for each in SAMPLES if each.apart]


@pytest.mark.parametrize("sample", APART, ids=named)
def test_cut_anywhere_the_records_before_are_whole(sample: Sample, tmp_path: Path) -> None:
    path = sample.file(tmp_path)
    content = path.read_bytes()
    whole = outcomes(sample.form, str(path), itertools.repeat(9))
    ends = [*(each.place for each in whole[1:]), len(content)]

    for end in range(len(content)):
        path.write_bytes(content[:end])
        found = outcomes(sample.form, str(path), itertools.repeat(3))
        count = sum(at <= end for at in ends)
        assert found[:count] == whole[:count], end
        assert len(found) <= count + 1, end


@pytest.mark.parametrize("sample", APART, ids=named)
def test_a_bit_flipped_leaves_the_records_before_alone(sample: Sample, tmp_path: Path) -> None:
    path = sample.file(tmp_path)
    content = path.read_bytes()
    whole = outcomes(sample.form, str(path), itertools.repeat(9))
    ends = [*(each.place for each in whole[1:]), len(content)]

    for bit in range(0, 8 * len(content), 3):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        found = outcomes(sample.form, str(path), itertools.repeat(3))
        count = sum(at <= bit // 8 for at in ends)
        assert found[:count] == whole[:count], bit


@pytest.mark.parametrize("sample", SAMPLES, ids=named)
def test_what_cannot_be_opened_is_the_systems_error(sample: Sample, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")

    for path, kind in ((missing, FileNotFoundError), (str(tmp_path), IsADirectoryError)):
        with pytest.raises(kind) as told:
            sample.form.open(path)
        assert told.value.filename == path
        if sample.form.seekable:
            with pytest.raises(kind):
                sample.form.places(path)


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_file_that_is_not_ours_to_read(tmp_path: Path) -> None:
    import pickle

    forms = []
    for sample in {type(each.form): each for each in SAMPLES}.values():
        path = sample.file(tmp_path)
        path.chmod(0)
        forms.append((sample.form, str(path)))
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    child = subprocess.run(
        [sys.executable, "-m", "tests.formats.refused", pickle.dumps(forms).hex(), str(NOBODY)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert child.stdout.split() == ["refused"] * len(forms), child.stderr
