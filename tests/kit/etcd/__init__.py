"""Real etcds, and a KeyValueStore that loses answers."""
