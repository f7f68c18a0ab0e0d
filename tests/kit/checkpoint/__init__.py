"""Directories of streaming queries as Spark leaves them, for tests without Spark."""
