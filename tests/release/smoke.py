"""A tour of an installed tundish in a few seconds: `python smoke.py [EXTRA]`.

`make test-release` runs it in each of its environments. Its last line is JSON: the versions that it ran with.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import numpy as np

import tundish as td

if TYPE_CHECKING:
    from collections.abc import Callable


def augment(index: int, rng: Any) -> dict[str, Any]:
    return {"x": index + rng.random(3), "label": index % 7, "name": f"é{index}"}


def square(x: int) -> int:
    return x * x


class Squares:
    """What a DataLoader takes: a length, and samples by number."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": np.float32(index * index), "y": index % 2}


def plain(element: Any) -> Any:
    if isinstance(element, dict):
        return {name: plain(value) for name, value in element.items()}
    return element.tolist() if isinstance(element, np.ndarray | np.generic) else element


def workers_do_not_show_and_states_resume() -> None:
    ds = td.Dataset.range(50).shuffle(None, seed=1).map(augment, seed=2).batch(8).repeat(2)
    whole = [plain(batch) for batch in ds.iterator(workers=0)]
    with ds.iterator(workers=2) as it:
        first = [plain(next(it)) for _ in range(3)]
        state = json.loads(json.dumps(it.state_dict()))
        assert first + [plain(batch) for batch in it] == whole
    with ds.iterator(workers=1) as it:
        it.load_state_dict(state)
        assert [plain(batch) for batch in it] == whole[3:]


def snapshots_are_written_and_read(folder: Path) -> None:
    ds = td.Dataset.range(30).map(augment, seed=3).snapshot(str(folder / "snapshot"))
    passes = []
    for workers in (0, 2):
        with ds.iterator(workers=workers) as it:
            passes.append([plain(element) for element in it])
            doing = it.stats.snapshots[0].doing
        assert doing == ["write", "read"][len(passes) - 1], doing
    assert passes[0] == passes[1]


def tables_are_written_and_read(folder: Path) -> None:
    rows = td.Dataset.range(40).map(lambda i: {"n": i, "text": f"é{i}", "pair": [i, -i]})
    rows.write_parquet(str(folder / "table"))
    (path,) = (folder / "table").glob("*.parquet")
    ds = td.ParquetDataset(str(path))
    assert [plain(row) for row in ds] == [
        {"n": i, "text": f"é{i}", "pair": [i, -i]} for i in range(40)
    ]
    with ds.shuffle(None, seed=1).batch(10).iterator(workers=2) as it:
        found = [n for batch in it for n in batch["n"].tolist()]
    assert sorted(found) == [*range(40)]


def records_are_written_and_read(folder: Path) -> None:
    td.TFRecordWriter(folder / "records").write(
        td.Dataset.range(20).map(lambda i: b"record %d" % i)
    )
    (folder / "records.gz").write_bytes(gzip.compress((folder / "records").read_bytes()))
    for name, compression in (("records", ""), ("records.gz", "GZIP")):
        ds = td.TFRecordDataset(str(folder / name), compression_type=compression)
        assert [*ds.iterator(workers=1)] == [b"record %d" % i for i in range(20)]


def a_loader_takes_samples_of_workers() -> None:
    whole = [plain(batch) for batch in td.DataLoader(Squares(), 4, num_workers=0)]
    loader = td.DataLoader(Squares(), 4, num_workers=2)
    batches = iter(loader)
    first = [plain(next(batches)) for _ in range(2)]
    state = loader.state_dict()
    assert first + [plain(batch) for batch in batches] == whole
    other = td.DataLoader(Squares(), 4, num_workers=0)
    other.load_state_dict(state)
    assert [plain(batch) for batch in other] == whole[2:]


def a_service_computes() -> None:
    with td.service.start(workers=2, address=None) as fleet:
        ds = td.Dataset.range(20).map(square).batch(5)
        ds = ds.apply(td.service.distribute("distributed_epoch", fleet.target))
        with iter(ds) as it:
            assert np.concatenate([*it]).tolist() == [x * x for x in range(20)]


def the_command_line_answers() -> None:
    for arguments, wanted in ((["--version"], td.__version__), (["doctor"], "Budget")):
        command = [str(Path(sys.executable).with_name("tundish")), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert wanted in done.stdout, done.stdout


# ------------------------------------------------------------------------------- the extras


def demo(folder: Path) -> None:
    from PIL import Image

    def decode(path: str) -> np.ndarray:
        return np.asarray(Image.open(path).convert("RGB").resize((32, 32)))

    photographs = Path(td.__file__).parent / "cli" / "photographs"
    ds = td.Dataset.list_files(f"{photographs}/*.jpg", shuffle=False).map(decode).batch(2)
    with ds.iterator(workers=2) as it:
        assert next(it).shape == (2, 32, 32, 3)


def fast(folder: Path) -> None:
    from google_crc32c import implementation
    from isal import igzip_lib

    assert implementation == "c"
    assert igzip_lib.DECOMP_GZIP


def fsspec(folder: Path) -> None:
    (folder / "lines.txt").write_text("one\ntwo\n")
    assert [*td.TextLineDataset((folder / "lines.txt").as_uri())] == [b"one", b"two"]


def jax(folder: Path) -> None:
    from tundish.jax import to_device

    with to_device(td.Dataset.range(6).batch(2).iterator(workers=0)) as batches:
        assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3], [4, 5]]


