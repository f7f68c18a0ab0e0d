"""Pages of jobs within Airflow, by a proxy in its API server (D-117). Airflow's other processes load none of it."""
