"""The files that the snippets read: small, made here, the same everywhere."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

import tundish as td

TEXTS = {
    "bridges.txt": "beam arch truss cantilever suspension cable-stayed bascule",
    "sails.txt": "jib genoa spinnaker mainsail mizzen lug gaff",
    "weaves.txt": "plain twill satin basket leno pique jacquard",
}
COLUMNS = "late,mode,minutes,changes,stops,price,zone,platform,town,alone"
MODES, TOWNS = ("bus", "tram", "train"), ("Lund", "Gent", "Brno")
TRIPS = 44
GAPS = "1,2,3,4\n,2,3,4\n1,,3,4\n1,2,,4\n1,2,3,\n,,,\n"
KINDS = ("circle", "ring")
PAYMENTS = 600


def write_files(folder: Path) -> None:
    """Write texts, tables, images in a folder for each class, and a TFRecord file."""
    for name, words in TEXTS.items():
        (folder / name).write_text("\n".join(words.split()) + "\n")
    (folder / "trips.csv").write_text("\n".join([COLUMNS, *map(trip, range(TRIPS))]) + "\n")
    (folder / "gaps.csv").write_text(GAPS)
    (folder / "payments.csv").write_text(
        "\n".join(["a,b,fraud", *map(payment, range(PAYMENTS))]) + "\n"
    )
    for kind in KINDS:
        (folder / "shapes" / kind).mkdir(parents=True)
        for number in range(3):
            (folder / "shapes" / kind / f"{number}.png").write_bytes(png(kind, number))
    examples = [
        td.io.encode_example({"image/encoded": png("ring", n), "image/text": f"sign {n}"})
        for n in range(4)
    ]
    td.TFRecordWriter(folder / "signs.tfrecord").write(td.Dataset.from_list(examples))


def trip(i: int) -> str:
    """One line of trips.csv: the columns of `COLUMNS`."""
    numbers = f"{10 + 1.5 * i},{i % 2},{i % 3},{2.25 + i}"
    return f"{int(i % 3 == 0)},{MODES[i % 3]},{numbers},AB,unknown,{TOWNS[i % 3]},{'yn'[i % 2]}"


def payment(i: int) -> str:
    """One line of payments.csv: one in 25 is a fraud."""
    return f"{i / 4},{-i / 8},{int(i % 25 == 3)}"


def png(kind: str, number: int) -> bytes:
    """A small grey image."""
    y, x = np.mgrid[:12, :16] - np.array([6, 8])[:, None, None]
    radius = np.hypot(x, y)
    drawn = radius < 5 if kind == "circle" else abs(radius - 4) < 1
    stream = io.BytesIO()
    Image.fromarray((drawn * (255 - 40 * number)).astype(np.uint8)).save(stream, "png")
    return stream.getvalue()
