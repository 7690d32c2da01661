"""The service on a Ray cluster: agents as actors, a detached dispatcher, Ray Train's datasets.

May import what `loader.service` may, and the folders before it there.
"""
