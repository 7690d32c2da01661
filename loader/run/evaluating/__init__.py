"""Compilers of plans: they turn a plan into functions from refs to elements."""
