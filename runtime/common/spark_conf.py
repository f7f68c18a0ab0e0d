"""Which keys of a job's Spark conf are static, and which of them a cluster does not offer (semantics.md, Slots)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

_IGNORED = ("spark.app.name", "spark.master", "spark.submit.")
"""Set by spark-submit's callers out of habit; without meaning on a warm session. Ignored with a note."""

_RUNTIME = ("spark.sql.", "spark.scheduler.pool", "spark.job.")

_STATIC_SQL = (
    "spark.sql.warehouse.dir",
    "spark.sql.extensions",
    "spark.sql.catalogImplementation",
    "spark.sql.globalTempDatabase",
    "spark.sql.filesourceTableRelationCacheSize",
    "spark.sql.codegen.cache.maxEntries",
    "spark.sql.ui.retainedExecutions",
    "spark.sql.cache.serializer",
    "spark.sql.event.truncate.length",
    "spark.sql.streaming.ui.",
    "spark.sql.streaming.streamingQueryListeners",
    "spark.sql.queryExecutionListeners",
    "spark.sql.subquery.maxThreadThreshold",
    "spark.sql.broadcastExchange.maxThreadThreshold",
    "spark.sql.shuffleExchange.maxThreadThreshold",
    "spark.sql.resultQueryStage.maxThreadThreshold",
    "spark.sql.hive.metastore.",
    "spark.sql.hive.thriftServer.singleSession",
    "spark.sql.sources.schemaStringLengthThreshold",
)


def is_ignored(key: str) -> bool:
    """True for keys that a job may set without any effect."""
    return key.startswith(_IGNORED)


def is_static(key: str) -> bool:
    """True for keys that only a new JVM could take."""
    if is_ignored(key):
        return False
    return key.startswith(_STATIC_SQL) or not key.startswith(_RUNTIME)


def refused_static_conf(wanted: Mapping[str, str], offers: Sequence[bytes]) -> list[str]:
    """Problems of a job's static conf against what TaskManagers offer (JSON objects).

    Empty when one TaskManager offers all of it, or when none is registered yet: the job waits and is judged then.
    """
    static = {key: value for key, value in wanted.items() if is_static(key)}
    if not static or not offers:
        return []
    profiles: list[dict[str, str]] = [json.loads(offer) for offer in offers]
    lacking = [{key for key, value in static.items() if profile.get(key) != value} for profile in profiles]
    fewest = min(lacking, key=len)
    return [
        f"spark_conf {key}: static, and no TaskManager offers {static[key]!r}: start one with -D {key}={static[key]}"
        for key in sorted(fewest)
    ]
