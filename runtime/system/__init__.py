"""What the operating system offers and Python has no name for."""
