"""The machine: processes, descriptors, time, loopback."""
