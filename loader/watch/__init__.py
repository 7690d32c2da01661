"""What happened, how fast, and where it waits: measurements, and what is concluded from them.

It knows numbers and names, neither plans nor processes: `loader.run` measures and asks.
"""
