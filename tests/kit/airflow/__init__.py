"""Airflow: whole ones, and stand-ins for its parts."""
