"""A deadline that limits nothing is told of."""

from __future__ import annotations

import warnings

import pytest

from tundish import Dataset, Options

LIMITED = Options(deadline=20)


def test_a_plan_that_asks_for_no_workers_warns() -> None:
    ds = Dataset.range(3).map(lambda x: x + 1).with_options(LIMITED)

    with pytest.warns(UserWarning, match=r"deadline=20\) has no effect: .*no workers") as caught:
        assert list(ds) == [1, 2, 3]

    assert caught[0].filename == __file__


def test_workers_that_are_declined_or_not_needed_are_no_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ds = Dataset.range(3).map(lambda x: x + 1).with_options(LIMITED)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ds.iterator(workers=0) as iterator:
            assert list(iterator) == [1, 2, 3]
        assert list(Dataset.range(3).batch(3).with_options(LIMITED).unbatch()) == [0, 1, 2]
        assert list(Dataset.range(2).map(str, num_parallel_calls=1).with_options(LIMITED)) == ["0", "1"]  # fmt: skip
        monkeypatch.setenv("TUNDISH_WORKERS", "0")
        assert list(ds) == [1, 2, 3]
