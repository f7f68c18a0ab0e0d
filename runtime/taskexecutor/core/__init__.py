"""Decisions of a TaskExecutor: slots, jobs, attempts and their reports. Events in, effects out; no I/O."""
