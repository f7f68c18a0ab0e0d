"""The messages between a TaskManager and its slot processes: frames, and failures in words."""
