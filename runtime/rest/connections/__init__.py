"""Sockets below HTTP: how many connections, how slow, and TLS."""
