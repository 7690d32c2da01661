"""The endpoint for Prometheus: what is scraped, by whom, and for how long."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
from typing import Any
from urllib.request import Request, urlopen

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families as families

from tundish import Dataset, Options, StatsAggregator, StatsOptions, experimental
from tundish.loader.watch.exposition import text_of
from tundish.loader.watch.histogram import Durations
from tundish.loader.watch.prometheus import MetricsServer
from tundish.loader.watch.stats import NodeStats, StageStats, Stats, WorkerStats
from tundish.loader.watch.watch import aggregators_of

TIMES = (2e-7, 1.55e-6, 3e-5, 0.004, 0.005, 0.3, 2000.0)
BASE_UNITS = re.compile(r"tundish(_[a-z]+)+")


def histogram() -> Any:
    durations = Durations()
    durations.extend(TIMES)
    return durations.frozen()


def stats() -> Stats:
    nodes = (NodeStats("range#0", 9), NodeStats("map#1", 9, 1, 2, histogram(), 0.5, calls=True))
    stage = StageStats("map#1", nodes, elements=6, tasks=6, busy_s=2.5, time=histogram(), ready=2)
    # The same stage with other operators below: two of a name would be refused.
    other = StageStats("map#1", nodes[1:], elements=4, time=histogram())
    return Stats(
        workers=2, elements=10, errors=1, nbytes=80, used_bytes=512, budget_bytes=1024, waited_s=1.5,
        own_s=0.5, outside_s=2.0, waits=histogram(), stages=(stage, other),
        pool=(WorkerStats(0, 7, 4, busy_s=1.0), WorkerStats(1, 8, 2)), edges={"a": histogram()},
        counters={"n": 80},
    )  # fmt: skip


def told() -> StatsAggregator:
    aggregator = StatsAggregator()
    aggregator.take("1", stats(), "train")
    aggregator.take("2", stats())
    return aggregator


def scraped(server: MetricsServer, accept: str = "text/plain") -> str:
    with urlopen(Request(server.url, headers={"Accept": accept}), timeout=10) as answer:
        assert answer.status == 200
        return str(answer.read().decode())


def values(text: str) -> dict[tuple[str, ...], float]:
    """Samples by name and labels, in the labels' order."""
    return {
        (sample.name, *(sample.labels[key] for key in sorted(sample.labels))): sample.value
        for family in families(text)
        for sample in family.samples
    }


def test_a_scrape_reads_what_was_measured() -> None:
    with MetricsServer(aggregator=told()) as server:
        found = values(scraped(server))

    assert found["tundish_elements_total", "train"] == found["tundish_elements_total", ""] == 10
    assert found["tundish_iterators",] == found["tundish_iterators_made_total",] == 2
    assert found["tundish_delivered_bytes_total", "train"] == 80
    assert found["tundish_shared_memory_bytes",] == 512
    assert found["tundish_consumer_seconds_total", "train", "waiting"] == 1.5
    assert found["tundish_consumer_seconds_total", "train", "outside"] == 2.0
    assert found["tundish_stage_elements_total", "train", "map#1", "workers"] == 10
    assert found["tundish_stage_busy_seconds_total", "train", "map#1", "workers"] == 2.5
    assert found["tundish_node_dropped_total", "train", "map#1", "map#1", "workers"] == 2
    assert found["tundish_worker_tasks_total", "train", "0"] == 4
    assert found["tundish_edge_seconds_count", "train", "a"] == len(TIMES)
    assert found["tundish_edge_seconds_sum", "train", "a"] == pytest.approx(sum(TIMES))
    assert found["tundish_produced_bytes_total", "train::n"] == 80
    assert found["tundish_stage_blocks", "train", "map#1", "ready", "workers"] == 2


def test_buckets_are_cumulative_and_the_same_in_every_scrape() -> None:
    empty = StatsAggregator()
    empty.take("1", Stats(edges={"a": Durations().frozen()}))
    bounds = []
    for aggregator in (told(), empty):
        buckets = [
            (float(sample.labels["le"]), sample.value)
            for family in families(text_of(aggregator.summary()))
            for sample in family.samples
            if sample.name == "tundish_edge_seconds_bucket" and not sample.labels["dataset"]
        ]
        bounds.append([le for le, _ in buckets])
        assert bounds[-1] == sorted(bounds[-1])
        for le, count in buckets if aggregator is not empty else ():
            assert count == sum(seconds <= le for seconds in TIMES)

    assert bounds[0] == bounds[1]
    assert bounds[0][-1] == float("inf")
    assert bounds[0][0] < 1e-5
    assert 100 < bounds[0][-2] < 1000


def test_names_and_units_follow_the_rules() -> None:
    for family in families(text_of(told().summary())):
        assert BASE_UNITS.fullmatch(family.name), family.name
        assert family.documentation.endswith(".")
        assert not re.search("milli|micro|_ms|_mb|kilo", family.name)
        if family.type == "histogram":
            assert family.name.endswith("_seconds")
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter"), sample
            assert set(sample.labels) <= {
                "dataset", "stage", "where", "node", "worker", "tag", "state", "spent", "le",
            }  # fmt: skip


