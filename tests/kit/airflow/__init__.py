"""A whole Airflow, and stand-ins for its parts."""
