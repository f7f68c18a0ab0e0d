"""OpenLineage without its provider, and with stand-ins for its modules: names and arguments are the provider's."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest

from airflow_flinklike.api.job_program import JobProgram
from airflow_flinklike.task_instance.openlineage import LineageJob, OpenLineageMethods, with_lineage
from tests.kit.control_plane.job_graphs import lone

JOB = LineageJob("a" * 32, "http://cluster:8081")


@dataclass
class OperatorLineage:
    """A stand-in for the provider's class."""

    inputs: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    run_facets: dict[str, Any] = field(default_factory=dict)
    job_facets: dict[str, Any] = field(default_factory=dict)


@dataclass
class Methods(OpenLineageMethods):
    """An operator with that job."""

    job: LineageJob | None

    def lineage_job(self) -> LineageJob | None:
        return self.job


def facet(**fields: Any) -> dict[str, Any]:
    return fields


def module(name: str, **content: Any) -> ModuleType:
    made = ModuleType(name)
    for key, value in content.items():
        setattr(made, key, value)
    return made


def parent(properties: dict[str, Any], context: Any) -> dict[str, Any]:
    return {**properties, "spark.openlineage.parentRunId": context["run_id"]}


def transport(properties: dict[str, Any], context: Any) -> dict[str, Any]:
    del context
    return {**properties, "spark.openlineage.transport.timeoutInMillis": 5000}


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for modules of the provider."""
    base = "airflow.providers.openlineage"
    compat = "airflow.providers.common.compat.openlineage"
    facets = module(f"{compat}.facet", ExternalQueryRunFacet=facet)
    spark = module(
        f"{base}.utils.spark",
        inject_parent_job_information_into_spark_properties=parent,
        inject_transport_information_into_spark_properties=transport,
    )
    made = {
        "airflow": module("airflow"),
        "airflow.providers": module("airflow.providers"),
        "airflow.providers.common": module("airflow.providers.common"),
        "airflow.providers.common.compat": module("airflow.providers.common.compat"),
        compat: module(compat, facet=facets),
        f"{compat}.facet": facets,
        base: module(base),
        f"{base}.extractors": module(f"{base}.extractors", OperatorLineage=OperatorLineage),
        f"{base}.utils": module(f"{base}.utils", spark=spark),
        f"{base}.utils.spark": spark,
    }
    for name, one in made.items():
        monkeypatch.setitem(sys.modules, name, one)


@pytest.fixture
def no_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("airflow", "airflow.providers"):
        monkeypatch.setitem(sys.modules, name, module(name))
    monkeypatch.setitem(sys.modules, "airflow.providers.openlineage", None)


def all_of(methods: OpenLineageMethods) -> list[Any]:
    return [
        methods.get_openlineage_facets_on_start(),
        methods.get_openlineage_facets_on_complete(None),
        methods.get_openlineage_facets_on_failure(None),
    ]


@pytest.mark.usefixtures("provider")
def test_the_job_is_named_as_soon_as_there_is_one() -> None:
    assert all_of(Methods(None)) == [OperatorLineage()] * 3
    query = {"externalQuery": {"externalQueryId": "a" * 32, "source": "http://cluster:8081"}}
    assert all_of(Methods(JOB)) == [OperatorLineage(run_facets=query)] * 3


@pytest.mark.usefixtures("no_provider")
def test_without_the_provider_there_is_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert all_of(Methods(JOB)) == [None] * 3
    program = JobProgram(lone())
    found = with_lineage(program, {}, inject_parent=True, inject_transport=False)
    assert found is program
    assert "apache-airflow-providers-openlineage is not installed" in caplog.text


@pytest.mark.usefixtures("provider")
@pytest.mark.parametrize(
    ("wanted", "added"),
    [
        ((False, False), {}),
        ((True, False), {"spark.openlineage.parentRunId": "run"}),
        ((False, True), {"spark.openlineage.transport.timeoutInMillis": "5000"}),
        ((True, True), {"spark.openlineage.parentRunId": "run", "spark.openlineage.transport.timeoutInMillis": "5000"}),
    ],
)
def test_what_is_wanted_is_injected_into_the_conf(wanted: tuple[bool, bool], added: dict[str, str]) -> None:
    graph = lone().model_copy(update={"spark_conf": {"mine": "x"}})
    context: Any = {"run_id": "run"}
    found = with_lineage(JobProgram(graph, {}), context, inject_parent=wanted[0], inject_transport=wanted[1])
    assert found.graph.spark_conf == {"mine": "x", **added}
    assert graph.spark_conf == {"mine": "x"}
