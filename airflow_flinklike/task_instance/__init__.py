"""A task instance of Airflow and its job: the stored job, the task's log, XComs, asset events, lineage."""
