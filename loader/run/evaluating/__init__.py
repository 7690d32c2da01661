"""Compile plans: from refs to elements."""
