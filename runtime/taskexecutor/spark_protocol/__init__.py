"""What the TaskManager, its slot processes and its Spark host agree on: settings, frames, sessions, the gateway."""
