"""Files of records: formats, and where in a file each record is.

It knows bytes and records, not processes and plans.

- `format`: the interface of a format: open a file at an offset, and find its records;
- `lines`, `fixed`, `tfrecord`, `tables`, `tar`, `sql`: the formats;
- `bytes`: the bytes of local and remote files, decompressed as they are read;
- `index`: where the records of files are, found once and cached; `files`: records by number;
- `paths`: the files that match a pattern;
- `example`: the contents of TFRecord files' records.

May import only `tundish.errors`, the modules next to it, and its own folders.
"""
