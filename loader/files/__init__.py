"""Datasets of the records of files: which files, which format, and what to do with what is damaged."""
