"""Fingerprints of pipelines, as JSON that is the same in every process: values, functions, input files; differences."""
