"""Stages: machines whose items workers compute, delivered in input order."""
