"""The TaskManager's side of slots: the pool of slot processes, their attempts, and the measurement of both."""
