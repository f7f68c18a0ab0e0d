"""Decisions about files, without any I/O."""
