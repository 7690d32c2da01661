"""Encoding of elements in Arrow: each leaf by a carrier type with the same bits.

May import `snapshot.files` and `formats`.
"""
