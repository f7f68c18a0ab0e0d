"""`flinklike savepoint JOB` and `flinklike stop JOB`: what they ask for, and what they say of the outcome."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from runtime.common.states import JobStatus
from runtime.gateways.operations import OperationKind, OperationState, StreamOperation
from tests.kit.host.command_line import RunCommand
from tests.kit.rest.fakes import JOB
from tests.kit.rest.server import RestThread

ID = "b" * 32
ENDED = StreamOperation(ID, OperationKind.STOP, OperationState.COMPLETED, 7, 1000, "/s/savepoint-1", ended_millis=2000)


@pytest.fixture
def ended(server: RestThread) -> RestThread:
    """A job with an operation that has ended: a repeat of its trigger finds it."""
    server.put(JOB, JobStatus.RUNNING)
    server.do(lambda: server.dispatcher.operations.update({(JOB, ID): ENDED}))
    return server


def test_the_outcome_is_printed(flinklike: RunCommand, ended: RestThread) -> None:
    done = flinklike("stop", JOB, "--savepoint", "/s", "--drain", "--trigger-id", ID)
    assert (done.code, done.out) == (0, "Savepoint completed, the job is stopped. Path: file:///s/savepoint-1\n")
    done = flinklike("savepoint", JOB, "/s", "--trigger-id", ID, "--json")
    assert (done.code, json.loads(done.out)) == (
        0,
        {"job_id": JOB, "trigger_id": ID, "location": "file:///s/savepoint-1"},
    )


def test_a_failure_is_one_sentence_and_its_exit_code(flinklike: RunCommand, ended: RestThread) -> None:
    failed = replace(ENDED, state=OperationState.FAILED, cause="no space left")
    ended.do(lambda: ended.dispatcher.operations.update({(JOB, ID): failed}))
    done = flinklike("stop", JOB, "--savepoint", "/s", "--trigger-id", ID)
    assert done.code == 1
    assert "no space left" in done.err
    assert f"no savepoint of job {JOB}" in done.err


def test_what_is_no_job_is_a_command_or_told(flinklike: RunCommand, ended: RestThread) -> None:
    assert "is not a job id" in flinklike("stop", "daily").err
    assert "is not a job id" in flinklike("stop", JOB, "--savepoint", "/s", "--trigger-id", "mine").err
    assert "No such command" in flinklike("savepoint", "daily").err
    refused = flinklike("savepoint", JOB)
    assert refused.code == 1
    assert "No savepoint directory configured" in refused.err
