"""Components of the control plane in one process, and stand-ins for their peers."""
