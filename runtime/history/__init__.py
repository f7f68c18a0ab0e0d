"""The history of ended jobs: files that a JobManager writes, and that the history server reads (D-115)."""
