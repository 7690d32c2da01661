"""Bytes of files, local or at a URL: read at any offset, decompressed in order, written whole.

Knows no records.
"""
