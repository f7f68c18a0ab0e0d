"""What a task of Airflow says and keeps about the job that it runs."""
