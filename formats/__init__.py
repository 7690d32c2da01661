"""Files of records: what a record is, and where in a file it lies.

Knows bytes and records, not processes and plans.

- `format`: what every format can do: open a file at a place, and say where its records are;
- `lines`, `fixed`, `tfrecord`, `tables`, `tar`, `sql`: the formats;
- `bytes`: files below them, local or behind a URL, decompressed on the way;
- `index`: where the records of files are, found out once and kept; `files`: records by number;
- `paths`: which files match a pattern;
- `example`: what stands in the records of TFRecord files.
"""
