"""Extra links of operators."""
