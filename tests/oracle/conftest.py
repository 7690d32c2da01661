"""The names for TensorFlow are not collected where it is not installed: they cannot be imported."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("tensorflow") else ["tensorflow_names.py"]
