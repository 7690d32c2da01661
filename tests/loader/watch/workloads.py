"""Made-up workloads for the tuner, each on so many cores."""

from __future__ import annotations

from tests.loader.watch.simulated import Work

MS = 1e-3

SHORT = Work(
    "short, for the consumer's process",
    cpu_s=0.5 * MS,
    own_s=0.3 * MS,
    alone_s=0.08 * MS,
    functions_s=0.03 * MS,
)

WORKLOADS: tuple[tuple[int, Work], ...] = (
    (2, Work("decoding", cpu_s=16 * MS)),
    (2, Work("decoding, uneven", cpu_s=16 * MS, spread="exponential")),
    (2, Work("decoding, heavy tail", cpu_s=16 * MS, spread="lognormal")),
    (2, Work("waiting", wait_s=40 * MS)),
    (2, Work("waiting, uneven", wait_s=20 * MS, spread="exponential")),
    (2, Work("waiting, heavy tail", wait_s=20 * MS, spread="lognormal")),
    (2, Work("waiting, stragglers", wait_s=10 * MS, spread="stragglers")),
    (2, Work("waiting and computing", wait_s=16 * MS, cpu_s=16 * MS)),
    (2, Work("the same, uneven", wait_s=16 * MS, cpu_s=16 * MS, spread="exponential")),
    (2, Work("mostly waiting", wait_s=40 * MS, cpu_s=4 * MS, spread="lognormal")),
    (2, Work("mostly computing", wait_s=4 * MS, cpu_s=12 * MS)),
    (2, SHORT),
    (2, Work("short, for workers", cpu_s=0.6 * MS, alone_s=1.5 * MS, functions_s=0.05 * MS)),
    (2, Work("slow consumer, light work", cpu_s=0.25 * MS, thinks_s=5 * MS, own_s=0.03 * MS)),
    (2, Work("slow consumer, heavy work", cpu_s=20 * MS, thinks_s=10 * MS)),
    (2, Work("accelerator, computing", cpu_s=20 * MS, takes_s=5 * MS)),
    (2, Work("accelerator, waiting", wait_s=30 * MS, takes_s=5 * MS)),
    (2, Work("accelerator, heavy tail", wait_s=30 * MS, takes_s=5 * MS, spread="lognormal")),
    (2, Work("a disk for one", wait_s=10 * MS, cpu_s=1 * MS, at_once=1)),
    (2, Work("a disk for four", wait_s=20 * MS, cpu_s=1 * MS, at_once=4)),
    (2, Work("long imports", cpu_s=10 * MS, wait_s=10 * MS, importing_s=1.0)),
    (2, Work("half seconds", wait_s=0.5, cpu_s=0.05)),
    (2, Work("a row an element", wait_s=10 * MS, rows=1)),
    (8, Work("decoding on 8", cpu_s=16 * MS)),
    (8, Work("waiting on 8", wait_s=40 * MS)),
    (8, Work("stragglers on 8", wait_s=20 * MS, spread="lognormal")),
    (8, Work("waiting and computing on 8", wait_s=16 * MS, cpu_s=16 * MS)),
    (8, Work("slow consumer on 8", cpu_s=0.25 * MS, thinks_s=5 * MS, own_s=0.03 * MS)),
    (8, Work("accelerator on 8", cpu_s=20 * MS, takes_s=5 * MS)),
    (8, Work("fast accelerator on 8", cpu_s=5 * MS, wait_s=5 * MS, takes_s=2 * MS)),
    (8, Work("a disk for four on 8", wait_s=20 * MS, cpu_s=1 * MS, at_once=4)),
    (8, Work("imports on 8", cpu_s=10 * MS, wait_s=10 * MS, importing_s=1.0)),
    (8, Work("two seconds on 8", wait_s=2.0)),
)
