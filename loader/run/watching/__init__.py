"""Measuring a running iterator: times, statistics and their readers, and the number of workers that follows."""
