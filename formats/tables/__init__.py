"""Files of tables, by pyarrow: Parquet, Arrow IPC, CSV and JSON lines. A row is a record.

`columns` turns what Arrow holds into numpy arrays, `form` says which columns are wanted and as what,
`reader` gives rows of what a format reads at once, and each format has a file.
"""