def test_it_speaks_openmetrics_too() -> None:
    with MetricsServer(aggregator=told()) as server:
        text = scraped(server, "application/openmetrics-text; version=1.0.0")

    names = {family.name for family in open_families(text)}  # type: ignore[no-untyped-call]  # as it is
    assert {"tundish_elements", "tundish_edge_seconds"} <= names


def test_no_series_comes_twice() -> None:
    lines = [
        line.rpartition(" ")[0]
        for line in text_of(told().summary()).splitlines()
        if not line.startswith("#")
    ]

    assert len(lines) == len(set(lines))


@pytest.mark.parametrize("workers", [0, 2])
def test_it_serves_all_iterators_of_the_process(workers: int) -> None:
    own = Options(stats=StatsOptions(aggregator=StatsAggregator(), prefix="own"))
    ds = Dataset.range(12).map(abs).latency_stats("a").batch(3)

    with experimental.serve_metrics() as server:
        for dataset in (ds, ds.with_options(own)):
            with dataset.iterator(workers=workers) as it:
                list(it)
        found = values(scraped(server))
        assert found["tundish_elements_total", ""] == found["tundish_elements_total", "own"] == 4
        assert found["tundish_edge_seconds_count", "", "a"] == 12
    assert aggregators_of(None) == ()
    with experimental.serve_metrics() as server:
        assert ("tundish_elements_total", "") not in values(scraped(server))


def test_it_can_only_be_reached_from_here() -> None:
    with experimental.serve_metrics() as server:
        assert server.url == f"http://127.0.0.1:{server.port}/metrics"
        assert server._server.server_address[0] == "127.0.0.1"


def test_closed_it_is_gone() -> None:
    before = threading.active_count()
    server = experimental.serve_metrics()
    port = server.port
    assert threading.active_count() == before + 1
    assert repr(server) == f"<MetricsServer {server.url}>"

    server.close()
    server.close()

    assert threading.active_count() == before
    assert repr(server) == "<MetricsServer closed>"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    with experimental.serve_metrics(port=port) as again:
        assert again.port == port


def test_closed_no_thread_is_left_that_answers() -> None:
    """Not even one whose client has asked for half of something."""
    before = threading.active_count()
    server = experimental.serve_metrics()
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
        client.sendall(b"GET /metrics")
        deadline = time.monotonic() + 10
        while threading.active_count() < before + 2:
            assert time.monotonic() < deadline
        server.close()

        assert threading.active_count() == before


def test_a_port_in_use_is_named() -> None:
    with (
        experimental.serve_metrics() as server,
        pytest.raises(
            OSError, match=rf"127\.0\.0\.1:{server.port}.*in use; port=0 takes one"
        ) as caught,
    ):
        experimental.serve_metrics(server.port)
    assert caught.value.errno

    with pytest.raises(OSError, match=r"cannot serve metrics at 203\.0\.113\.7:0"):
        experimental.serve_metrics(host="203.0.113.7")  # an address for documents, nobody's


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"port": "80"}, TypeError, "port must be an int, not str"),
        ({"port": True}, TypeError, "port must be an int, not bool"),
        ({"port": -1}, ValueError, "port must be from 0 to 65535"),
        ({"port": 65536}, ValueError, "not 65536"),
        ({"host": None}, TypeError, "host must be a str, not NoneType"),
        ({"aggregator": 3}, TypeError, "aggregator must be a td.StatsAggregator or None, not int"),
    ],
)
def test_arguments_are_checked(given: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        experimental.serve_metrics(**given)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    with pytest.raises(ModuleNotFoundError, match=r"pip install prometheus_client"):
        experimental.serve_metrics()
    with pytest.raises(ModuleNotFoundError, match=r"pip install prometheus_client"):
        StatsAggregator().to_prometheus()


def test_text_without_a_server() -> None:
    assert 'tundish_elements_total{dataset="train"} 10.0' in told().to_prometheus().splitlines()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_holds_no_port() -> None:
    server = experimental.serve_metrics()
    go, end = os.pipe()
    child = os.fork()
    if not child:
        os.close(end)
        os.read(go, 1)
        os._exit(0)
    try:
        os.close(go)
        port = server.port
        server.close()
        with experimental.serve_metrics(port):  # the child still lives
            pass
    finally:
        os.close(end)
        assert os.waitpid(child, 0)[1] == 0


def test_it_ends_with_the_process() -> None:
    code = "import tundish as td; server = td.experimental.serve_metrics(); print(server.port)"

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stderr == ""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(done.stdout)), timeout=5)


def test_what_is_not_asked_for_is_not_imported() -> None:
    code = (
        "import sys, tundish as td; list(td.Dataset.range(3).latency_stats('a')); "
        "td.StatsAggregator(), td.experimental; "
        "assert 'prometheus_client' not in sys.modules; assert 'http.server' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)
