"""Make the files of this folder, with tensorflow: ``python tests/formats/samples/tensorflow/make.py``."""

from __future__ import annotations

import json
from pathlib import Path

HERE = Path(__file__).parent
RECORDS = [b"", b"a", b"\x00\n\r\xff", b"tundish" * 40, bytes(range(256)) * 3, b"last"]


def main() -> None:
    import tensorflow as tf

    shown = [record.hex() for record in RECORDS]
    (HERE / "records.json").write_text(json.dumps(shown, indent=0) + "\n", encoding="utf-8")
    for compression in ("", "GZIP", "ZLIB"):
        name = f"records-{compression.lower() or 'plain'}.tfrecord"
        with tf.io.TFRecordWriter(str(HERE / name), compression) as writer:
            for record in RECORDS:
                writer.write(record)
    (HERE / "version.txt").write_text(tf.__version__ + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
