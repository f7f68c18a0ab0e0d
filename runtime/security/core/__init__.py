"""Decisions about credentials, without I/O."""
