"""What passes between a TaskManager and its slot processes: frames, and failures in words."""
