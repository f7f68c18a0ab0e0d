"""Decisions of the Dispatcher: events in, effects out."""
