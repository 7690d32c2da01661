"""Rows of databases: drivers and their results, secrets that names of data sources hold, conversion."""
