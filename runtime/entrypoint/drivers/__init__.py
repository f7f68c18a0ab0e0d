"""What starts processes for the ResourceManager in other places than this host (R65)."""
