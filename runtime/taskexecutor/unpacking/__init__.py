"""Unpacking of what jobs bring along: in a process of its own, within limits (R42)."""
