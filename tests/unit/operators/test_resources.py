"""The fields `resources` and `spark_profile`."""

from typing import Any

import pytest

from airflow_flinklike.exceptions import PipelineError
from airflow_flinklike.operators.resources import resources_of
from runtime.jobgraph.graph import DEFAULT_RESOURCES, ResourceSpec


@pytest.mark.parametrize(
    ("given", "profile", "expected"),
    [
        (None, None, DEFAULT_RESOURCES),
        ("", "", DEFAULT_RESOURCES),
        ({"cpu_cores": 2, "memory": "4g"}, None, ResourceSpec(cpu_cores=2.0, memory_bytes=4 << 30)),
        ('{"cpu_cores": "1.5", "memory": "512 MB"}', None, ResourceSpec(cpu_cores=1.5, memory_bytes=512 << 20)),
        ({"labels": {"zone": "b", "gpu": 1}}, None, ResourceSpec(labels=("gpu=1", "zone=b"))),
        ('{"labels": {"gpu": "a100"}}', None, ResourceSpec(labels=("gpu=a100",))),
        ({"memory_bytes": 1024}, "big", ResourceSpec(memory_bytes=1024, spark_profile="big")),
        ({"spark_profile": "big"}, "big", ResourceSpec(spark_profile="big")),
        (ResourceSpec(cpu_cores=1.0), "big", ResourceSpec(cpu_cores=1.0, spark_profile="big")),
    ],
)
def test_what_they_mean(given: Any, profile: str | None, expected: ResourceSpec) -> None:
    assert resources_of(given, profile) == expected


@pytest.mark.parametrize(
    ("given", "profile", "sentence"),
    [
        ({"cpus": 2}, None, "resources has cpus: expected cpu_cores, memory, memory_bytes, spark_profile, labels"),
        ({"labels": {"a b": 1}}, None, "'a b=1' is no label"),
        ({"labels": "gpu"}, None, "labels of resources is 'gpu': expected a mapping"),
        ({"cpu_cores": "many"}, None, "cpu_cores of resources is 'many': expected a number, not below 0"),
        ({"cpu_cores": True}, None, "cpu_cores of resources is True: expected a number, not below 0"),
        ({"cpu_cores": -1}, None, "cpu_cores of resources is -1: expected a number, not below 0"),
        ({"memory": "4 apples"}, None, "memory of resources is '4 apples': expected bytes, or a text such as '4g'"),
        ({"memory": "1g", "memory_bytes": 1}, None, "resources has memory and memory_bytes: give one of them"),
        ({"spark_profile": "a"}, "b", "spark_profile is 'b', and resources has 'a': give one of them"),
        ("big", None, "resources is 'big': expected a mapping or the text of a JSON object"),
    ],
)
def test_what_is_refused(given: Any, profile: str | None, sentence: str) -> None:
    with pytest.raises(PipelineError) as caught:
        resources_of(given, profile)
    assert str(caught.value).startswith(sentence)
