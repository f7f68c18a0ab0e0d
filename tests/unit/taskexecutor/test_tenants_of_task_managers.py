"""A TaskManager that serves one namespace at a time: what it refuses, and when it begins anew (R50)."""

from __future__ import annotations

from runtime.gateways.resource_manager import SlotRequestRefused
from runtime.taskexecutor.core.events import (
    AttemptEnded,
    Effect,
    EnvironmentRenewed,
    Event,
    JobMasterConnected,
    OwnerSpoke,
    RenewEnvironment,
    RunAttempt,
    TellResourceManager,
)
from runtime.taskexecutor.core.jobs import JobMasterLocation
from runtime.taskexecutor.core.task_executor import TaskExecutorCore
from tests.kit.control_plane.task_messages import (
    answer_offers,
    attempt_id,
    deploy,
    end_job,
    incarnation,
    register_job,
    request_slot,
)


class Driver:
    """A core. Jobs with odd numbers are of team-a, the others of team-b."""

    def __init__(self, *, has_tenants: bool = True) -> None:
        self.core = TaskExecutorCore(
            "tm-1",
            slots=2,
            queue_max=8,
            reports_max=100,
            report_bytes_max=1 << 20,
            owner_timeout=60.0,
            has_tenants=has_tenants,
        )
        self.handle(JobMasterConnected(incarnation(1)))

    def handle(self, event: Event) -> list[Effect]:
        effects = self.core.handle(event)
        self.core.check_invariants()
        return effects

    def says(self, message: object) -> list[Effect]:
        return self.handle(OwnerSpoke(JobMasterLocation(incarnation(1), "job-master:1"), message))  # type: ignore[arg-type]  # an OwnerMessage

    def ask(self, allocation: int, job: int, *, slot: int = 0) -> tuple[list[str], bool]:
        """Ask for a slot: what is refused, and whether the environment is replaced."""
        namespace = "team-a" if job % 2 else "team-b"
        effects = self.handle(request_slot(allocation, slot=slot, job=job, namespace=namespace))
        said = [effect.message for effect in effects if isinstance(effect, TellResourceManager)]
        refused = [message for message in said if isinstance(message, SlotRequestRefused)]
        assert not any(message.is_slot_free for message in refused)
        return [message.reason for message in refused], RenewEnvironment() in effects

    def run(self, allocation: int, job: int) -> None:
        assert self.ask(allocation, job) == ([], False)
        self.says(answer_offers(allocation, job=job))
        self.says(register_job(job))
        started = self.says(deploy(allocation, 0, job=job))
        assert any(isinstance(effect, RunAttempt) for effect in started)


def test_another_namespace_waits_until_the_last_job_has_left() -> None:
    driver = Driver()
    driver.run(1, 1)
    (reason,), renews = driver.ask(2, 2, slot=1)
    assert "jobs of it are still here" in reason
    assert not renews
    driver.says(end_job(1))
    assert driver.ask(3, 2, slot=1)[1] is False, "its attempt still runs"
    driver.handle(AttemptEnded(0, attempt_id(1, 0)))
    (reason,), renews = driver.ask(4, 2, slot=1)
    assert "its slots are started anew for another namespace" in reason
    assert "Spark" not in reason, "it may have none"
    assert renews


def test_nobody_gets_a_slot_while_it_is_made_anew_and_it_is_made_anew_once() -> None:
    driver = Driver()
    driver.run(1, 1)
    driver.says(end_job(1))
    driver.handle(AttemptEnded(0, attempt_id(1, 0)))
    driver.ask(2, 2)
    for job in (3, 2):
        (reason,), renews = driver.ask(2 + job, job)
        assert reason
        assert not renews
    driver.handle(EnvironmentRenewed())
    assert driver.ask(5, 2) == ([], False)


def test_a_job_that_holds_no_slot_now_is_still_there() -> None:
    driver = Driver()
    driver.run(1, 1)
    driver.handle(AttemptEnded(0, attempt_id(1, 0)))
    (reason,), renews = driver.ask(2, 2, slot=1)
    assert "jobs of it are still here" in reason
    assert not renews


def test_where_nothing_has_run_nothing_is_made_anew() -> None:
    driver = Driver()
    assert driver.ask(1, 1) == ([], False)
    assert driver.ask(2, 2, slot=1)[0]
    driver.says(answer_offers(job=1, rejected=(1,)))
    assert driver.ask(3, 2, slot=1) == ([], False)


def test_shared_it_serves_all() -> None:
    driver = Driver(has_tenants=False)
    driver.run(1, 1)
    assert driver.ask(2, 2, slot=1) == ([], False)
