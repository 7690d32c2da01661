"""A program that was written for torch's class, and changes the import alone: all it relies on holds."""

from __future__ import annotations

import ast
import copy
import multiprocessing
import os
import pickle
import signal
from typing import TYPE_CHECKING, Any

import pytest
from tests.torch.datasets import Numbers
from tests.torch.faces import Face, epoch, numbers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

torch = pytest.importorskip("torch")


# ----------------------------------------------------------------------------------- what crosses


def doubled(x: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
    """A function of TorchScript."""
    return x * 2


class PlusOne(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A module to compile."""

    def __init__(self) -> None:
        super().__init__()
        self.one = torch.nn.Parameter(torch.ones(1), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
        return x + self.one


class Each:
    """A function that joins what several functions make of one tensor."""

    def __init__(self, functions: list[Any]) -> None:
        self.functions = functions

    def __call__(self, x: Any) -> Any:
        return torch.cat([function(x) for function in self.functions])


class Applied(Numbers):
    """Numbers, each given to a function as a tensor."""

    def __init__(self, size: int, function: Callable[[Any], Any]) -> None:
        super().__init__(size)
        self.function = function

    def __getitem__(self, index: int) -> Any:
        return self.function(torch.tensor([float(index)]))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # TorchScript's own
def test_torchscript_in_a_dataset(our_face: Face) -> None:
    one = torch.ones(1)
    functions = [
        torch.jit.script(doubled),
        torch.jit.script(PlusOne()),
        torch.jit.trace(PlusOne(), one),
        torch.jit.trace(doubled, one),
    ]
    loader = our_face(Applied(3, Each(functions)), batch_size=3, num_workers=1)

    assert epoch(loader) == [[[2 * x, x + 1, x + 1, 2 * x] for x in (0.0, 1.0, 2.0)]]


def sparse(layout: str) -> Callable[[list[int]], Any]:
    return lambda rows: getattr(torch.tensor([[float(x), 0.0] for x in rows]), f"to_{layout}")()


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("layout", ["sparse", "sparse_csr"])
def test_sparse_tensors_in_datasets_and_batches(our_face: Face, layout: str) -> None:
    options: dict[str, Any] = {"num_workers": 1}
    made = list(our_face(Numbers(4), batch_size=2, collate_fn=sparse(layout), **options))
    held = [sparse(layout)([k]) for k in range(4)]
    kept = list(our_face(held, batch_size=None, collate_fn=same, **options))

    assert [(b.layout, b.to_dense().tolist()) for b in made] == [
        (held[0].layout, [[0.0, 0.0], [1.0, 0.0]]),
        (held[0].layout, [[2.0, 0.0], [3.0, 0.0]]),
    ]
    assert [(b.layout, b.to_dense().tolist()) for b in kept] == [
        (b.layout, b.to_dense().tolist()) for b in held
    ]
    if our_face.torch:
        with pytest.raises(RuntimeError, match="Batches of sparse tensors are not"):
            list(our_face(held, batch_size=2, **options))


def same(value: Any) -> Any:
    return value


class Whole(Numbers):
    """Gives several samples as one batch, of the kind that it is told."""

    def __init__(self, size: int, kind: str) -> None:
        super().__init__(size)
        self.kind = kind

    def __getitems__(self, keys: list[int]) -> Any:
        if self.kind == "dict":
            return {"x": torch.tensor(keys), "kind": "dict"}
        return torch.tensor(keys) if self.kind == "tensor" else tuple(str(key) for key in keys)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_out_of_getitems_reaches_collate_fn_as_it_is(
    torch_face: Face, workers: int
) -> None:
    def batches(kind: str, **options: Any) -> list[Any]:
        return epoch(torch_face(Whole(3, kind), batch_size=2, num_workers=workers, **options))

    assert batches("dict", collate_fn=same) == [
        {"x": [0, 1], "kind": "dict"},
        {"x": [2], "kind": "dict"},
    ]
    assert batches("tensor", collate_fn=same) == [[0, 1], [2]]
    assert batches("tuple") == [["0", "1"], ["2"]]
    with pytest.raises(TypeError, match="tuple of Tensors, not Tensor"):
        batches("tensor")


def test_a_batch_that_killed_a_worker_is_made_again_by_getitems(
    our_face: Face, tmp_path: Path
) -> None:
    loader = our_face(Killing(4, tmp_path), batch_size=2, num_workers=1, collate_fn=same)

    assert epoch(loader) == [{"x": [0, 1]}, {"x": [2, 3]}]


class Killing(Numbers):
    """Kills its process once."""

    def __init__(self, size: int, folder: Path) -> None:
        super().__init__(size)
        self.folder = folder

    def __getitems__(self, keys: list[int]) -> Any:
        mark = self.folder / "killed"
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"x": keys}


class Deadly(Numbers):
    """A sample that ends its process, whoever makes it."""

    def __getitem__(self, index: int) -> Any:
        os.kill(os.getpid(), signal.SIGSEGV)


def test_a_sample_that_kills_is_told_in_torch_s_words(torch_face: Face) -> None:
    words = r"DataLoader worker \(pid.*\) (is killed by signal|exited unexpectedly)"
    with pytest.raises(RuntimeError, match=words):
        list(torch_face(Deadly(2), num_workers=1))


# ------------------------------------------------------------------------------- copies of loaders


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_copy_stands_where_the_loader_stands(
    our_face: Face, copied: Callable[[Any], Any], workers: int
) -> None:
    options: dict[str, Any] = {"num_workers": workers, "persistent_workers": bool(workers)}
    generator = our_face.generator(3)
    loader = our_face(Numbers(6), batch_size=2, shuffle=True, generator=generator, **options)
    numbers(loader)
    began = iter(loader)
    next(began)
    again = copied(loader)

    assert again.state_dict() == loader.state_dict()
    rest = copied(loader)
    rest.load_state_dict(loader.state_dict())
    assert numbers(rest) == [value for batch in began for value in batch.tolist()]
    assert sorted(numbers(again)) == list(range(6))
    assert again.state_dict()["epoch"] == 2


# ---------------------------------------------------------------------------- workers as processes


class Process(Numbers):
    """A dataset whose samples tell what `multiprocessing` says in a worker."""

    def __getitem__(self, index: int) -> Any:
        this, parent = multiprocessing.current_process(), multiprocessing.parent_process()
        assert parent is not None
        parent.join(0.0)
        told = [this.name, this.daemon, this.pid == os.getpid(), bytes(this.authkey).hex()]
        return str([*told, parent.name, parent.pid, parent.is_alive()])


class Nesting(Numbers):
    """Starts a process."""

    def __getitem__(self, index: int) -> Any:
        multiprocessing.get_context("spawn").Process(target=os.getpid).start()


def test_multiprocessing_knows_a_worker_as_its_own(face: Face) -> None:
    loader = face(Process(2), batch_size=None, num_workers=1)
    first, second = list(loader)
    name, *rest = ast.literal_eval(first)

    assert first == second
    assert name.startswith("Process-")
    key = bytes(multiprocessing.current_process().authkey).hex()
    assert rest == [True, True, key, "MainProcess", os.getpid(), True]
    with pytest.raises(AssertionError, match="daemonic processes are not allowed"):
        list(face(Nesting(1), num_workers=1))


def test_workers_of_a_pipeline_may_have_children() -> None:
    import tundish as td

    found = td.Dataset.range(1).map(is_daemon, num_parallel_calls=1)

    assert list(found.as_numpy_iterator()) == [("Process-1", False)]


def is_daemon(_: int) -> tuple[str, bool]:
    this = multiprocessing.current_process()
    return this.name, this.daemon


class Interrupted(Numbers):
    """Interrupts its own process at one sample, as a watchdog does, or a `kill -INT`."""

    def __getitem__(self, index: int) -> Any:
        if index == 2:
            signal.raise_signal(signal.SIGINT)
        return os.getpid()


def test_an_interrupt_in_a_worker_is_raised_once(
    our_face: Face, capfd: pytest.CaptureFixture[str]
) -> None:
    it = iter(our_face(Interrupted(6), batch_size=None, num_workers=1))
    first = int(next(it))
    next(it)
    with pytest.raises(KeyboardInterrupt) as raised:
        next(it)
    assert "index 2" in str(raised.value.__notes__)
    assert {int(sample) for sample in it} == {first}
    assert "Traceback" not in capfd.readouterr().err


def test_an_idle_worker_is_not_interrupted(our_face: Face) -> None:
    loader = our_face(Numbers(8), batch_size=1, num_workers=1, persistent_workers=True)
    numbers(loader)
    (worker,) = loader._iterator.worker_pids()
    os.kill(worker, signal.SIGINT)

    assert numbers(loader) == list(range(8))
    assert loader._iterator.worker_pids() == [worker]


def fail_at_the_start(_: int) -> None:
    raise ValueError("no licence")


def test_what_worker_init_fn_raises_comes_before_a_batch(face: Face) -> None:
    loader = face(Numbers(4), num_workers=3, worker_init_fn=fail_at_the_start)
    with pytest.raises(ValueError, match="no licence"):
        iter(loader) if face.ours else next(iter(loader))  # torch says it with the first batch


# ------------------------------------------------------------------------------- derived classes


class Again:
    """A sampler that never ends."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Any:
        while True:
            yield from iter(self.sampler)


def infinite(loader: type) -> Any:
    """Return a class as trainers derive it to keep workers for all epochs; `reset` begins with new ones."""

    class Infinite(loader):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            object.__setattr__(self, "batch_sampler", Again(self.batch_sampler))
            self.iterator = super().__iter__()

        def __len__(self) -> int:
            return len(self.batch_sampler.sampler)

        def __iter__(self) -> Any:
            for _ in range(len(self)):
                yield next(self.iterator)

        def reset(self) -> None:
            self.iterator = self._get_iterator()

    return Infinite


@pytest.mark.parametrize("workers", [0, 1])
def test_a_class_that_keeps_its_iterator(torch_face: Face, workers: int) -> None:
    loader = infinite(torch_face.loader)(Numbers(5), batch_size=2, num_workers=workers)

    assert [epoch(loader), epoch(loader)] == [[[0, 1], [2, 3], [4]]] * 2
    kind = type(loader.iterator)
    loader.dataset.size = 3
    loader.reset()
    assert epoch(loader) == [[0, 1], [2]]
    assert type(loader.iterator) is kind
    if torch_face.ours:
        assert loader.state_dict()["batches"] == 2
