"""Decisions of the ResourceManager: events in, effects out."""
