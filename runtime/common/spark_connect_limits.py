"""What a job cannot have where all TaskManagers are clients of a Spark Connect server: said at its submit (D-139)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from runtime.common.spark_conf import lacking
from runtime.common.spark_environments import SparkOffer
from runtime.common.spark_masters import SPARK_MASTER, is_connect

_ELSEWHERE = "Start a TaskManager with spark.master local[*] or spark://host:port for it"


def refused_by_connect(
    static: Mapping[str, str],
    offers: Sequence[SparkOffer],
    *,
    jars: Collection[object],
    is_application: bool,
    has_queries: bool,
) -> list[str]:
    """Sentences about what needs the JVM of a driver. None where any TaskManager has one, or none is registered yet."""
    if not offers or not all(is_connect(offer.conf) for offer in offers):
        return []
    master = offers[0].conf[SPARK_MASTER]
    client = f"not with Spark Connect ({SPARK_MASTER} {master}): TaskManagers have no driver JVM"
    found = []
    if is_application:
        found.append(f"a Java application: {client}. {_ELSEWHERE}")
    if has_queries:
        found.append(f"streaming queries whose batches are followed: {client}. {_ELSEWHERE}")
    if jars and not is_application:
        found.append(f"jars: {client}: start the Spark Connect server with them")
    keys = lacking(static, offers[0].conf)
    if keys:
        found.append(
            f"spark_conf {', '.join(keys)}: static, and {client}: start the Spark Connect server with it instead"
        )
    return found
