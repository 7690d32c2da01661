"""Immutable files, on a local disk or at a URL, that are published whole or not at all."""
