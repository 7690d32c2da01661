"""W7: work of very unequal cost before a training step of 20 ms, in order and out of order."""

import time

import numpy as np
from work import Work

STEP = 0.020


def volume(index):
    """Compute for 6 ms as a median, log-normal; one in twenty takes twenty times as long."""
    draw = np.random.default_rng(int(index))
    cost = 0.006 * np.exp(0.5 * draw.standard_normal()) * (20 if draw.random() < 0.05 else 1)
    end = time.thread_time() + min(cost, 0.3)
    total = 0
    while time.thread_time() < end:
        total += 1
    return np.full((64, 64), int(index), np.int32)


def step(_, __):
    """Return the rate of the steps alone."""
    return 1 / STEP


WORKS = [
    Work(
        name=f"W7-{'ordered' if ordered else 'unordered'}",
        title=f"skewed work with a step of 20 ms, {'in order' if ordered else 'out of order'}",
        kind="map",
        count=160,
        bound="the steps alone",
        bound_rate=step,
        bound_processes=1,
        function=volume,
        ordered=ordered,
        step=STEP,
        batch=1,
        seconds=2.5,
    )
    for ordered in (True, False)
]
