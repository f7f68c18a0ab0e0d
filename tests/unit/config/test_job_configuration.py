"""What a job may set for itself, and what follows for its checkpoints."""

from __future__ import annotations

import pytest

from runtime.common.checkpoint_settings import CheckpointRetention, CheckpointSettings
from runtime.common.errors import InvalidInputError
from runtime.common.states import JobType
from runtime.config.configuration import Configuration
from runtime.config.job_configuration import (
    checkpoint_settings,
    idle_speculation_options,
    job_configuration_problems,
    runtime_mode_problem,
)
from runtime.config.option import parse_duration
from runtime.entrypoint.job_master_options import job_master_settings, settled_checkpointing
from runtime.jobgraph.graph import JobGraph
from runtime.rest.routes.submission import verify_graph
from tests.kit.control_plane.job_graphs import lone
from tests.kit.control_plane.streaming_jobs import streaming_job

CLUSTER = Configuration(
    {
        "execution.checkpointing.interval": parse_duration("10 s"),
        "execution.checkpointing.num-retained": 3,
        "execution.checkpointing.externalized-checkpoint-retention": "DELETE_ON_CANCELLATION",
    },
    {},
)
OWN = {"execution.checkpointing.interval": "PT2S", "execution.checkpointing.min-pause": "500 ms"}


def test_a_job_has_its_own_options_over_those_of_the_cluster() -> None:
    of_cluster = CheckpointSettings(interval=10.0, retained=3, retention=CheckpointRetention.DELETE_ON_CANCELLATION)
    assert checkpoint_settings(CLUSTER, {}) == of_cluster == job_master_settings(CLUSTER).checkpointing
    assert checkpoint_settings(CLUSTER, OWN) == CheckpointSettings(
        interval=2.0, min_pause=0.5, retained=3, retention=CheckpointRetention.DELETE_ON_CANCELLATION
    )


def test_what_is_settled_when_a_job_is_submitted() -> None:
    def settled(graph: JobGraph) -> CheckpointSettings | None:
        return settled_checkpointing(CLUSTER, graph.canonical_json())

    assert settled(lone()) is None
    assert settled(streaming_job("orders")) == checkpoint_settings(CLUSTER, {})
    own = streaming_job("orders").model_copy(update={"configuration": OWN})
    assert settled(own) == checkpoint_settings(CLUSTER, OWN)


def test_every_problem_is_told() -> None:
    given = {
        "execution.checkpointing.interval": "soon",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN",
        "execution.checkpointing.dir": "/elsewhere",
    }
    interval, retention, foreign = job_configuration_problems(given)
    assert interval.startswith(
        "configuration: execution.checkpointing.interval: 'soon' is not valid: expected a duration"
    )
    assert "expected one of NO_EXTERNALIZED_CHECKPOINTS, DELETE_ON_CANCELLATION, RETAIN_ON_CANCELLATION" in retention
    assert (
        "'execution.checkpointing.dir' is the cluster's, not a job's; a job may set execution.batch.adaptive."
        in foreign
    )
    assert not list(job_configuration_problems(OWN))


def test_very_many_options_are_refused_at_the_cost_of_a_few() -> None:
    assert 0 < len(list(job_configuration_problems({f"key-{number}": "" for number in range(100_000)}))) < 50


def test_a_mistyped_option_is_no_option_of_the_cluster() -> None:
    (problem,) = job_configuration_problems({"execution.checkpointing.intervall": "5 s"})
    assert problem.endswith(" is no option, did you mean 'execution.checkpointing.interval'?")


def test_an_option_of_flink_gets_the_same_advice_as_in_a_cluster() -> None:
    given = {
        "execution.batch.adaptive.auto-parallelism.default-source-parallelism": "3",
        "spark.sql.shuffle.partitions": "4",
        "gizmo.size": "1",
    }
    flinks, sparks, nobodys = job_configuration_problems(given)
    assert flinks.endswith(
        "' is Flink's, but not available here: a source has a subtask for each of its splits: set its parallelism in "
        "the pipeline"
    )
    assert "is Spark's: give it as Spark conf, by --conf of a script or spark_conf of a Pipeline" in sparks
    assert nobodys.endswith("'gizmo.size' is no option")


@pytest.mark.parametrize(
    ("mode", "job_type", "problem"),
    [
        ("AUTOMATIC", JobType.STREAMING, ""),
        ("STREAMING", JobType.STREAMING, ""),
        ("BATCH", JobType.BATCH, ""),
        ("BATCH", JobType.STREAMING, "is BATCH, and a query of the job does not end"),
        ("STREAMING", JobType.BATCH, "is STREAMING, and each query of the job ends"),
    ],
)
def test_a_job_is_what_it_says(mode: str, job_type: JobType, problem: str) -> None:
    found = runtime_mode_problem({"execution.runtime-mode": mode}, job_type)
    assert problem in found
    assert bool(problem) == bool(found)
    assert not runtime_mode_problem({}, job_type)


def test_a_submit_that_is_not_what_it_says_is_refused() -> None:
    for made, mode in ((lone(), "STREAMING"), (streaming_job("orders"), "BATCH")):
        graph = made.model_copy(update={"configuration": {"execution.runtime-mode": mode}})
        with pytest.raises(InvalidInputError, match=f"execution.runtime-mode is {mode}"):
            verify_graph(graph, "a" * 32, (), client="", namespace="")


@pytest.mark.parametrize(
    ("given", "is_cluster_enabled", "idle"),
    [
        ({"slow-task-detector.check-interval": "1 s"}, False, ["slow-task-detector.check-interval"]),
        ({"slow-task-detector.check-interval": "1 s"}, True, []),
        (
            {"slow-task-detector.check-interval": "1 s", "execution.batch.speculative.enabled": "false"},
            True,
            ["slow-task-detector.check-interval"],
        ),
        ({"slow-task-detector.check-interval": "1 s", "execution.batch.speculative.enabled": "true"}, False, []),
        ({"execution.batch.speculative.enabled": "false"}, False, []),
    ],
)
def test_options_about_slow_tasks_that_have_no_effect(
    given: dict[str, str], is_cluster_enabled: bool, idle: list[str]
) -> None:
    assert not list(job_configuration_problems(given))
    assert idle_speculation_options(given, is_cluster_enabled=is_cluster_enabled) == idle
