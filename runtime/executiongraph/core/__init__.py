"""Pure part of the execution graph: states, counts and data, no decisions about what runs where."""
