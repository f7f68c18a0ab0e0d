"""How a vertex without a parallelism of its own gets one."""
