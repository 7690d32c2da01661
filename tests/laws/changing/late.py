"""A module that is imported late."""

LIMIT = 10
