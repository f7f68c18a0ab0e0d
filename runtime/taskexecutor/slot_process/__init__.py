"""The slot process: code that runs beside user code, and nothing else."""
