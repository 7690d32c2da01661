"""Files of records: what a record is, and where in a file it lies.

Knows bytes and records, not processes. Empty for now: the readers and writers come here, one
format a file.
"""
