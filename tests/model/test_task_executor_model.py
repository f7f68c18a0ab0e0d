"""The TaskExecutor's core against a small model: any order of orders, reports, losses and timers keeps the promises."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from runtime.common.ids import ExecutionAttemptId
from runtime.common.states import ExecutionState
from runtime.gateways.job_master import JobCensus
from runtime.taskexecutor.core.events import (
    AttemptEnded,
    AttemptReported,
    CancelAttempt,
    CensusRequested,
    ContactLost,
    ContactRegained,
    DrainChanged,
    Effect,
    Event,
    FenceObeyed,
    FenceRequested,
    ForgetJob,
    FreeSlot,
    JobMasterConnected,
    JobMasterDisconnected,
    OwnerMessage,
    OwnersAwaited,
    OwnerSpoke,
    Released,
    ReportUnstarted,
    RunAttempt,
    SendReport,
    SlotTimedOut,
    StartSlotTimer,
    TellOwner,
)
from runtime.taskexecutor.core.jobs import JobMasterLocation
from runtime.taskexecutor.core.reports import AttemptState
from runtime.taskexecutor.core.slot_table import SlotState
from runtime.taskexecutor.core.task_executor import TaskExecutorCore
from tests.kit.control_plane.task_messages import (
    acknowledge,
    answer_offers,
    cancel,
    deploy,
    end_job,
    free_slots,
    incarnation,
    job_id,
    register_job,
    report,
    request_slot,
)

SLOTS = 3
jobs = st.integers(1, 3)
slots = st.integers(0, SLOTS - 1)
allocations = st.integers(1, 12)
subtasks = st.integers(0, 6)
OWNER = JobMasterLocation(incarnation(1), "job-master:1")


class TaskExecutorMachine(RuleBasedStateMachine):
    """Plays ResourceManager, one owner and the slots; remembers only what must hold from outside."""

    @initialize()
    def begin(self) -> None:
        self.core = TaskExecutorCore(
            "tm", slots=SLOTS, queue_max=2, reports_max=4, report_bytes_max=1 << 20, owner_timeout=60.0
        )
        self.running: dict[int, ExecutionAttemptId] = {}
        self.ever_run: set[ExecutionAttemptId] = set()
        self.sent_terminal: dict[ExecutionAttemptId, ExecutionState] = {}
        self.deployed: set[ExecutionAttemptId] = set()
        self.timers: list[SlotTimedOut] = []
        self.is_isolated = False
        self.is_draining = False
        self.fences: dict[str, int] = {}
        self.obeyed: dict[str, int] = {}

    def apply(self, event: Event) -> None:
        for effect in self.core.handle(event):
            self.execute(effect)

    def says(self, message: OwnerMessage) -> None:
        self.apply(OwnerSpoke(OWNER, message))

    def execute(self, effect: Effect) -> None:
        match effect:
            case RunAttempt(slot_index, job, task):
                assert slot_index not in self.running, "one attempt at a time in a slot"
                assert task.attempt_id not in self.ever_run, "no attempt runs twice"  # R11
                assert job.job_id == task.attempt_id.job_id
                assert not self.is_isolated, "nothing exclusive begins without contact"  # R14
                assert job.job_id not in self.fences, "nothing older than the fence begins"  # R14
                assert not self.is_draining, "nothing begins while it drains"
                self.running[slot_index] = task.attempt_id
                self.ever_run.add(task.attempt_id)
            case CancelAttempt(slot_index, attempt_id):
                assert self.running.get(slot_index) == attempt_id
            case FreeSlot(slot_index, _):
                assert slot_index not in self.running, "a slot is freed only when nothing is left in it"  # R15
            case ForgetJob(job):
                assert all(attempt.job_id != job for attempt in self.running.values())
                self.forget(job)
            case ReportUnstarted(attempt_id, state, _):
                assert attempt_id not in self.ever_run
                self.apply(AttemptReported(report(int(attempt_id.job_id, 16), attempt_id.subtask_index, state)))
            case SendReport(_, _, sent) if sent.state.is_terminal:
                earlier = self.sent_terminal.setdefault(sent.attempt_id, sent.state)
                assert earlier is sent.state, "one terminal state per attempt"
            case FenceObeyed(job, revision):
                assert all(attempt.job_id != job for attempt in self.running.values())  # R14, R15
                self.obeyed[job] = revision
            case StartSlotTimer(allocation):
                self.timers.append(SlotTimedOut(allocation))
            case TellOwner(_, JobCensus() as census):
                self.check_census(census)
            case _:
                pass

    def check_census(self, census: JobCensus) -> None:
        """R6: whatever was deployed and is not acknowledged is named, and where the owner's slots are."""
        named = {held.attempt_id for held in census.attempts}
        for attempt in self.deployed:
            if attempt.job_id == census.job_id and attempt not in named:
                assert self.core.ledger.state(attempt) is AttemptState.ACKNOWLEDGED
        held = {slot.allocation_id for slot in census.slots}
        for slot in self.core.slots.of_job(census.job_id):
            assert (slot.allocation_id in held) == (slot.state is SlotState.ACTIVE)

    def forget(self, job: str) -> None:
        self.ever_run = {attempt for attempt in self.ever_run if attempt.job_id != job}
        self.sent_terminal = {a: s for a, s in self.sent_terminal.items() if a.job_id != job}
        self.deployed = {attempt for attempt in self.deployed if attempt.job_id != job}

    @rule(allocation=allocations, slot=slots, job=jobs)
    def request(self, allocation: int, slot: int, job: int) -> None:
        self.apply(request_slot(allocation, slot=slot, job=job))

    @rule(accepted=allocations, rejected=allocations, job=jobs)
    def answer(self, accepted: int, rejected: int, job: int) -> None:
        self.says(answer_offers(accepted, job=job, rejected=(rejected,) if rejected != accepted else ()))
        self.says(register_job(job))

    @rule(allocation=allocations, subtask=subtasks, job=jobs)
    def deploy_task(self, allocation: int, subtask: int, job: int) -> None:
        message = deploy(allocation, subtask, job=job)
        self.says(message)
        known = self.core.jobs.get(job_id(job))
        if known is not None and not known.is_ending:
            self.deployed.add(message.tasks[0].attempt_id)

    @rule(subtask=subtasks, job=jobs)
    def cancel_task(self, subtask: int, job: int) -> None:
        self.says(cancel(subtask, job=job))

    @rule(subtask=subtasks, job=jobs)
    def acknowledge_report(self, subtask: int, job: int) -> None:
        self.says(acknowledge(subtask, job=job))

    @rule(allocation=allocations, job=jobs)
    def free(self, allocation: int, job: int) -> None:
        self.says(free_slots(allocation, job=job))

    @rule(job=jobs)
    def end(self, job: int) -> None:
        self.says(end_job(job))

    @rule(job=jobs)
    def count(self, job: int) -> None:
        self.apply(CensusRequested(job_id(job), 1, OWNER))

    @rule(is_connected=st.booleans())
    def connect(self, *, is_connected: bool) -> None:
        self.apply(JobMasterConnected(incarnation(1)) if is_connected else JobMasterDisconnected(incarnation(1)))

    @rule(job=jobs)
    def fence(self, job: int) -> None:
        revision = self.fences.get(job_id(job), 100) + 1
        self.fences[job_id(job)] = revision
        self.apply(FenceRequested(job_id(job), 1, revision))

    @rule(is_lost=st.booleans())
    def contact(self, *, is_lost: bool) -> None:
        self.is_isolated = is_lost
        self.apply(ContactLost("away") if is_lost else ContactRegained())

    @rule(is_draining=st.booleans())
    def drain(self, *, is_draining: bool) -> None:
        self.is_draining = is_draining
        self.apply(DrainChanged("maintenance" if is_draining else ""))

    @rule()
    def release(self) -> None:
        self.apply(Released("time is over"))

    @rule(seconds=st.sampled_from([1.0, 59.0, 60.0]))
    def wait_for_owners(self, seconds: float) -> None:
        self.apply(OwnersAwaited(seconds))

    @precondition(lambda self: self.timers)
    @rule()
    def fire_timer(self) -> None:
        self.apply(self.timers.pop(0))

    @rule(slot=slots, state=st.sampled_from([ExecutionState.FINISHED, ExecutionState.FAILED, ExecutionState.CANCELED]))
    def finish(self, slot: int, state: ExecutionState) -> None:
        attempt = self.running.get(slot)
        if attempt is not None:
            self.apply(AttemptReported(report(int(attempt.job_id, 16), attempt.subtask_index, state)))
            del self.running[slot]
            self.apply(AttemptEnded(slot, attempt))

    @invariant()
    def parts_agree(self) -> None:
        self.core.check_invariants()
        for slot in self.core.slots:
            assert self.running.get(slot.index) == slot.running

    @invariant()
    def every_deployed_attempt_runs_waits_or_has_reported(self) -> None:
        waiting = {task.attempt_id for slot in self.core.slots for task in slot.waiting}
        for attempt in self.deployed:
            job = self.core.jobs.get(attempt.job_id)
            if job is None or job.is_ending:
                continue
            is_live = attempt in waiting or attempt in self.running.values()
            state = self.core.ledger.state(attempt)
            assert is_live or (state is not None and state.name in {"REPORTED", "ACKNOWLEDGED"}), attempt

    def teardown(self) -> None:
        for number in range(1, 4):
            self.says(end_job(number))
        for slot in range(SLOTS):
            self.finish(slot=slot, state=ExecutionState.CANCELED)
        assert all(slot.state is SlotState.FREE for slot in self.core.slots)
        assert not list(self.core.jobs)
        assert self.core.ledger.kept == 0
        assert self.obeyed == self.fences


TaskExecutorMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestTaskExecutorModel = TaskExecutorMachine.TestCase
