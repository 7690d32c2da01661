"""Bytes of files, local or at a URL: read at any offset, decompressed as a stream, written atomically.

It knows no records.

May import only `tundish.errors`, the modules next to it, and `formats.format` for types.
"""
