"""A simulated cluster: the real components of every process on one virtual-time loop, everything drawn from a seed."""
