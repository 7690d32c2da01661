"""Tables read by pyarrow: Parquet, Arrow IPC, CSV and JSON lines. A row is a record.

`columns` converts Arrow arrays to numpy, `form` selects columns and their types,
`reader` gives the rows of a piece that was read at once, and each format has a file.

May import `formats.bytes`, `formats.files`, `formats.format` and `formats.kept`.
"""
