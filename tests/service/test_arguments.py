"""Arguments of the service's functions, as a user of tf.data gives them."""

from __future__ import annotations

from typing import Any

import pytest

import tundish as td
from tundish import Dataset
from tundish.loader.run.coordinating.lookahead import LookAhead
from tundish.loader.service.distributing.arguments import (
    CrossTrainerCache,
    check_copies,
    check_endless,
    check_policy,
    check_service,
    sharing_of,
    terms_of,
)
from tundish.loader.service.distributing.distribute import Distribute, ShardingPolicy, Terms
from tundish.loader.service.jobs.dealing import Dealing


def test_policies_have_tf_datas_names_and_values() -> None:
    names = ["OFF", "DYNAMIC", "FILE", "DATA", "FILE_OR_DATA", "HINT"]

    assert [(each.name, each.value) for each in ShardingPolicy] == list(
        zip(names, range(6), strict=True)
    )
    assert check_policy("parallel_epochs") is ShardingPolicy.OFF
    assert check_policy("distributed_epoch") is ShardingPolicy.DYNAMIC
    assert check_policy(ShardingPolicy.HINT) is ShardingPolicy.HINT


@pytest.mark.parametrize("mode", ["DYNAMIC", "epoch", "", None, 1, ["parallel_epochs"]])
def test_other_policies_are_refused(mode: Any) -> None:
    with pytest.raises(ValueError, match="processing_mode must be"):
        check_policy(mode)


@pytest.mark.parametrize(
    "service",
    [
        "host:5050",
        "tcp://host:5050",
        "grpc://host:5050",
        ("grpc", "host:5050"),
        ("tcp", "host:5050"),
    ],
)
def test_addresses(service: Any) -> None:
    assert check_service(service) == "tcp://host:5050"
    assert check_service("[::1]:7") == "tcp://[::1]:7"
    assert check_service("tcp://a:1,b:2") == check_service("a:1,b:2") == "tcp://a:1,b:2"


@pytest.mark.parametrize(
    "service",
    [
        "",
        "host",
        "host:",
        ":5050",
        "host:port",
        "host:99999",
        "http://host:1",
        "tcp://",
        "a://b://c:1",
        "tcp://tcp://h:1",
    ],
)
def test_what_is_no_address(service: str) -> None:
    with pytest.raises(ValueError, match=r"host:5050"):
        check_service(service)


@pytest.mark.parametrize(
    "service", [None, 5050, ("host", 5050), ("tcp", "host", "5050"), b"host:1"]
)
def test_what_is_no_address_at_all(service: Any) -> None:
    with pytest.raises(TypeError, match="dispatcher's address"):
        check_service(service)


def test_terms() -> None:
    assert terms_of("h:1", "LOCAL", 3, None) == Terms("tcp://h:1", "LOCAL", 3)
    with pytest.raises(ValueError, match="target_workers must be one of AUTO, ANY, LOCAL"):
        terms_of("h:1", "local", None, "AUTO")
    with pytest.raises(ValueError, match="max_outstanding_requests must be at least 1"):
        terms_of("h:1", "AUTO", 0, "AUTO")
    with pytest.raises(
        ValueError,
        match="compression must be 'AUTO' or None, not 'GZIP': elements are sent uncompressed",
    ):
        terms_of("h:1", "AUTO", None, "GZIP")


def test_jobs() -> None:
    assert sharing_of(None, None, None, None) is None
    assert sharing_of("job", None, None, None) == ("job", Dealing(), None)
    assert sharing_of("job", 1, 2, None) == ("job", Dealing("rounds", 2), "1")
    cache = CrossTrainerCache("a")
    assert sharing_of("job", None, None, cache) == ("job", Dealing("window"), "a")


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ((None, 0, 2, None), ValueError, "needs a job_name"),
        ((None, None, None, CrossTrainerCache("a")), ValueError, "needs a job_name"),
        (("job", 0, None, None), ValueError, "both consumer_index and num_consumers"),
        (("job", None, 2, None), ValueError, "both consumer_index and num_consumers"),
        (("job", 2, 2, None), ValueError, "consumer_index must be at most 1"),
        (("job", -1, 2, None), ValueError, "consumer_index must be at least 0"),
        (("job", 0, 0, None), ValueError, "num_consumers must be at least 1"),
        (("", None, None, None), ValueError, "job_name must be a name"),
        ((7, None, None, None), TypeError, "job_name must be a str"),
        (("job", None, None, "a"), TypeError, "CrossTrainerCache"),
        (("job", 0, 2, CrossTrainerCache("a")), ValueError, "not both"),
    ],
)
def test_jobs_that_cannot_be(given: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        sharing_of(*given)


def test_caches() -> None:
    with pytest.raises(ValueError, match="trainer_id must be a name"):
        CrossTrainerCache("")
    with pytest.raises(TypeError, match="trainer_id must be a str"):
        CrossTrainerCache(1)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(ValueError, match="lag must be one of skip, wait"):
        CrossTrainerCache("a", lag="stop")


def test_rounds_need_a_dataset_without_an_end() -> None:
    ends, endless = Dataset.range(4), Dataset.range(4).repeat()

    check_endless(ends._node, Dealing())
    for dealing in (Dealing("rounds", 2), Dealing("window")):
        check_endless(endless._node, dealing)
        with pytest.raises(ValueError, match=r"infinite dataset.*call repeat\(\) last"):
            check_endless(ends._node, dealing)


def test_copies_are_for_off() -> None:
    assert check_copies(None, ShardingPolicy.DYNAMIC) is None
    assert check_copies(3, ShardingPolicy.OFF) == 3
    with pytest.raises(ValueError, match=r"copies=3 is for ShardingPolicy.OFF"):
        check_copies(3, ShardingPolicy.DATA)
    with pytest.raises(ValueError, match="copies must be at least 1"):
        check_copies(0, ShardingPolicy.OFF)


class Waiting:
    """A stage, as a look-ahead sees it."""

    group, ragged, ahead, least_window, window = 1, False, 0, 0, 0


@pytest.mark.parametrize(("outstanding", "blocks"), [(None, 22), (5, 5), (1, 1)])
def test_requests_that_are_outstanding_bound_the_blocks(
    outstanding: int | None, blocks: int
) -> None:
    node = Distribute(Dataset.range(4)._node, Terms("tcp://h:1", outstanding=outstanding))

    assert LookAhead([node], tuned=False).window(Waiting(), 8) == blocks  # type: ignore[arg-type]  # a part of one


def test_what_dir_lists_is_public() -> None:
    assert sorted(dir(td.service)) == sorted(td.service.__all__)
