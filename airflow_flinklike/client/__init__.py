"""The REST client: `FlinklikeClient` (sync) and `AsyncFlinklikeClient`, over one description of every call.

`operations` describes each call, and how a lost answer is settled, as generators without I/O; `sync` and `asynchronous`
drive them with httpx. Every call is idempotent, so a client retries every call.
"""

from airflow_flinklike.client.asynchronous import AsyncFlinklikeClient
from airflow_flinklike.client.model import JobExecutionResult, JobState, LogPiece, QueuePlace, SubmittedJob, new_job_id
from airflow_flinklike.client.sync import FlinklikeClient
from airflow_flinklike.client.tls import ClientTls, find_tls
from airflow_flinklike.client.token import find_address, find_credential, find_token, local_ca

__all__ = [
    "AsyncFlinklikeClient",
    "ClientTls",
    "FlinklikeClient",
    "JobExecutionResult",
    "JobState",
    "LogPiece",
    "QueuePlace",
    "SubmittedJob",
    "find_address",
    "find_credential",
    "find_tls",
    "find_token",
    "local_ca",
    "new_job_id",
]
