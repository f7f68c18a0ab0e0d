"""What the kernel is asked for so that a slot stays within its bounds: users, control groups, memory."""
