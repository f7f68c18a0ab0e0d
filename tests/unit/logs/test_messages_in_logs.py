"""R48: what a message holds of a job's or an operator's secrets is not in its text, which is logged at DEBUG."""

from __future__ import annotations

from dataclasses import fields

import pytest

from runtime.gateways.delegation_tokens import DelegationToken
from runtime.gateways.resource_manager import JobRequirements, RegisterTaskManager
from runtime.gateways.task import JobInformation, TaskDeploymentDescriptor, TaskExecutionReport, TaskInformation
from runtime.taskexecutor.slots.work import SlotWork

HIDDEN = {
    RegisterTaskManager: {"spark_conf"},
    JobInformation: {"params", "spark_conf", "environment"},
    TaskInformation: {"operators"},
    TaskDeploymentDescriptor: {"splits"},
    TaskExecutionReport: {"value"},
    JobRequirements: {"static_conf", "script_conf"},
    DelegationToken: {"content"},
    SlotWork: {"secrets"},
}


@pytest.mark.parametrize("message", HIDDEN, ids=lambda one: one.__name__)
def test_what_may_be_secret_is_left_out(message: type) -> None:
    assert {one.name for one in fields(message) if not one.repr} == HIDDEN[message]
