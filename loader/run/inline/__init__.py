"""Compute in this process, when it is asked."""
