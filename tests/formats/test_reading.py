"""Promises of every reader, over all formats: records, places, and beginning anywhere."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from tests.formats.damaged import from_reader, outcomes
from tests.formats.registry import SAMPLES, Sample

from tundish.errors import RecordCorruptError
from tundish.normalising import normalise
from tundish.testing.compare import digest

SEEKABLE = [sample for sample in SAMPLES if sample.form.seekable]
FILLED = [sample for sample in SAMPLES if sample.records]

pytestmark = pytest.mark.filterwarnings("error")


def named(sample: Sample) -> str:
    return sample.name


def descriptors() -> list[str]:
    """Return the files that this process has open."""
    return sorted(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names, of links that may lead nowhere


def digests(values: list[Any]) -> list[str]:
    return [digest(value) for value in values]


@pytest.mark.parametrize("sample", SAMPLES, ids=named)
def test_the_records_are_those_that_were_written(sample: Sample, tmp_path: Path) -> None:
    with sample.form.open(str(sample.file(tmp_path))) as reader:
        values: list[Any] = []
        while len(run := reader.read(1000)):
            values += run.records()

    assert digests(values) == digests(sample.records)
    assert digests([normalise(value) for value in values]) == digests(values)


@pytest.mark.parametrize("most", [1, 2, 3, 5, 1000])
@pytest.mark.parametrize("sample", SAMPLES, ids=named)
def test_reading_in_pieces_gives_the_same(sample: Sample, most: int, tmp_path: Path) -> None:
    path = str(sample.file(tmp_path))

    for ahead in (True, False):
        found = outcomes(sample.form, path, itertools.repeat(most), ahead=ahead)
        assert [each.digest for each in found] == digests(sample.records)
        assert found == outcomes(sample.form, path, itertools.cycle((1, 2)))


@pytest.mark.parametrize("sample", FILLED, ids=named)
def test_opened_at_a_place_it_gives_the_rest(sample: Sample, tmp_path: Path) -> None:
    path = str(sample.file(tmp_path))
    found = outcomes(sample.form, path, itertools.repeat(3))
    with sample.form.open(path) as reader:
        while len(reader.read(2)):
            pass
        end = reader.place

    for k, place in enumerate([*(each.place for each in found), end]):
        for ahead in (True, False):
            with sample.form.open(path, place, ahead=ahead) as reader:
                assert list(from_reader(reader, itertools.repeat(2))) == found[k:]


@pytest.mark.parametrize("sample", FILLED, ids=named)
def test_a_run_gives_its_records_one_by_one(sample: Sample, tmp_path: Path) -> None:
    with sample.form.open(str(sample.file(tmp_path))) as reader:
        run = reader.read(1000)

    assert [digest(run[k]) for k in range(len(run))] == digests(run.records())


@pytest.mark.parametrize("sample", SEEKABLE, ids=named)
def test_places_are_those_that_reading_meets(sample: Sample, tmp_path: Path) -> None:
    path = str(sample.file(tmp_path))
    met = [each.place for each in outcomes(sample.form, path, itertools.repeat(2))]
    places = sample.form.places(path)

    assert [int(place) for place in places] == met
    assert isinstance(places, range) or places.dtype == "int64"
    assert len(places) == len(sample.records)


@pytest.mark.parametrize("sample", [each for each in SAMPLES if not each.form.seekable], ids=named)
def test_what_is_not_seekable_has_no_places(sample: Sample, tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError):
        sample.form.places(str(sample.file(tmp_path)))


@pytest.mark.parametrize("sample", [each for each in SEEKABLE if each.records], ids=named)
def test_seeking_goes_anywhere_and_back(sample: Sample, tmp_path: Path) -> None:
    path = str(sample.file(tmp_path))
    places = [int(place) for place in sample.form.places(path)]
    order = [*reversed(range(len(places))), *range(0, len(places), 2), 0, len(places) - 1]

    for ahead in (True, False):
        with sample.form.open(path, ahead=ahead) as reader:
            for k in order:
                reader.seek(places[k])
                assert reader.place == places[k]
                (found,) = itertools.islice(from_reader(reader, itertools.repeat(1)), 1)
                assert (found.place, found.digest) == (places[k], digest(sample.records[k]))


@pytest.mark.parametrize("sample", FILLED, ids=named)
def test_opening_where_no_record_can_be_gives_an_error_or_none(
    sample: Sample, tmp_path: Path
) -> None:
    path = str(sample.file(tmp_path))

    for place in (10**6, 2**62):
        with contextlib.suppress(RecordCorruptError), sample.form.open(path, place) as reader:
            assert not len(reader.read(5))


@pytest.mark.parametrize("sample", SAMPLES, ids=named)
def test_the_end_stays_the_end(sample: Sample, tmp_path: Path) -> None:
    with sample.form.open(str(sample.file(tmp_path))) as reader:
        while len(reader.read(100)):
            pass
        end = reader.place

        assert not len(reader.read(1))
        assert not len(reader.read(100))
        assert reader.place == end


@pytest.mark.parametrize("sample", SAMPLES, ids=named)
def test_a_format_goes_to_other_processes(sample: Sample, tmp_path: Path) -> None:
    back = pickle.loads(pickle.dumps(sample.form))

    assert back == sample.form
    assert hash(back) == hash(sample.form)
    path = str(sample.file(tmp_path))
    one, other = (outcomes(form, path, itertools.repeat(9)) for form in (back, sample.form))
    assert one == other


@pytest.mark.parametrize("sample", SAMPLES, ids=named)
def test_a_reader_knows_its_file_and_closes_it(sample: Sample, tmp_path: Path) -> None:
    path = sample.file(tmp_path)
    before = descriptors()
    with sample.form.open(str(path)) as reader:
        assert reader.path == str(path)
        assert 0 <= reader.place <= 6  # behind a header
        reader.read(1)
    if reader.identity is not None:
        assert reader.identity == (path.stat().st_size, path.stat().st_mtime_ns)
    reader.close()
    assert descriptors() == before


@pytest.mark.parametrize("sample", SAMPLES, ids=named)
def test_a_failed_opening_leaves_nothing_open(sample: Sample, tmp_path: Path) -> None:
    path = tmp_path / f"damaged{sample.suffix}"
    path.write_bytes(b"\x00garbage\xff" * 30)
    before = descriptors()

    outcomes(sample.form, str(path), itertools.repeat(1))
    outcomes(sample.form, str(tmp_path), itertools.repeat(1))
    outcomes(sample.form, str(tmp_path / "missing"), itertools.repeat(1))

    assert descriptors() == before


@pytest.mark.parametrize("sample", FILLED, ids=named)
def test_records_outlive_the_reader_and_are_not_overwritten(sample: Sample, tmp_path: Path) -> None:
    path = sample.file(tmp_path)
    with sample.form.open(str(path)) as reader:
        held = []
        while len(run := reader.read(1)):
            held.append(run)
        values = [run[0] for run in held]
    path.write_bytes(b"\x55" * path.stat().st_size)  # in place: a mapped file would show it

    assert digests(values) == digests(sample.records)
    assert digests([run[0] for run in held]) == digests(sample.records)
