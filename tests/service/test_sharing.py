"""`distribute(job_name=...)`: consumers in threads of this process share jobs that a worker serves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice

import pytest
from tests.service.clusters import Cluster, ReachedCluster, cluster_process
from tests.service.computed import square
from tests.service.waiting import together

import tundish as td
from tundish import Dataset, service
from tundish.errors import IncompatibleJobError
from tundish.loader.service.jobs.dealing import check_numbered
from tundish.testing.compare import Outcome, collect, difference
from tundish.testing.registry import CASES, Case

STEPS = 12

# One of several consumers may be so slow that the others have everything.
pytestmark = pytest.mark.filterwarnings("ignore:job .* has no element for this consumer")


@pytest.fixture(scope="module")
def cluster() -> Iterator[ReachedCluster]:
    with cluster_process() as found:
        yield found


def numbers(ds: Dataset, most: int | None = None) -> list[int]:
    with iter(ds) as iterator:
        return [int(x) for x in islice(iterator, most)]


def test_consumers_share_one_stream_and_each_epoch_is_a_job(cluster: ReachedCluster) -> None:
    plain = Dataset.range(60).map(square)
    parts = [cluster.computes(plain, job_name="shared") for _ in range(2)]
    for _ in range(2):
        one, other = together(*[lambda ds=ds: numbers(ds) for ds in parts])
        assert sorted([*one, *other]) == [k * k for k in range(60)]


def test_rounds_are_dealt_in_the_order_of_the_consumers(cluster: ReachedCluster) -> None:
    endless = Dataset.range(12).map(square).repeat()
    parts = [
        cluster.computes(endless, job_name="rounds", consumer_index=k, num_consumers=3)
        for k in range(3)
    ]

    found = together(*[lambda ds=ds: numbers(ds, 8) for ds in parts])

    for k in range(3):
        assert found[k] == [((3 * n + k) % 12) ** 2 for n in range(8)]


def test_each_trainer_has_all_of_a_window(cluster: ReachedCluster) -> None:
    endless = Dataset.range(50).map(square).repeat()
    parts = [
        cluster.computes(
            endless,
            job_name="window",
            cross_trainer_cache=service.CrossTrainerCache(trainer_id=name, lag="wait"),
        )
        for name in ("first", "second")
    ]

    one, other = together(*[lambda ds=ds: numbers(ds, 30) for ds in parts])

    assert one == other == [k * k for k in range(30)]


def test_a_name_stands_for_one_job(cluster: ReachedCluster) -> None:
    assert len(numbers(cluster.computes(Dataset.range(4).map(square), job_name="one"))) == 4

    with pytest.raises(IncompatibleJobError, match="range"):
        numbers(cluster.computes(Dataset.range(5).map(square), job_name="one"))


def test_a_dataset_by_its_id_may_be_shared(cluster: ReachedCluster) -> None:
    number = service.register_dataset(cluster.target, Dataset.range(20).map(square))
    parts = [
        service.from_dataset_id("distributed_epoch", cluster.target, number, job_name="by id")
        for _ in range(2)
    ]

    one, other = together(*[lambda ds=ds: numbers(ds) for ds in parts])

    assert sorted([*one, *other]) == [k * k for k in range(20)]


def test_states_of_consumers_go_on_without_a_service(cluster: ReachedCluster) -> None:
    plain = Dataset.range(40).map(square)
    with ExitStack() as stack:
        iterators = [
            stack.enter_context(iter(cluster.computes(plain, job_name="saved"))) for _ in range(2)
        ]
        begun: list[int] = []
        for n, iterator in enumerate(iterators):
            begun += [int(next(iterator)) for _ in range(6 + n)]
        for iterator in iterators:  # each knows by now who else is there
            begun.append(int(next(iterator)))
        states = [json.loads(json.dumps(iterator.state_dict())) for iterator in iterators]
    state = service.alone(service.merge_states(states))
    with iter(plain) as iterator:
        iterator.load_state_dict(state)
        rest = [int(x) for x in iterator]

    assert sorted([*begun, *rest]) == [k * k for k in range(40)]


@pytest.mark.usefixtures("seeded")
def test_consumers_of_a_job_have_one_seed(cluster: ReachedCluster) -> None:
    plain = Dataset.range(20).shuffle(20)
    with iter(cluster.computes(plain, job_name="seed")) as shared:
        assert [int(x) for x in shared] == [int(x) for x in plain]
    td.set_seed(8)
    with pytest.raises(IncompatibleJobError, match=r"td\.set_seed: 8 here, 7 in the job"):
        numbers(cluster.computes(plain, job_name="seed"))


def through_a_job(case: Case, shared: Cluster) -> list[Outcome]:
    """Return what a single consumer of a shared job gets of a case."""
    with iter(shared.computes(case.build(), job_name=case.name)) as iterator:
        return collect(iterator, limit=STEPS)


@pytest.fixture
def near() -> Iterator[Cluster]:
    """A cluster of this process: its jobs find modules where this process does."""
    with ExitStack() as stack:
        yield Cluster(stack, 1)


def test_a_job_does_not_show(near: Cluster) -> None:
    names = {"map-configured", "from_generator", "batch"}
    cases = [case for case in CASES if case.name in names]
    assert len(cases) == len(names)
    for case in cases:
        with case.build().iterator(workers=0) as iterator:
            expected = collect(iterator, limit=STEPS)
        assert difference(expected, through_a_job(case, near), (case.name, "a job")) is None


@pytest.mark.thorough
@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("first", range(40))
def test_no_case_shows_a_job(first: int, near: Cluster) -> None:
    for case in CASES[first::40]:
        try:
            check_numbered(case.build())
        except ValueError:
            continue
        found = through_a_job(case, near)
        with case.build().iterator(workers=0) as iterator:
            expected = collect(iterator, limit=STEPS)
        assert difference(expected, found, (case.name, "a job")) is None


def test_what_ends_cannot_be_read_in_rounds() -> None:
    apply = service.distribute("distributed_epoch", "localhost:1", "job", 0, 2)

    with pytest.raises(ValueError, match="infinite dataset"):
        Dataset.range(4).apply(apply)
    assert Dataset.range(4).repeat().cardinality() == td.INFINITE_CARDINALITY
