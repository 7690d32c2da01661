"""Machines that compute in the consumer's process, on demand."""
