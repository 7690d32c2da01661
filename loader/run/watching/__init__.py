"""Measuring while an iterator runs: times and turns, who is told, and the number of workers that follows."""
