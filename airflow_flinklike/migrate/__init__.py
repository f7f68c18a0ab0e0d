"""Reads DAG files without running them, says which Spark tasks can move to the cluster, and rewrites them.

`finding` finds tasks in the source, `judging` says what becomes of one by its `confs`, `rewriting` changes the text,
`reporting` tells people and programs. Only `dag_bag` imports Airflow.
"""
