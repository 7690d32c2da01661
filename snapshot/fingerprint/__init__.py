"""Fingerprints: descriptions of pipelines as JSON that is equal in every process, and their differences.

May import `snapshot.files`.
"""
