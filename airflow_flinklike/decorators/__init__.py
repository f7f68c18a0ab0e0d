"""The TaskFlow decorator `@task.flinklike`."""
