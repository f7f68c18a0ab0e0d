"""The registry of jobs against a small world: store, transactions in flight, processes, streams that lose things."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from dataclasses import replace as changed

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from runtime.common.errors import UnavailableError
from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.dispatcher.core import effects as ef
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.core.job_entry import JobPhase
from runtime.dispatcher.core.jobs import JobRegistry
from runtime.dispatcher.core.retention import Retention
from runtime.dispatcher.core.shown_summary import initial_summary
from runtime.dispatcher.core.submits import JobRegistryLimits
from runtime.gateways.dispatcher import AssignJob, JobInventoryEntry, JobSummary
from tests.kit.control_plane.process_events import (
    assignment_refused,
    inventory_received,
    process_known,
    process_registered,
)

Order = AssignJob | ef.SendCancel | ef.SendDrop | ef.SendDrain
JOBS = [JobId(f"{number:032x}") for number in range(3)]
CAPACITY = 2
STAGES = st.sampled_from([0, 1, 2])


@dataclass
class Stored:
    source: ev.JobSource
    graph_revision: int
    owner: ev.JobOwner | None = None
    wanted: bool = False
    reason: str = ""
    expires: int = 0
    move_to: tuple[Incarnation, int] = (Incarnation(""), 0)
    ended: JobSummary | None = None
    is_cleaned: bool = False

    def recovered(self) -> ev.RecoveredJob | None:
        if self.is_cleaned:
            return None
        target, epoch = self.move_to
        move_to = target if self.owner is not None and self.owner.epoch == epoch else Incarnation("")
        return ev.RecoveredJob(
            self.source, self.graph_revision, self.owner, self.wanted, self.ended, move_to, self.reason, self.expires
        )


@dataclass
class Process:
    incarnation: Incarnation
    is_connected: bool = False
    is_draining: bool = False
    inbox: list[Order] = field(default_factory=list)
    jobs: dict[JobId, tuple[int, JobStatus]] = field(default_factory=dict)
    assignment: int = 0
    refused: set[tuple[JobId, int]] = field(default_factory=set)


class JobRegistryMachine(RuleBasedStateMachine):
    """`pending` holds effects that are transactions and have not run yet."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = JobRegistry(JobRegistryLimits(2, 2), Retention(10, 1000), client_grace=1.0)
        self.revision = 100
        self.store: dict[JobId, Stored] = {}
        self.pending: list[ef.DispatcherEffect] = []
        self.processes: dict[Incarnation, Process] = {}
        self.asked: set[int] = set()
        self.answered: set[int] = set()
        self.requests = 0
        self.heartbeats: dict[int, tuple[JobId, int]] = {}
        self.begun: dict[JobId, int] = {}
        """The first epoch under which a process has begun each job."""
        self.names = 0
        self.now = 0

    def post(self, event: ev.DispatcherEvent) -> None:
        for effect in self.registry.handle(event):
            match effect:
                case ef.ReplySubmitted(request=request) | ef.ReplyCancelled(request=request):
                    self.answer(request)
                case ef.ReplyDone(request=request):
                    self.answer(request)
                    self.check_promise(request)
                case ef.SendNotTaken(incarnation=incarnation):
                    taker = [one for one in self.registry.processes if one.may_get_room]
                    assert not taker, incarnation
                case ef.Refuse(request=request):
                    self.answer(request)
                case ef.SendAssign(incarnation=incarnation, message=message):
                    stored = self.store[message.job_id]
                    assert stored.owner is not None, "sent only what is stored (R5)"
                    assert (stored.owner.incarnation, stored.owner.epoch) == (incarnation, message.epoch)
                    self.deliver(incarnation, message)
                case ef.SendCancel(incarnation=incarnation, job_id=job_id, reason=reason):
                    assert self.store[job_id].wanted
                    assert self.store[job_id].reason == reason
                    self.deliver(incarnation, effect)
                case ef.SendDrop(incarnation=incarnation) | ef.SendDrain(incarnation=incarnation):
                    self.deliver(incarnation, effect)
                case ef.PublishSummary() | ef.EndJobEverywhere():
                    pass
                case _:
                    self.check_transaction(effect)
                    self.pending.append(effect)

    def check_transaction(self, effect: ef.DispatcherEffect) -> None:
        """No job is cancelled without a promise of its client, or while that promise is being withdrawn (R2)."""
        if isinstance(effect, ef.StoreWanted) and effect.reason:
            assert 0 < self.store[effect.job_id].expires <= self.now
            assert effect.job_id not in [one.job_id for one in self.pending if isinstance(one, ef.StorePromise)]

    def answer(self, request: int) -> None:
        assert request in self.asked
        assert request not in self.answered
        self.answered.add(request)

    def check_promise(self, request: int) -> None:
        """R3: what is answered is durable, unless the job has ended."""
        job_id, expires = self.heartbeats.get(request, (JOBS[0], -1))
        stored = self.store.get(job_id)
        assert expires < 0 or stored is None or stored.ended is not None or stored.expires == expires

    def deliver(self, incarnation: Incarnation, message: Order) -> None:
        process = self.processes.get(incarnation)
        if process is not None and process.is_connected:
            process.inbox.append(message)

    def next_request(self) -> int:
        self.requests += 1
        self.asked.add(self.requests)
        return self.requests

    def next_revision(self) -> int:
        self.revision += 1
        return self.revision

    # --- clients ------------------------------------------------------------------------------------------

    @initialize(count=st.integers(0, 2))
    def some_processes(self, count: int) -> None:
        for _ in range(count):
            self.new_process()

    def go_on(self, stage: int) -> None:
        """How much happens by itself before the next rule: nothing, transactions, or reading too."""
        if stage >= 1:
            self.run_all_transactions()
        if stage >= 2:
            self.read_all_orders()

    @rule(job_id=st.sampled_from(JOBS), digest=st.sampled_from(["d", "d", "d", "x"]), stage=STAGES)
    def submit(self, job_id: JobId, digest: str, stage: int) -> None:
        source = ev.JobSource(job_id, digest, "job", b"{}", "", 1000, "tests")
        self.post(ev.SubmitRequested(self.next_request(), source))
        self.go_on(stage)

    @rule(job_id=st.sampled_from(JOBS), stage=STAGES)
    def cancel(self, job_id: JobId, stage: int) -> None:
        self.post(ev.CancelRequested(self.next_request(), job_id))
        self.go_on(stage)

    @rule(data=st.data(), seconds=st.sampled_from([0, 1, 4]), stage=STAGES)
    def promise(self, data: st.DataObject, seconds: int, stage: int) -> None:
        job_id = data.draw(st.sampled_from(sorted(entry.job_id for entry in self.registry._jobs) or JOBS))
        expires = self.now + 1000 * seconds if seconds else 0
        request = self.next_request()
        self.heartbeats[request] = (job_id, expires)
        self.post(ev.HeartbeatRequested(request, job_id, expires))
        self.go_on(stage)

    @rule(job_id=st.sampled_from(JOBS), data=st.data(), stage=STAGES)
    def move(self, job_id: JobId, data: st.DataObject, stage: int) -> None:
        process = self.pick(data)
        if process is not None:
            self.post(ev.MoveRequested(self.next_request(), job_id, process.incarnation))
            self.go_on(stage)

    @rule(data=st.data(), is_draining=st.booleans(), stage=STAGES)
    def drain(self, data: st.DataObject, is_draining: bool, stage: int) -> None:
        process = self.pick(data)
        if process is not None:
            self.post(ev.DrainRequested(self.next_request(), process.incarnation, is_draining))
            self.go_on(stage)

    @rule(data=st.data(), is_draining=st.booleans(), stage=STAGES)
    def drain_by_itself(self, data: st.DataObject, is_draining: bool, stage: int) -> None:
        process = self.pick(data)
        if process is not None:
            process.is_draining = is_draining
            self.heartbeat(process)
            self.go_on(stage)

    # --- the store ----------------------------------------------------------------------------------------

    @rule(data=st.data(), is_away=st.sampled_from([False, False, False, True]))
    def run_transaction(self, data: st.DataObject, is_away: bool) -> None:
        if not self.pending:
            return
        effect = self.pending.pop(data.draw(st.integers(0, len(self.pending) - 1)))
        self.execute(effect, is_away=is_away)

    @rule()
    def run_all_transactions(self) -> None:
        while self.pending:
            self.execute(self.pending.pop(0), is_away=False)

    @rule()
    def read_all_orders(self) -> None:
        for process in self.processes.values():
            while process.inbox:
                self.obey(process, process.inbox.pop(0))

    def execute(self, effect: ef.DispatcherEffect, *, is_away: bool) -> None:
        match effect:
            case ef.StoreJob(source=source):
                self.store_job(effect, source, is_away=is_away)
            case ef.StoreOwner():
                self.store_owner(effect)
            case ef.StoreWanted():
                self.store_wanted(effect, is_away=is_away)
            case ef.StorePromise():
                self.store_promise(effect, is_away=is_away)
            case ef.StoreMoveWish():
                self.store_move_wish(effect, is_away=is_away)
            case ef.StoreEnd():
                self.store_end(effect, is_away=is_away)
            case ef.ReloadJob(job_id=job_id):
                self.post(ev.JobReloaded(job_id, self.store[job_id].recovered()))
            case ef.SeekResult(job_id=job_id):
                if (ended := self.store[job_id].ended) is not None:
                    self.post(ev.EndStored(job_id, ended))
            case _:
                raise AssertionError(effect)

    def store_job(self, effect: ef.StoreJob, source: ev.JobSource, *, is_away: bool) -> None:
        job_id = source.job_id
        if is_away:
            self.post(ev.SubmitFailed(job_id, UnavailableError("away")))
        elif job_id in self.store:
            found = self.store[job_id]
            assert found.is_cleaned, "a job that is not cleaned is in memory"
            assert found.ended is not None
            self.post(ev.SubmitFoundStored(job_id, found.source.digest, found.ended.status, is_cleaned=True))
        else:
            revision = self.next_revision()
            owner = ev.JobOwner(effect.incarnation, effect.address, revision) if effect.incarnation else None
            self.store[job_id] = Stored(source, revision, owner)
            self.post(ev.SubmitStored(job_id, revision if owner else 0, ""))

    def store_owner(self, effect: ef.StoreOwner) -> None:
        stored = self.store[effect.job_id]
        epoch = stored.owner.epoch if stored.owner else 0
        if stored.ended is not None or epoch != effect.previous_epoch:
            self.post(ev.OwnerNotStored(effect.job_id, stored.recovered()))
            return
        revision = self.next_revision()
        stored.owner = ev.JobOwner(effect.incarnation, effect.address, revision)
        self.post(ev.OwnerStored(effect.job_id, revision))

    def store_promise(self, effect: ef.StorePromise, *, is_away: bool) -> None:
        stored = self.store[effect.job_id]
        if is_away:
            self.post(ev.PromiseFailed(effect.job_id, UnavailableError("away")))
            return
        if stored.ended is None:
            stored.expires = effect.expires_millis
        self.post(ev.PromiseStored(effect.job_id, effect.expires_millis, stored.ended is None))

    def store_wanted(self, effect: ef.StoreWanted, *, is_away: bool) -> None:
        job_id = effect.job_id
        stored = self.store[job_id]
        if is_away:
            self.post(ev.CancelFailed(job_id, UnavailableError("away")))
            return
        if stored.ended is None:
            stored.wanted, stored.reason = True, effect.reason
            stored.move_to = (Incarnation(""), 0)
        self.post(ev.WantedStored(job_id, stored.ended is None, effect.reason))

    def store_move_wish(self, effect: ef.StoreMoveWish, *, is_away: bool) -> None:
        stored = self.store[effect.job_id]
        if is_away:
            self.post(ev.MoveWishFailed(effect.job_id, UnavailableError("away")))
            return
        if stored.ended is None:
            assert not stored.wanted, "one record: a move must not take a cancel back"
            stored.move_to = (effect.target, effect.epoch)
        self.post(ev.MoveWishStored(effect.job_id, stored.ended is None))

    def store_end(self, effect: ef.StoreEnd, *, is_away: bool) -> None:
        job_id, summary = effect.source.job_id, effect.summary
        stored = self.store[job_id]
        if is_away:
            self.post(ev.EndFailed(job_id, UnavailableError("away")))
            return
        epoch = stored.owner.epoch if stored.owner else 0
        if stored.ended is not None or epoch != effect.previous_epoch:
            self.post(ev.EndStored(job_id, None))
            return
        assert effect.status is JobStatus.CANCELED or effect.reason
        stored.ended = changed(summary, status=effect.status, sequence=summary.sequence + 1)
        self.post(ev.EndStored(job_id, stored.ended))

    @rule()
    def clean(self) -> None:
        jobs = self.registry.dirty(2)
        for job_id in jobs:
            assert self.store[job_id].ended is not None, "R3: shown as ended only with a result"
            self.store[job_id].is_cleaned = True
        if jobs:
            self.post(ev.JobsCleaned(tuple(jobs)))

    # --- processes ----------------------------------------------------------------------------------------

    @rule()
    def new_process(self) -> None:
        if len(self.processes) < 3:
            self.names += 1
            process = Process(Incarnation(f"{self.names:032x}"))
            self.processes[process.incarnation] = process
            self.post(process_known(process.incarnation, f"h:{self.names}", CAPACITY))
            self.connect(process)

    def connect(self, process: Process) -> None:
        process.is_connected = True
        process.inbox.clear()
        self.post(process_registered(process.incarnation, "h:1", CAPACITY, "v", is_draining=process.is_draining))
        self.push(process)
        self.heartbeat(process)

    def pick(self, data: st.DataObject) -> Process | None:
        return self.processes[data.draw(st.sampled_from(sorted(self.processes)))] if self.processes else None

    @rule(data=st.data(), stage=STAGES)
    def lose_process(self, data: st.DataObject, stage: int) -> None:
        process = self.pick(data)
        if process is not None:
            del self.processes[process.incarnation]
            self.post(ev.ProcessDisconnected(process.incarnation))
            self.post(ev.ProcessLost(process.incarnation))
            self.go_on(stage)

    @rule(data=st.data(), stage=STAGES)
    def lose_registration(self, data: st.DataObject, stage: int) -> None:
        """Its lease has lapsed, and it comes back as the one that it was."""
        process = self.pick(data)
        if process is not None:
            process.is_connected = False
            process.inbox.clear()
            self.post(ev.ProcessDisconnected(process.incarnation))
            self.post(ev.ProcessLost(process.incarnation))
            self.go_on(stage)
            self.post(process_known(process.incarnation, "h:1", CAPACITY))

    @rule(data=st.data())
    def new_stream(self, data: st.DataObject) -> None:
        process = self.pick(data)
        if process is not None:
            process.is_connected = False
            process.inbox.clear()
            self.post(ev.ProcessDisconnected(process.incarnation))
            self.connect(process)

    @rule(data=st.data())
    def read_order(self, data: st.DataObject) -> None:
        process = self.pick(data)
        if process is not None and process.inbox:
            self.obey(process, process.inbox.pop(0))

    @rule(data=st.data(), is_permanent=st.booleans())
    def refuse_order(self, data: st.DataObject, is_permanent: bool) -> None:
        process = self.pick(data)
        if process is not None and process.inbox and isinstance(process.inbox[0], AssignJob):
            order = process.inbox.pop(0)
            assert isinstance(order, AssignJob)
            process.assignment = max(process.assignment, order.epoch)
            if order.job_id not in process.jobs:
                self.refuse(process, order.job_id, order.epoch, is_permanent=is_permanent)

    def refuse(self, process: Process, job_id: JobId, epoch: int, *, is_permanent: bool = True) -> None:
        if is_permanent:
            process.refused.add((job_id, epoch))
        if process.is_connected:
            self.post(assignment_refused(process.incarnation, job_id, epoch, "no", is_permanent=is_permanent))

    @rule(data=st.data())
    def break_some(self, data: st.DataObject) -> None:
        """A JobMaster of ours breaks: the process lives and never runs that job again."""
        process = self.pick(data)
        running = (
            [] if process is None else [one for one in process.jobs if not process.jobs[one][1].is_globally_terminal]
        )
        if process is not None and running:
            job_id = data.draw(st.sampled_from(sorted(running)))
            epoch, _ = process.jobs.pop(job_id)
            self.refuse(process, job_id, epoch)

    def obey(self, process: Process, order: Order) -> None:
        match order:
            case AssignJob(job_id=job_id, epoch=epoch, is_fresh=is_fresh):
                process.assignment = max(process.assignment, epoch)
                if (job_id, epoch) in process.refused:
                    self.refuse(process, job_id, epoch)
                    return
                held = process.jobs.get(job_id)
                if held is None and process.is_draining:
                    self.refuse(process, job_id, epoch, is_permanent=False)
                    return
                if held is None or held[0] < epoch:
                    begun = self.begun.setdefault(job_id, epoch)
                    assert not is_fresh or begun == epoch, "what an earlier owner has begun is taken over (R6)"
                    process.jobs[job_id] = (epoch, JobStatus.RUNNING)
                self.push(process)
            case ef.SendCancel(job_id=job_id):
                self.finish(process, job_id, JobStatus.CANCELED)
                self.push(process)
            case ef.SendDrain(is_draining=is_draining):
                process.is_draining = is_draining
                self.heartbeat(process)
            case ef.SendDrop(entries=entries):
                for entry in entries:
                    held = process.jobs.get(entry.job_id)
                    if held is not None and held[0] == entry.epoch:
                        del process.jobs[entry.job_id]

    @rule(data=st.data(), is_pushed=st.booleans())
    def finish_some(self, data: st.DataObject, is_pushed: bool) -> None:
        process = self.pick(data)
        if process is not None and process.jobs:
            self.finish(process, data.draw(st.sampled_from(sorted(process.jobs))), JobStatus.FINISHED)
            if is_pushed:
                self.push(process)

    def finish(self, process: Process, job_id: JobId, status: JobStatus) -> None:
        """The owner's result transaction, guarded by its epoch."""
        if job_id not in process.jobs or process.jobs[job_id][1].is_globally_terminal:
            return
        epoch = process.jobs[job_id][0]
        stored = self.store[job_id]
        if stored.ended is not None or stored.owner is None or stored.owner.epoch != epoch:
            del process.jobs[job_id]
            return
        summary = changed(initial_summary(stored.source), status=status, epoch=epoch, sequence=9, end_millis=2000)
        stored.ended = summary
        process.jobs[job_id] = (epoch, status)

    def push(self, process: Process) -> None:
        if not process.is_connected:
            return
        summaries = []
        for job_id, (epoch, status) in process.jobs.items():
            ended = self.store[job_id].ended if status.is_globally_terminal else None
            shown = changed(initial_summary(self.store[job_id].source), status=status, epoch=epoch, sequence=1)
            summaries.append(ended or shown)
        self.post(ev.SummariesReceived(tuple(summaries)))

    def heartbeat(self, process: Process) -> None:
        if process.is_connected:
            held = tuple(JobInventoryEntry(job_id, *state) for job_id, state in process.jobs.items())
            self.post(
                inventory_received(
                    process.incarnation, held, process.assignment, 0.0, 0, is_draining=process.is_draining
                )
            )

    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        process = self.pick(data)
        if process is not None:
            self.heartbeat(process)

    @rule(millis=st.integers(1, 100_000))
    def tick(self, millis: int) -> None:
        self.now += millis
        self.post(ev.Ticked(self.now, self.now / 1000))

    @rule(data=st.data(), seconds=st.integers(1, 6), stage=STAGES)
    def go_away(self, data: st.DataObject, seconds: int, stage: int) -> None:
        """A client promises to be back in a second, and time goes on."""
        self.promise(data, 1, stage)
        for _ in range(seconds):
            self.tick(1000)

    # --- what holds always --------------------------------------------------------------------------------

    @invariant()
    def a_job_counts_at_one_process(self) -> None:
        counted = [job_id for process in self.registry.processes for job_id in process.jobs]
        assert len(counted) == len(set(counted))
        for entry in self.registry._jobs:
            if entry.phase.state is JobPhase.ASSIGNED:
                assert entry.job_id in counted or entry.owner not in self.registry.processes
            if entry.phase.state in {JobPhase.WAITING, JobPhase.TERMINAL}:
                assert entry.job_id not in counted

    @invariant()
    def the_limit_holds(self) -> None:
        assert len(self.registry._jobs) <= 2

    @invariant()
    def the_lists_show_every_job_as_it_is(self) -> None:
        entries = [one for one in self.registry._jobs if one.phase.state is not JobPhase.SUBMITTING]
        shown = {one.job_id: one.summary for one in entries}
        for finished in self.registry.finished:
            shown.setdefault(finished.summary.job_id, finished.summary)
        listed = self.registry.shown.newest_first()
        assert {summary.job_id: summary for summary in listed} == shown
        starts = [summary.start_millis for summary in listed]
        assert starts == sorted(starts, reverse=True)
        counts = {status: count for status, count in self.registry.shown.counts().items() if count}
        assert counts == Counter(summary.status for summary in listed)

    @invariant()
    def ended_is_what_is_stored(self) -> None:
        for summary in self.registry.shown.newest_first():
            if summary.status.is_globally_terminal:
                stored = self.store[summary.job_id].ended
                assert stored is not None
                assert stored.status is summary.status

    def teardown(self) -> None:
        """Heal everything: all that was asked is answered and every job has a living owner that runs it, or waits."""
        for _ in range(12):
            if len(self.processes) < 3:
                self.new_process()
            for process in self.processes.values():
                process.is_draining = False
                if not process.is_connected:
                    self.connect(process)
            while self.pending:
                self.execute(self.pending.pop(0), is_away=False)
            for process in list(self.processes.values()):
                while process.inbox:
                    self.obey(process, process.inbox.pop(0))
                self.heartbeat(process)
            self.post(ev.Ticked(self.now, self.now / 1000))
        assert self.asked == self.answered
        for entry in self.registry._jobs:
            assert entry.phase.state in {JobPhase.ASSIGNED, JobPhase.TERMINAL}, entry
            if entry.phase.state is JobPhase.ASSIGNED:
                assert self.processes[entry.owner].jobs[entry.job_id][0] == entry.epoch
                assert not entry.wants_cancel, "a wish that is stored reaches the owner"


TestJobRegistryModel = JobRegistryMachine.TestCase
TestJobRegistryModel.settings = settings(
    max_examples=300, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
