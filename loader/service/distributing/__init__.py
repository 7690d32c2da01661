"""The trainer's part: the node that names a service in a plan, its arguments, and seats on other machines.

May import what `loader.service` may, and the folders before it there.
"""
