"""The trials, by what they try."""
