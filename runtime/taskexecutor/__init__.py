"""The TaskManager: slots that run user code in processes of their own, their files, and one warm Spark."""
