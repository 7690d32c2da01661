"""Bytes of files, local or at a URL: read at any offset, decompressed as a stream, written atomically.

It knows no records.

May import nothing but the modules beside `tundish.errors`, and `formats.format` for types.
"""
