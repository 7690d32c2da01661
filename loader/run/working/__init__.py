"""The worker's side of a task: decoding its inputs, computing rows, writing them to the slot, answering.

May import what `loader.run` may, and the folders before it there.
"""
