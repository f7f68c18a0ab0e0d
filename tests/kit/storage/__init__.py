"""File systems with a gate."""
