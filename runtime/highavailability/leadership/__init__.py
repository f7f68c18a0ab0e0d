"""Who leads, and who is registered."""
