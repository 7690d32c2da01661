"""Messages between the processes of an iterator, and the loop in a worker that serves them.

May import what `loader.run` may, and the folders before it there.
"""
