"""All surfaces by name."""

from __future__ import annotations

from tests.fuzz import (
    archives,
    client,
    configuration,
    credentials,
    etcd_answers,
    false_job_manager,
    files,
    guard,
    history,
    jobgraph,
    log_positions,
    messages,
    metrics_port,
    records,
    rest_port,
    rpc_port,
    savepoints,
    slot_wire,
    spark_pages,
    uploads,
)
from tests.fuzz.surface import Surface

_MODULES = (
    archives,
    client,
    configuration,
    credentials,
    etcd_answers,
    false_job_manager,
    files,
    guard,
    history,
    jobgraph,
    log_positions,
    messages,
    metrics_port,
    records,
    rest_port,
    rpc_port,
    savepoints,
    slot_wire,
    spark_pages,
    uploads,
)
SURFACES: dict[str, Surface] = {one.name: one for module in _MODULES for one in module.SURFACES}
