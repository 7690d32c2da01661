"""The plan of what is to be computed: the base class of its nodes, options, and what functions in it read.

A plan is data: no process is started and no file is opened here, and no node knows `Dataset`. `loader.run` computes it.

May import `loader.watch` and `snapshot` (for fingerprints).
"""
