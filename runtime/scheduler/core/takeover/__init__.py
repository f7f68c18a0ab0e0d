"""What an owner leaves to the next one, and how the next one adopts it."""
