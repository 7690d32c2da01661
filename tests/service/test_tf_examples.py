"""The calls that tf.data's own pages show for its service, with `td` in the place of `tf.data`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import tundish as td

EXP = td.experimental.service
"""Both names are one module."""


def test_the_alias_is_the_module() -> None:
    assert td.experimental.service is td.service
    assert td.data.experimental.service is td.service


@pytest.fixture
def started() -> Iterator[Any]:
    """Start a dispatcher and workers as the pages do, and stop them, which the pages leave to their process's end."""
    with ExitStack() as stack:

        def start(workers: int) -> Any:
            dispatcher = td.experimental.service.DispatchServer()
            stack.callback(dispatcher._stop)
            dispatcher_address = dispatcher.target.split("://")[1]
            for _ in range(workers):
                worker = td.experimental.service.WorkerServer(
                    td.experimental.service.WorkerConfig(dispatcher_address=dispatcher_address)
                )
                stack.callback(worker._stop)
            return dispatcher

        yield start


def test_one_worker_gives_the_dataset_in_its_order(started: Any) -> None:
    dispatcher = started(1)
    for mode in (td.experimental.service.ShardingPolicy.OFF, "parallel_epochs"):
        dataset = td.Dataset.range(10)
        dataset = dataset.apply(
            td.experimental.service.distribute(processing_mode=mode, service=dispatcher.target)
        )
        assert list(dataset.as_numpy_iterator()) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_two_workers_in_parallel_epochs_give_it_twice(started: Any) -> None:
    dispatcher = started(2)
    dataset = td.Dataset.range(10)
    dataset = dataset.apply(
        td.experimental.service.distribute(
            processing_mode="parallel_epochs", service=dispatcher.target
        )
    )
    assert sorted(dataset.as_numpy_iterator()) == sorted([*range(10), *range(10)])


def test_two_workers_in_a_distributed_epoch_give_it_once(started: Any) -> None:
    dispatcher = started(2)
    dataset = td.Dataset.range(10)
    dataset = dataset.apply(
        td.experimental.service.distribute(
            processing_mode="distributed_epoch", service=dispatcher.target
        )
    )
    assert sorted(dataset.as_numpy_iterator()) == list(range(10))


def test_what_comes_after_is_computed_here(started: Any) -> None:
    dispatcher = started(2)
    dataset = td.Dataset.range(5)
    dataset = dataset.map(lambda x: x * x)
    dataset = dataset.apply(
        td.experimental.service.distribute("parallel_epochs", dispatcher.target)
    )
    dataset = dataset.map(lambda x: x + 1)
    assert sorted(dataset.as_numpy_iterator()) == [1, 1, 2, 2, 5, 5, 10, 10, 17, 17]


def test_a_registered_dataset_is_read_by_its_id(started: Any) -> None:
    dispatcher = started(1)
    dataset = td.Dataset.range(10)
    dataset_id = td.experimental.service.register_dataset(dispatcher.target, dataset)
    dataset = td.experimental.service.from_dataset_id(
        processing_mode="parallel_epochs",
        service=dispatcher.target,
        dataset_id=dataset_id,
        element_spec=dataset.element_spec,
    )
    assert list(dataset.as_numpy_iterator()) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_files_are_read_and_batched_elsewhere(started: Any, tmp_path: Any) -> None:
    dispatcher = started(2)
    paths = [tmp_path / f"{k}.txt" for k in range(3)]
    for k, path in enumerate(paths):
        path.write_text("".join(f"{k}{n}\n" for n in range(4)))
    filenames = [str(path) for path in paths]
    dataset = td.Dataset.from_tensor_slices(filenames)
    dataset = dataset.interleave(td.TextLineDataset)
    dataset = dataset.map(len)
    dataset = dataset.batch(5)
    alone = [batch.tolist() for batch in dataset]
    dataset = dataset.apply(
        td.experimental.service.distribute(
            processing_mode=td.experimental.service.ShardingPolicy.DYNAMIC,
            service=dispatcher.target,
        )
    )
    dataset = dataset.prefetch(1)
    assert [batch.tolist() for batch in dataset] == alone == [[2] * 5, [2] * 5, [2] * 2]


def test_configurations_of_its_servers(tmp_path: Any) -> None:
    config = td.experimental.service.DispatcherConfig(
        port=0, work_dir=str(tmp_path), fault_tolerant_mode=True
    )
    dispatcher = td.experimental.service.DispatchServer(config, start=False)
    dispatcher.start()
    try:
        assert dispatcher.target.startswith("tcp://localhost:")
    finally:
        dispatcher._stop()
