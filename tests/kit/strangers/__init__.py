"""Peers that are hostile, broken or of another cluster."""
