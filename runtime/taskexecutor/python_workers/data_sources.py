"""Data sources of Python, which the driver of a stream reads: pickled with their session (`owned_pickles`)."""

from __future__ import annotations

import importlib
from typing import Any

from runtime.taskexecutor.worker_protocol.owned_pickles import Owned


def own_data_sources(session_id: str, link: str) -> None:
    """In a worker that plans: the data source that it may make is read by the driver of a stream."""
    from pyspark.sql.datasource import DataSource

    serializer: Any = importlib.import_module("pyspark.worker_util").pickleSer
    plain = serializer.dumps

    def dumps(found: Any) -> bytes:
        return bytes(plain(Owned(session_id, link, plain(found)) if isinstance(found, DataSource) else found))

    serializer.dumps = dumps
