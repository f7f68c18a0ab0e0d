"""The guard process: parent of a TaskManager, whose liveness socket is the proof of its life and death (R13)."""
