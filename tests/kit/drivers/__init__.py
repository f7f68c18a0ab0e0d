"""Drivers of the ResourceManager under test, and the places where they start workers."""
