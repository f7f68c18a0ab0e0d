"""Each sentence of a waiting job, as it is made, and its word in the metrics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.dispatcher.core.processes import ProcessTable
from runtime.dispatcher.core.waiting_kinds import waiting_kind
from runtime.entrypoint.job_manager_metrics import waiting_samples
from runtime.gateways.dispatcher import JobSummary, TaskCounts
from runtime.gateways.task import DEFAULT_PROFILE
from runtime.jobmaster.core.reasons import Reasons
from runtime.metrics import table
from runtime.resourcemanager.core import tenants
from runtime.resourcemanager.core.fitting import shortage
from runtime.resourcemanager.core.job_needs import JobNeeds

JOB = JobId("a" * 32)
SOURCES = {
    "runtime/jobmaster/endpoint.py": [("the job store does not take {what}, it is tried again: {error}", "store")],
    "runtime/jobmaster/runner.py": [("the job cannot be read, it is tried again: {error}", "store")],
    "runtime/jobmaster/core/recovery.py": [
        ("waiting for {waits} TaskManagers to say what they have of the job", "takeover")
    ],
    "runtime/scheduler/core/failover/failover.py": [("{waiting} tasks wait for their restart after ", "restart")],
    "runtime/scheduler/core/outputs/output_commit.py": [
        ("committing: waiting for a TaskManager that moves the outputs", "commit"),
        (
            "committing: the TaskManager that moves the outputs cannot be reached: waiting until",
            "commit",
        ),
    ],
    "runtime/scheduler/core/task_managers/losses.py": [
        (" be reached: waiting until they have stopped (taskmanager.isolation-timeout)", "takeover")
    ],
    "runtime/scheduler/core/default_scheduler.py": [
        ("waiting for {running} tasks to stop", "stopping"),
        ("waiting for slots", "slots"),
    ],
    "runtime/dispatcher/core/jobs.py": [("its end could not be stored", "store")],
    "runtime/dispatcher/core/assignments.py": [
        ("JobMaster process {owner.address} refused: {refusal.reason}", "jobmasters")
    ],
    "runtime/resourcemanager/core/fitting.py": [
        ("the JobMaster cannot reach any of {len(fits)} TaskManagers with slots that fit", "taskmanagers"),
        ("no TaskManager with Spark has such slots", "fitting_slots"),
        ("no room for its Spark environment: those of other jobs are in use on all ", "spark_environment"),
    ],
}
"""Texts of the product, as they stand in its sources."""


def summary(reason: str, status: JobStatus = JobStatus.RUNNING) -> JobSummary:
    return JobSummary(JOB, "daily", status, 7, 1, 900, -1, 1000, TaskCounts(), reason)


@pytest.mark.parametrize(
    ("file", "text", "kind"), [(file, text, kind) for file, pairs in SOURCES.items() for text, kind in pairs]
)
def test_a_sentence_of_the_sources(file: str, text: str, kind: str, pytestconfig: pytest.Config) -> None:
    assert text in (pytestconfig.rootpath / file).read_text(encoding="utf-8"), "the sentence has changed: change this"
    assert waiting_kind(summary(text)) == kind


def test_what_processes_say() -> None:
    processes = ProcessTable()
    assert waiting_kind(summary(processes.shortage())) == "jobmasters"
    process = processes.known(Incarnation("d" * 32), "h:1", 1)
    process.is_connected = True
    assert waiting_kind(summary(processes.shortage())) == "jobmasters", "full"
    process.is_draining = True
    assert waiting_kind(summary(processes.shortage())) == "jobmasters", "draining"


def test_no_task_manager_is_there() -> None:
    job = JobNeeds.__new__(JobNeeds)
    assert waiting_kind(summary(f"waiting for slots: {shortage([], job, DEFAULT_PROFILE)}")) == "taskmanagers"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("none of 2 TaskManagers offers a slot with 4 cpu cores", "fitting_slots"),
        ("1 TaskManagers are registered, all of them are draining", "taskmanagers"),
        ("no free slot: all 8 slots that fit are in use", "slots"),
        (tenants.HELD_BY_OTHERS.format(2), "tenancy"),
        ("spark_conf spark.driver.memory: takes 9000 MiB, and TaskManagers have 4000", "fitting_slots"),
    ],
)
def test_a_lack_of_slots(reason: str, kind: str) -> None:
    assert waiting_kind(summary(f"waiting for slots: {reason}")) == kind


def test_a_job_that_gets_on_or_has_ended_waits_for_nothing() -> None:
    assert waiting_kind(summary("")) == ""
    assert waiting_kind(summary("waiting for slots", JobStatus.FAILED)) == ""
    assert waiting_kind(summary(Reasons().initialization)) == "loading"
    assert waiting_kind(summary("something new")) == "other"


def test_they_are_counted_with_the_longest() -> None:
    jobs = [
        summary("waiting for slots"),
        replace(summary("waiting for slots"), last_modification_millis=4000),
        summary(""),
    ]
    found = {(sample.metric, sample.labels): sample.value for sample in waiting_samples(jobs, 6000)}
    assert found[table.JOBS_WAITING, ("slots",)] == 2
    assert found[table.LONGEST_WAIT, ("slots",)] == 5
    assert found[table.JOBS_WAITING, ("commit",)] == found[table.LONGEST_WAIT, ("commit",)] == 0
    assert {labels[0] for metric, labels in found if metric is table.JOBS_WAITING} == set(table.WAITING_REASONS)
