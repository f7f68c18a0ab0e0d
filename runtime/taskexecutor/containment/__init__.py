"""The kernel's means that keep a slot within its bounds: users, control groups, memory figures."""
