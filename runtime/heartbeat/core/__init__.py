"""Which peers are silent for too long, and which processes are dead. Pure."""
