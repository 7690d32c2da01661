"""Connections between the service's processes: credentials, TLS, the handshake, listeners, and calls with answers.

May import what `loader.service` may, and the folders before it there.
"""
