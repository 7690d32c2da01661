"""Handing out work and taking in what comes back: the coordinator, and what it is made of."""
