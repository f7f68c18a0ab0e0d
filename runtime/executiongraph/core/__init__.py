"""Pure part of the execution graph: states, counts and data, without decisions of the scheduler."""
