"""The JobGraph: what a client submits. Pure models and checks; Airflow imports this while it parses DAGs."""
