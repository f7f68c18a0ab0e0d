"""The listener that Airflow's components load."""
