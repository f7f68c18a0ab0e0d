"""Speculative execution: a second attempt of a task that is slow, on another TaskManager."""
