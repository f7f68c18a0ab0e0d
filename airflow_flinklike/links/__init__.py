"""Links of operators."""
