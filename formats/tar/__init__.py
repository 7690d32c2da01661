"""Tar archives in WebDataset's layout: consecutive members with the same base name are one record.

The headers are parsed here, not by `tarfile`, which ends silently at a truncation, trusts
sizes, and is far slower. Nothing is ever written to disk, whatever an archive says.

May import `formats.bytes`, `formats.format` and `formats.files`.
"""
