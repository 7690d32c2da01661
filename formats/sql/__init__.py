"""Rows of databases: drivers, results, conversion of values, and data source names with secrets.

May import `formats.bytes`, `formats.format` and `formats.tables`.
"""
