"""Real etcds, and stores that lose answers."""
