"""Tar archives in WebDataset's layout: members of one base name, one after another, are one record.

The headers are read here, not by `tarfile`: it ends in silence where an archive was cut off, trusts
sizes, and takes far longer. Nothing is ever written to disk, whatever an archive says.
"""
