"""Operators: each family in one file, with all that is known of its operators."""
