"""Failed tasks: what restarts, after which pause, and when the job ends."""
