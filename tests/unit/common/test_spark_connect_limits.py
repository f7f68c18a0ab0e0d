"""What a submit is told where all TaskManagers are clients of a Spark Connect server (D-139)."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.common.spark_connect_limits import refused_by_connect
from runtime.common.spark_environments import SparkOffer

CONNECT = SparkOffer({"spark.master": "sc://server:15002"})
LOCAL = SparkOffer({"spark.master": "local[*]"}, 4 << 30)
NOTHING: dict[str, Any] = {"jars": [], "is_application": False, "has_queries": False}


@pytest.mark.parametrize(
    ("static", "asked", "words"),
    [
        ({"spark.serializer": "x"}, {}, "spark_conf spark.serializer: static, and not with Spark Connect"),
        ({}, {"is_application": True, "jars": ["app.jar"]}, "a Java application: not with Spark Connect"),
        ({}, {"has_queries": True}, "streaming queries whose batches are followed: not with Spark Connect"),
        ({}, {"jars": ["one.jar"]}, "jars: not with Spark Connect"),
    ],
)
def test_what_needs_a_jvm_is_named(static: dict[str, str], asked: dict[str, Any], words: str) -> None:
    (said,) = refused_by_connect(static, [CONNECT, CONNECT], **{**NOTHING, **asked})
    assert said.startswith(words)
    assert "sc://server:15002" in said
    assert refused_by_connect(static, [CONNECT, LOCAL], **{**NOTHING, **asked}) == []
    assert refused_by_connect(static, [], **{**NOTHING, **asked}) == []


def test_a_plain_job_is_not_refused() -> None:
    assert refused_by_connect({"spark.eventLog.enabled": "false"}, [CONNECT], **NOTHING) == []
