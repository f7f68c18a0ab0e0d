"""Real clusters as processes, and what jobs on them run."""
