"""A job as a cluster of its own, whose TaskManagers are containers."""

from __future__ import annotations

import os

from airflow.sdk import DAG

from airflow_flinklike.operators.application import FlinklikeApplicationOperator
from tests.kit.cluster.compose import docker_host, image_name

SHARED = os.environ.get("SHARED_WITH_CONTAINERS", "")

with DAG(dag_id="application_in_containers", schedule=None):
    OPERATOR = FlinklikeApplicationOperator(
        task_id="place",
        job="application_places.py:place",
        pipeline_params={"gate": f"{SHARED}/gate"},
        configuration={
            "resourcemanager.driver": "docker",
            "resourcemanager.docker.host": docker_host(),
            "resourcemanager.docker.image": image_name(),
            "resourcemanager.docker.network": "host",
            "resourcemanager.docker.volumes": f"{SHARED}:{SHARED}",
            "exchange.dir": f"{SHARED}/exchange",
            "taskmanager.spark.enabled": "false",
            "taskmanager.numberOfTaskSlots": "1",
        },
    )
