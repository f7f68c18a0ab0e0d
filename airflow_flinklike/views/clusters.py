"""The clusters behind Airflow's connections, asked with the connections' own tokens, which no answer holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow_flinklike.airflow_version import AirflowNotFoundException
from airflow_flinklike.client import FlinklikeClient
from airflow_flinklike.exceptions import (
    AuthenticationError,
    ClusterUnavailableError,
    FlinklikeClientError,
    JobConflictError,
    JobNotFoundError,
    JobRefusedError,
)
from airflow_flinklike.hooks.connection import parse_connection
from airflow_flinklike.hooks.flinklike import FlinklikeHook

RETRY_SECONDS = 2.0
"""The page asks again by itself."""


class ClusterProblemError(Exception):
    """A request that cannot be answered: the status and the sentence of the answer."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@contextmanager
def cluster_of(conn_id: str) -> Iterator[FlinklikeClient]:
    """A client of the cluster of a connection. Raises ClusterProblemError, also for what its requests raise.

    Only connections of type `flinklike` are taken: the id was stored by a task, and the password of any other
    connection is nothing for the host that it names.
    """
    hook = FlinklikeHook(conn_id, retry_for=RETRY_SECONDS, first_contact=RETRY_SECONDS)
    try:
        with hook.connect(parse_connection(_connection(conn_id))) as client:
            yield client
    except AuthenticationError as error:
        sentence = f"the cluster does not accept the token of Airflow's connection {conn_id}"
        raise ClusterProblemError(502, sentence) from error
    except JobNotFoundError as error:
        raise ClusterProblemError(404, str(error)) from error
    except JobConflictError as error:
        raise ClusterProblemError(409, str(error)) from error
    except JobRefusedError as error:
        raise ClusterProblemError(400, str(error)) from error
    except ClusterUnavailableError as error:
        sentence = f"the cluster of Airflow's connection {conn_id} does not answer"
        raise ClusterProblemError(503, sentence) from error
    except FlinklikeClientError as error:
        raise ClusterProblemError(502, str(error)) from error


def _connection(conn_id: str) -> Any:
    from airflow.models.connection import Connection

    try:
        found = Connection.get_connection_from_secrets(conn_id)
    except AirflowNotFoundException as error:
        message = f"Airflow has no connection {conn_id} any more"
        raise ClusterProblemError(404, message) from error
    if found.conn_type != "flinklike":
        message = f"Airflow's connection {conn_id} is of type {found.conn_type}: the pages of jobs take flinklike only"
        raise ClusterProblemError(404, message)
    return found