def orbax(folder: Path) -> None:
    import orbax.checkpoint as ocp

    from tundish.orbax import CheckpointRestore, CheckpointSave

    ds = td.Dataset.range(6)
    with ocp.CheckpointManager(folder / "orbax") as manager, iter(ds) as it:
        next(it)
        manager.save(1, args=ocp.args.Composite(data=CheckpointSave(it)))
        manager.wait_until_finished()
        with ds.iterator(workers=2) as other:
            manager.restore(1, args=ocp.args.Composite(data=CheckpointRestore(other)))
            assert [int(x) for x in other] == [1, 2, 3, 4, 5]


def progress(folder: Path) -> None:
    leader, follower = os.openpty()
    with os.fdopen(follower, "w", encoding="utf-8") as terminal:
        assert [*td.progress(range(3), file=terminal, every=1e-9)] == [0, 1, 2]
    try:
        assert "3/3" in os.read(leader, 10_000).decode(), "a bar of tqdm"
    finally:
        os.close(leader)


def prometheus(folder: Path) -> None:
    with td.experimental.serve_metrics() as server:
        for _ in td.Dataset.range(30).batch(10):
            pass
        with urlopen(server.url) as answer:
            scraped = answer.read().decode()
    assert 'tundish_elements_total{dataset=""} 3.0' in scraped.splitlines()


def service(folder: Path) -> None:
    """Start workers as Ray's actors, in a cluster of this machine alone."""
    with td.service.start(1, 1) as fleet:
        ds = td.Dataset.range(20).map(square).batch(5)
        ds = ds.apply(td.service.distribute("distributed_epoch", fleet.target))
        with iter(ds) as it:
            assert np.concatenate([*it]).tolist() == [x * x for x in range(20)]


def tensorflow(folder: Path) -> None:
    from tundish.tensorflow import to_tf_dataset

    ds = td.Dataset.range(6).batch(2)
    assert [batch.numpy().tolist() for batch in to_tf_dataset(ds)] == [[0, 1], [2, 3], [4, 5]]


def torch(folder: Path) -> None:
    from tundish.torch import DataLoader

    loader: Any = DataLoader(Squares(), batch_size=4, num_workers=2)
    assert [batch["x"].sum().item() for batch in loader] == [14, 126, 366, 734, 1230]


def zstd(folder: Path) -> None:
    if sys.version_info >= (3, 14):
        from compression.zstd import compress
    else:
        from backports.zstd import compress

    (folder / "lines.zst").write_bytes(compress(b"one\ntwo\n"))
    ds = td.TextLineDataset(str(folder / "lines.zst"), compression_type="ZSTD")
    assert [*ds] == [b"one", b"two"]


EXTRAS: dict[str, Callable[[Path], None]] = {
    each.__name__: each
    for each in (
        demo,
        fast,
        fsspec,
        jax,
        orbax,
        progress,
        prometheus,
        service,
        tensorflow,
        torch,
        zstd,
    )
}


# ------------------------------------------------------------------------------- and without them


PACKAGES = {
    "demo": "pillow",
    "orbax": "orbax-checkpoint",
    "prometheus": "prometheus_client",
    "service": "ray",
    "zstd": "backports.zstd",
}
"""The package that an extra brings, where its name is another."""


def tells(code: str, extra: str) -> None:
    """Check that a program fails, and that a line says what to install; notes on where it failed may follow."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    wanted = f"pip install {PACKAGES.get(extra, extra)}"
    assert done.returncode, f"without {extra!r} it runs: {code}"
    assert any(line.endswith(wanted) for line in done.stderr.splitlines()), done.stderr


LINES = "import tundish as td; list(td.TextLineDataset({}))"
WITHOUT: dict[str, tuple[str, str]] = {
    "demo": ("PIL", "from tundish.cli import main; raise SystemExit(main(['demo']))"),
    "fsspec": ("fsspec", LINES.format("'memory://a'")),
    "jax": ("jax", "import tundish.jax"),
    "orbax": ("orbax.checkpoint", "import tundish.orbax"),
    "prometheus": ("prometheus_client", "import tundish; tundish.experimental.serve_metrics()"),
    "service": ("ray", "import tundish; tundish.service.start(1, 1)"),
    "tensorflow": ("tensorflow", "import tundish.tensorflow"),
    "torch": ("torch", "import tundish.torch"),
    "zstd": ("backports.zstd", LINES.format("'smoke.py', compression_type='ZSTD'")),
}
"""The package that each extra brings, and a program that needs it. Nothing fails without `fast`: numpy computes instead."""


def what_is_missing_is_told(extra: str | None) -> None:
    """Try what needs the other extras. An extra may bring the package of another: PyTorch brings fsspec."""
    for name, (package, code) in WITHOUT.items():
        if name == extra or (name == "zstd" and sys.version_info >= (3, 14)):
            continue
        if extra is None or not is_there(package):
            tells(code, name)


def is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of `orbax.checkpoint`, `orbax`
        return False


def main(extra: str | None) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        workers_do_not_show_and_states_resume()
        snapshots_are_written_and_read(folder)
        tables_are_written_and_read(folder)
        records_are_written_and_read(folder)
        a_loader_takes_samples_of_workers()
        a_service_computes()
        the_command_line_answers()
        if extra is not None:
            EXTRAS[extra](folder)
        what_is_missing_is_told(extra)
    packages = ("tundish", "numpy", "pyarrow", "psutil", "cloudpickle")
    found = {"from": str(Path(td.__file__).parent), **{name: version(name) for name in packages}}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
