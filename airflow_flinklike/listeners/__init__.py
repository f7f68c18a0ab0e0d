"""Listeners of Airflow."""
