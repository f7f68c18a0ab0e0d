"""The hook, and the Airflow connection that it reads."""
