"""Rules that hold for a reader whatever is in the file: checked on one file after another.

`problem_of` reads a file in every way there is, and says what is wrong with that, if anything.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tundish.errors import RecordCorruptError, SpecError
from tundish.formats.format import Format, RecordReader
from tundish.testing.compare import digest

PROBLEMS = (RecordCorruptError, OSError)
"""What reading may raise."""
UNFIT = (*PROBLEMS, SpecError)
"""What opening may raise: a table may have other columns."""
ENDLESS = 2_000_000
"""So many outcomes no file of these tests has, though its bytes be damaged."""


class Found(NamedTuple):
    """A record, or the error in its place."""

    place: int
    digest: str
    error: Exception | None = None

    def same(self, other: Found) -> bool:
        return self[:2] == other[:2]


class WrongError(AssertionError):
    """A reader broke its word."""


def check(holds: object, told: str) -> None:
    if not holds:
        raise WrongError(told)


def outcomes(form: Format, path: str, sizes: Iterator[int], *, ahead: bool = True) -> list[Found]:
    """All that a file gives, errors in their places; `sizes`: how many records to ask for."""
    try:
        reader = form.open(path, ahead=ahead)
    except UNFIT as error:
        return [failed(0, error, path)]
    with reader:
        return list(from_reader(reader, sizes))


def from_reader(reader: RecordReader, sizes: Iterator[int]) -> Iterator[Found]:
    """Yield what is left in a reader."""
    for _ in range(ENDLESS):
        most, place = next(sizes), reader.place
        try:
            run = reader.read(most)
        except PROBLEMS as error:
            yield failed(place, error, reader.path)
            if reader.place == place:
                return
            check(reader.place > place, f"after an error at {place} it went back to {reader.place}")
            continue
        check(len(run) <= most, f"{most} record(s) were asked for, {len(run)} came")
        if not len(run):
            check(reader.place >= place, f"at the end it went back from {place} to {reader.place}")
            return
        values, places = run.records(), [int(at) for at in run.places]
        check(len(values) == len(places) == len(run), f"{len(values)} values, {len(places)} places")
        check(places[0] >= place, f"reading at {place} gave a record of {places[0]}")
        rising = [*places, run.after]
        check(all(a < b for a, b in itertools.pairwise(rising)), f"places do not rise: {rising}")
        check(reader.place == run.after, f"place {reader.place} behind a run that ends {run.after}")
        yield from map(Found, places, map(digest, values))
    raise WrongError(f"no end in sight at place {reader.place}")


def failed(place: int, error: Exception, path: str) -> Found:
    """An error, looked at."""
    if isinstance(error, RecordCorruptError):
        check(error.path == path, f"the error names {error.path!r}: {error}")
        check(error.offset >= 0, f"offset {error.offset!r}")
        check(error.problem, "the error says nothing")
    return Found(place, digest(type(error).__name__), error)


def problem_of(
    form: Format, path: str, seed: int, allowed: Callable[[list[Found]], str] | None = None
) -> str | None:
    """Say what is wrong with how a file is read.

    Parameters
    ----------
    form : Format
        How it is read.
    path : str
        Whatever it holds.
    seed : int
        For the choice of places.
    allowed : callable, optional
        Says what is wrong with what came, if anything.
    """
    rng = random.Random(seed)
    try:
        found = outcomes(form, path, itertools.repeat(1))
        again = outcomes(form, path, (rng.choice((1, 2, 3, 100)) for _ in itertools.count()))
        agree(found, again, "asked for more at once")
        agree(found, outcomes(form, path, itertools.repeat(7), ahead=False), "not reading ahead")
        check_places(form, path, found, rng)
        told = allowed(found) if allowed else ""
        check(not told, told)
    except WrongError as wrong:
        return str(wrong)
    except (MemoryError, RecursionError) as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - no other error is allowed
        frames = error.__traceback__
        while frames is not None and frames.tb_next is not None:
            frames = frames.tb_next
        where = frames and f"{frames.tb_frame.f_code.co_filename}:{frames.tb_lineno}"
        return f"{type(error).__name__}: {error} ({where})"
    return None


def agree(found: list[Found], other: list[Found], how: str) -> None:
    """Check that two readings gave the same."""
    for one, two in itertools.zip_longest(found, other):
        alike = one is not None and two is not None and one.same(two)
        check(alike, f"{one} in one reading, {how} {two}")


def check_places(form: Format, path: str, found: list[Found], rng: random.Random) -> None:
    """Opening at a place gives what is there, and `places` knows them all."""
    if form.seekable:
        try:
            places = [int(place) for place in form.places(path)]
        except UNFIT as error:
            check(len(found) == 1, f"places: {error}; reading gave {len(found)} outcomes")
            check(found[0].same(failed(0, error, path)), f"places: {error!r}, not {found[0]}")
            return
        expected = [each.place for each in found]
        check(places == expected, f"places are {places[:9]}, reading has {expected[:9]}")
    for k in rng.sample(range(len(found)), min(3, len(found))):
        there = found[k].place
        try:
            reader = form.open(path, there, ahead=bool(rng.randrange(2)))
        except UNFIT as error:
            check(found[k].error is not None, f"opening at {there}: {error!r}, not {found[k]}")
            continue
        with reader:
            rest = list(from_reader(reader, itertools.repeat(2)))
        agree(found[k:], rest, f"opened at {there}")


def in_order(expected: list[str], *, cut_off: bool) -> Callable[[list[Found]], str]:
    """Make a check that nothing wrong comes, and all that stands before the first error.

    Parameters
    ----------
    expected : list of str
        The digests of the records that were there before the damage.
    cut_off : bool
        Whether what came before the end of a stream that is cut off counts, too.
    """

    def told(found: list[Found]) -> str:
        if not cut_off and found and "cut off" in str(found[-1].error):
            return ""
        came = [each.digest for each in found if each.error is None]
        left = iter(expected)
        if not all(any(x == y for y in left) for x in came):
            return "a record came that was not written so"
        first = next((k for k, each in enumerate(found) if each.error is not None), len(found))
        return "" if came[:first] == expected[:first] else "a record before the error is missing"

    return told


def among(known: set[str]) -> Callable[[list[Found]], str]:
    """Make a check that nothing comes that was nowhere written."""

    def told(found: list[Found]) -> str:
        wrong = [each for each in found if each.error is None and each.digest not in known]
        return f"these were nowhere written: {wrong[:3]}" if wrong else ""

    return told
