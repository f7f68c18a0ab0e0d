"""Random graphs, random outcomes, random orders: every job ends as it must, and no promise is broken on the way."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.common.exchange import ExchangeMode
from runtime.common.ids import AllocationId, ExecutionAttemptId, PartitionId, VertexId
from runtime.common.restart_strategies import USER_FAILURES
from runtime.common.states import ExecutionState, JobStatus
from runtime.gateways.job_master import EndJob, ReleasePartitions, SlotsDraining, TaskProgresses
from runtime.gateways.task import FailureInfo, Fault, OutputDirectory, TaskExecutionReport, TaskProgress
from runtime.jobgraph.graph import JobEdge, JobGraph, JobVertex, OperatorKind
from runtime.jobgraph.restart_strategy import (
    NO_RESTART,
    ExponentialDelayRestartStrategy,
    FailureRateRestartStrategy,
    FixedDelayRestartStrategy,
)
from runtime.scheduler.core import events as ev
from runtime.scheduler.core.effects import WriteEvents
from runtime.scheduler.core.failover.settings import FailoverSettings
from runtime.scheduler.core.job_events import (
    AttemptFinished,
    BatchCommitted,
    FailureHandled,
    PartitionsLost,
    SubtasksReset,
)
from runtime.scheduler.core.slots.slot_pool import AHEAD_MAX
from tests.kit.control_plane.job_graphs import edge, graph, vertex
from tests.kit.control_plane.job_master_driver import (
    JOB_ID,
    UNCONFIRMED_WAIT,
    JobMasterDriver,
    durable_view,
    location,
    unreadable,
    user_failure,
)
from tests.kit.control_plane.streaming_jobs import query, told

TASK_MANAGERS = 3
STEPS_MAX = 60
ALIVE = (JobStatus.CREATED, JobStatus.RUNNING, JobStatus.RESTARTING)


@st.composite
def job_graphs(draw: st.DrawFn) -> JobGraph:
    """A DAG of up to six vertices with all exchange modes and two slot sharing groups."""
    vertices: list[JobVertex] = []
    edges: list[JobEdge] = []
    for number in range(draw(st.integers(1, 6))):
        parallelism = draw(st.integers(1, 5))
        group = draw(st.sampled_from(["default", "default", "other"]))
        exclusive = draw(st.sampled_from([None, None, None, True, False]))
        name = f"v{number}"
        vertices.append(
            vertex(name, OperatorKind.APPLY, parallelism=parallelism, slot_sharing_group=group, exclusive=exclusive)
        )
        producers = draw(st.lists(st.integers(0, number - 1), max_size=2, unique=True)) if number else []
        for input_index, producer in enumerate(producers):
            modes = [ExchangeMode.HASH, ExchangeMode.REBALANCE, ExchangeMode.BROADCAST]
            if vertices[producer].parallelism == parallelism:
                modes.append(ExchangeMode.FORWARD)
            if parallelism == 1:
                modes.append(ExchangeMode.GATHER)
            mode = draw(st.sampled_from(modes))
            edges.append(edge(f"v{producer}", name, mode, input_index=input_index))
    queries = [query(f"q{number}", parallelism=2, ends=True) for number in range(draw(st.sampled_from([0, 0, 1])))]
    return graph(*vertices, *queries, edges=tuple(edges))


class Scenario:
    """One job with its checks: what a person with pencil and paper would demand of every step."""

    def __init__(self, job_graph: JobGraph, data: st.DataObject, failover: FailoverSettings) -> None:
        self.data = data
        self.graph = job_graph
        self.is_exclusive = {one.id: one.is_exclusive(job_graph) for one in job_graph.vertices}
        self.job = JobMasterDriver(job_graph, failover=failover)
        self.replaced: set[ExecutionAttemptId] = set()
        self.handled: set[ExecutionAttemptId] = set()
        self.closed: set[AllocationId] = set()
        self.unreadable: set[PartitionId] = set()
        self.dead: set[int] = set()
        """TaskManagers that count as lost without a proof that they are dead."""
        self.standing: dict[tuple[VertexId, int], ExecutionAttemptId] = {}
        self.trouble = data.draw(st.sampled_from([2, 9, 30]))
        self.accepted: set[ExecutionAttemptId] = set()
        self.finished: set[ExecutionAttemptId] = set()
        self.released: set[PartitionId] = set()
        self.told: list[TaskExecutionReport] = []
        self.offers = 0
        self.user_failures = failover.user_failures
        self.is_disturbed = False
        self.checked = 0
        self.committed: dict[tuple[VertexId, int], int] = {}
        """The last batch of each subtask of a query that its owner has heard of, or that is durable."""
        self.batches: dict[tuple[VertexId, int], int] = {}
        """The last one that was ever told."""

    def step(self) -> None:
        """Let one of the things happen that can happen now."""
        actions = [self.offer, self.tick]
        if self.job.restarts:
            actions += [self.restart_all, self.restart_timer]
        if self.job.running():
            actions += [self.finish, self.finish, self.run, self.fail_rarely, self.lose_rarely, self.misread_rarely]
        if any(self.job.deployed[one].task.stream_uid for one in self.job.running()):
            actions += [self.commit] * 2
        if self.told:
            actions.append(self.tell_again)
        if self.job.pending_events is not None:
            actions += [self.make_durable] * 3
        if self.job.commits:
            actions.append(self.move_outputs)
        actions += [self.cancel_rarely, self.change_owner_rarely, self.cut_off_rarely, self.close_rarely]
        actions.append(self.go_silent_rarely)
        if self.job.cut:
            actions += [self.reconnect] * 2
        if self.job.fences:
            actions += [self.job.write_fences] * 2
        if self.job.written_fences:
            actions += [self.obey_fences, self.job.wait_out_fences]
        self.data.draw(st.sampled_from(actions))()
        self.check()

    def drain(self) -> None:
        """Nothing goes wrong any more: the job has to end by itself."""
        self.reconnect()
        alive = frozenset(location(tm).incarnation for tm in range(1, TASK_MANAGERS + 1) if tm not in self.dead)
        self.job.handle(ev.TaskManagersRegistered(alive, self.job.at()))
        self.check()
        for _ in range(400):
            self.job.write_fences()
            self.obey_fences()
            for action in (self.make_durable, self.end_all, self.make_durable, self.restart_all, self.make_durable):
                action()
                self.check()
                if self.job.has_result():
                    return
            self.move_outputs()
            self.offer()
            self.check()
        raise AssertionError(f"the job does not end: {self.job.core.summary()}")

    def end_all(self) -> None:
        for attempt_id in self.job.running():
            is_cancelled = attempt_id in self.job.cancelled
            self.report(attempt_id, ExecutionState.CANCELED if is_cancelled else ExecutionState.FINISHED)
            self.check()

    # --- things that happen -------------------------------------------------------------------------------

    def offer(self) -> None:
        self.offers += 1
        count = self.data.draw(st.integers(1, 3))
        numbers = range(self.offers * 10, self.offers * 10 + count)
        tm = self.data.draw(st.integers(1, TASK_MANAGERS))
        self.dead.discard(tm)
        if location(tm).incarnation in self.job.cut:
            self.job.reconnect(tm)  # offers come by a stream, and each one begins with a census
        self.job.offer(*numbers, tm=tm)

    def tick(self) -> None:
        self.job.now += self.data.draw(st.sampled_from([0.0001, 0.01, 10.0]))
        self.job.handle(ev.Ticked(self.job.at()))

    def run(self) -> None:
        self.job.report(self.any_running(), ExecutionState.RUNNING)

    def finish(self) -> None:
        self.job.now += self.data.draw(st.sampled_from([0.0001, 0.01, 10.0]))
        attempt_id = self.any_running()
        is_cancelled = attempt_id in self.job.cancelled
        self.report(attempt_id, ExecutionState.CANCELED if is_cancelled else ExecutionState.FINISHED)

    def commit(self) -> None:
        """A query has committed a batch, and tells it."""
        queries = [one for one in self.job.running() if self.job.deployed[one].task.stream_uid]
        attempt_id = self.data.draw(st.sampled_from(queries))
        place = self.job.whereabouts(attempt_id)
        if place.incarnation in self.job.cut:
            return
        subtask, batch = (attempt_id.vertex_id, attempt_id.subtask_index), self.data.draw(st.integers(0, 9))
        self.batches[subtask] = max(batch, self.batches.get(subtask, batch))
        if self.job.core.graph.execution(attempt_id) is not None:  # else a new owner that waits for others
            self.committed[subtask] = max(batch, self.committed.get(subtask, batch))
        progress = TaskProgress(attempt_id, 0.0, "", 0, 0, 0, 0, streams=(told(committed_batch=batch),))
        self.job.handle(ev.TaskManagerSpoke(place, TaskProgresses(JOB_ID, self.job.epoch, (progress,)), self.job.at()))

    def fail_rarely(self) -> None:
        if self.data.draw(st.integers(0, self.trouble)) == 0:
            self.is_disturbed = True
            fault = self.data.draw(st.sampled_from([None, *Fault]))
            failure = replace(user_failure(), is_recoverable=self.data.draw(st.integers(0, 4)) > 0, fault=fault)
            attempt_id = self.any_running()
            self.job.report(attempt_id, ExecutionState.FAILED, failure=failure)
            if self.job.whereabouts(attempt_id).incarnation not in self.job.cut:
                self.check_user_failure(attempt_id, failure)

    def check_user_failure(self, attempt_id: ExecutionAttemptId, failure: FailureInfo) -> None:
        """R36: user code that has failed in an exclusive task is never begun again unless the cluster says so.

        Its owner has just heard of it. Of what had counted as lost: as long as no other attempt has begun.
        """
        if self.job.status() not in ALIVE:
            return
        current = self.job.core.graph.vertices[attempt_id.vertex_id].executions[attempt_id.subtask_index]
        is_alone = (
            self.is_exclusive[attempt_id.vertex_id]
            and not self.job.core.graph.vertices[attempt_id.vertex_id].vertex.runs_queries
        )  # a query goes on behind its last batch
        is_over = is_alone and self.user_failures == "final-when-exclusive"
        is_over = (is_over or self.user_failures == "final") and failure.at_fault is Fault.USER
        has_begun = current.attempt_id != attempt_id and current.location is not None
        assert not is_over or failure.lost_partitions or has_begun, self.job.status()

    def misread_rarely(self) -> None:
        heard = [one for one in self.job.running() if self.job.whereabouts(one).incarnation not in self.job.cut]
        readers = [one for one in heard if any(gate.partitions for gate in self.job.deployed[one].inputs)]
        if readers and self.data.draw(st.integers(0, self.trouble // 2)) == 0:
            self.is_disturbed = True
            attempt_id = self.data.draw(st.sampled_from(readers))
            read = [one.partition_id for gate in self.job.deployed[attempt_id].inputs for one in gate.partitions]
            lost = self.data.draw(st.lists(st.sampled_from(read), min_size=1, max_size=2, unique=True))
            self.job.report(attempt_id, ExecutionState.FAILED, failure=unreadable(*lost))
            # A new owner that is still waiting for others forgets it with the TaskManager that has told it.
            if attempt_id not in self.job.cancelled and self.job.status() in ALIVE:
                self.unreadable.update(lost)

    def restart_all(self) -> None:
        self.job.restart_due()

    def restart_timer(self) -> None:
        self.job.now = max(self.job.now, self.job.restarts.pop(0))
        self.job.handle(ev.RestartDue(self.job.at()))

    def lose_rarely(self) -> None:
        if self.data.draw(st.integers(0, self.trouble)) == 0:
            self.is_disturbed = True
            tm, is_reaped = self.data.draw(st.integers(1, TASK_MANAGERS)), self.data.draw(st.booleans())
            self.job.lose_task_manager(tm, is_reaped=is_reaped)
            if not is_reaped:
                self.dead.add(tm)

    def close_rarely(self) -> None:
        """A TaskManager drains. What comes of it for tasks is a failure that counts for nothing, as others do."""
        if self.data.draw(st.integers(0, self.trouble)) == 0:
            drained = location(self.data.draw(st.integers(1, TASK_MANAGERS)))
            closed = tuple(sorted(one for one in self.job.slots if self.job.places[one] == drained))
            self.closed.update(closed)
            message = SlotsDraining(JOB_ID, self.job.epoch, closed, "draining")
            self.job.handle(ev.TaskManagerSpoke(drained, message, self.job.at()))

    def cut_off_rarely(self) -> None:  # R11
        if self.data.draw(st.integers(0, self.trouble)) == 0:
            self.job.cut_off(self.data.draw(st.integers(1, TASK_MANAGERS)))

    def go_silent_rarely(self) -> None:  # R14
        if self.data.draw(st.integers(0, self.trouble)) == 0:
            self.is_disturbed = True
            self.job.go_silent(self.data.draw(st.integers(1, TASK_MANAGERS)))

    def obey_fences(self) -> None:
        for incarnation in list(self.job.written_fences):
            self.job.obey_fence(incarnation)
            self.check()

    def reconnect(self) -> None:
        for tm in range(1, TASK_MANAGERS + 1):
            if location(tm).incarnation in self.job.cut:
                kept = [one for place, one in self.job.unacknowledged.values() if place == location(tm)]
                self.job.reconnect(tm)
                for report in kept:
                    if report.failure is not None:
                        self.check_user_failure(report.attempt_id, report.failure)

    def cancel_rarely(self) -> None:
        if self.data.draw(st.integers(0, 19)) == 0:
            self.is_disturbed = True
            self.job.handle(ev.CancelWanted(self.job.at()))

    def tell_again(self) -> None:  # R11
        self.job.reports(self.data.draw(st.sampled_from(self.told)))

    def change_owner_rarely(self) -> None:  # R6
        if self.data.draw(st.integers(0, self.trouble)) > 0:
            return
        self.is_disturbed = True
        if self.job.pending_events is not None and self.data.draw(st.booleans()):
            self.note_durable(self.job.pending_events)
            self.job.events_applied()
        durable = [event for batch in self.job.durable for event in batch]
        batches = [event for event in durable if isinstance(event, BatchCommitted)]
        self.committed = {(one.vertex_id, one.subtask_index): one.batch for one in batches}
        lost = [event.partitions for event in durable if isinstance(event, PartitionsLost)]
        self.unreadable &= {partition for partitions in lost for partition in partitions}
        silent = self.data.draw(st.sets(st.integers(1, TASK_MANAGERS), max_size=1))
        unheard = {location(tm) for tm in silent}
        heard = {one for one, (place, _) in self.job.unacknowledged.items() if place not in unheard}
        known = self.accepted | heard
        self.standing = {subtask: one for subtask, one in self.standing.items() if one in known}
        self.closed.clear()  # the next owner is told when its streams are there
        self.dead.clear()
        self.job.change_owner(range(1, TASK_MANAGERS + 1), silent)

    def make_durable(self) -> None:
        if self.job.pending_events is None:
            return
        self.note_durable(self.job.pending_events)
        self.job.events_durable()
        if self.job.core.status in ALIVE:
            self.check_recovery()

    def note_durable(self, written: WriteEvents) -> None:
        resets = [event for event in written.events if isinstance(event, SubtasksReset)]
        self.check_readers({(event.vertex_id, index) for event in resets for index in event.subtasks})
        for event in written.events:
            if isinstance(event, AttemptFinished):
                self.accepted.add(event.attempt_id)
            elif isinstance(event, SubtasksReset):
                self.replace_subtasks(event)
            elif isinstance(event, FailureHandled):
                assert not self.handled & set(event.attempts), "a failure is handled twice"
                self.handled.update(event.attempts)

    def replace_subtasks(self, event: SubtasksReset) -> None:
        for index in event.subtasks:
            if self.is_exclusive[event.vertex_id]:
                assert (event.vertex_id, index) not in self.standing, "R17: a finished exclusive subtask is reset"
            self.replaced |= {
                one for one in self.accepted if one.vertex_id == event.vertex_id and one.subtask_index == index
            }
        self.accepted -= self.replaced

    def check_readers(self, reset: set[tuple[VertexId, int]]) -> None:
        """R17: whoever has read what is written anew reads again, unless it stands."""
        for producer in self.accepted:
            if (producer.vertex_id, producer.subtask_index) not in reset:
                continue
            targets = {edge.target: edge.mode for edge in self.graph.out_edges(producer.vertex_id)}
            for reader in self.accepted:
                mode = targets.get(reader.vertex_id)
                is_reader = mode is not None and (
                    mode is not ExchangeMode.FORWARD or reader.subtask_index == producer.subtask_index
                )
                has_outputs = not self.graph.out_edges(reader.vertex_id)  # which are moved once, then it stands
                if is_reader and not has_outputs and not self.is_exclusive[reader.vertex_id]:
                    assert (reader.vertex_id, reader.subtask_index) in reset

    def check_recovery(self) -> None:  # R10
        recovered = self.job.recovered()
        recovered.graph.check_invariants()
        assert durable_view(recovered.graph) == durable_view(self.job.core.graph)
        if self.job.pending_events is None:
            assert recovered.failures.archived() == self.job.core.archived().exceptions

    def move_outputs(self) -> None:
        for _, commit in self.job.commits:
            self.job.moved(commit.order)

    def report(self, attempt_id: ExecutionAttemptId, state: ExecutionState) -> None:
        outputs: tuple[OutputDirectory, ...] = ()
        if state is ExecutionState.FINISHED:
            self.finished.add(attempt_id)
            if not self.job.deployed[attempt_id].outputs and self.data.draw(st.booleans()):
                outputs = (OutputDirectory("base", str(attempt_id)),)
        report = self.job.make_report(attempt_id, state, outputs=outputs)
        self.told.append(report)
        self.job.reports(report)

    def any_running(self) -> ExecutionAttemptId:
        return self.data.draw(st.sampled_from(self.job.running()))

    # --- what must hold -----------------------------------------------------------------------------------

    def check(self) -> None:
        live = [(one.vertex_id, one.subtask_index) for one in self.job.running() if self.is_exclusive[one.vertex_id]]
        assert len(live) == len(set(live)), "two live attempts of an exclusive subtask"
        for execution in self.job.core.graph.executions():
            one = execution.attempt_id
            if execution.state is ExecutionState.FINISHED and self.is_exclusive[one.vertex_id]:
                self.standing[one.vertex_id, one.subtask_index] = one
        for held in self.job.in_slot.values():
            attempts = [one for one in held if one not in self.job.cancelled]  # those are on their way out
            assert len(attempts) <= 1 + AHEAD_MAX
            assert len({attempt_id.vertex_id for attempt_id in attempts}) <= 1
        for attempt_id, task in list(self.job.deployed.items())[self.checked :]:
            self.checked += 1
            assert task.allocation_id not in self.closed
            self.check_inputs(attempt_id)
        self.check_releases()
        shown = self.job.core.summary()
        assert not shown.status.is_globally_terminal  # R3: the result is not durable yet
        if shown.status is not JobStatus.INITIALIZING:  # a new owner that waits for a fence
            assert sum(getattr(shown.tasks, name) for name in shown.tasks.__slots__) == self.subtasks()

    def check_inputs(self, attempt_id: ExecutionAttemptId) -> None:  # R10
        task = self.job.deployed[attempt_id]
        subtask = (attempt_id.vertex_id, attempt_id.subtask_index)
        required = -1 if task.committed_batch is None else task.committed_batch
        assert required >= self.committed.get(subtask, -1), "R59: a query would begin anew without a word"
        assert required <= self.batches.get(subtask, -1), "R59: what no query has told is demanded"
        assert self.standing.get((attempt_id.vertex_id, attempt_id.subtask_index), attempt_id) == attempt_id, "R17"
        edges = self.graph.in_edges(attempt_id.vertex_id)
        assert len(task.inputs) == len(edges)
        for gate, graph_edge in zip(task.inputs, edges, strict=True):
            parallelism = self.graph.vertex(graph_edge.source).parallelism
            read = [partition.partition_id.producer for partition in gate.partitions]
            expected = [attempt_id.subtask_index] if gate.mode is ExchangeMode.FORWARD else list(range(parallelism))
            assert [producer.subtask_index for producer in read] == expected
            assert set(read) <= self.accepted
            assert not {partition.partition_id for partition in gate.partitions} & (self.released | self.unreadable)

    def check_releases(self) -> None:
        for message in self.job.messages(ReleasePartitions):
            for partition in message.partitions:
                if partition in self.released:
                    continue
                self.released.add(partition)
                if partition.producer in self.replaced or partition.producer not in self.accepted:
                    continue
                graph_edge = self.graph.out_edges(partition.producer.vertex_id)[partition.output]
                consumers = [one for one in self.accepted if one.vertex_id == graph_edge.target]
                is_forward = graph_edge.mode is ExchangeMode.FORWARD
                needed = 1 if is_forward else self.graph.vertex(graph_edge.target).parallelism
                index = partition.producer.subtask_index
                done = [one for one in consumers if not is_forward or one.subtask_index == index]
                assert len(done) == needed, "released before its last consumer was accepted"

    def subtasks(self) -> int:
        return sum(one.parallelism for one in self.graph.vertices)

    def check_end(self) -> None:
        job = self.job
        result = job.pending_result
        assert result is not None
        assert not job.running() or job.core.status is not JobStatus.RUNNING
        job.result_durable()
        assert job.core.status is result.status
        assert len(job.ended) == 1
        assert job.ended[0] == job.core.summary() == job.summaries[-1]
        declared = job.requirements[-1].requirements if job.requirements else ()
        assert declared == ()
        told_end = {
            incarnation for incarnation, messages in job.sent if any(isinstance(one, EndJob) for one in messages)
        }
        assert told_end <= {location(number).incarnation for number in range(1, TASK_MANAGERS + 1)}
        if not self.is_disturbed:
            assert result.status is JobStatus.FINISHED
            assert len(self.finished) == self.subtasks()
        states = {subtask.current.state for one in result.archived.vertices for subtask in one.subtasks}
        assert all(state.is_terminal for state in states)
        if result.status is JobStatus.FINISHED:
            assert states == {ExecutionState.FINISHED}


STRATEGIES = st.sampled_from(
    [
        NO_RESTART,
        FixedDelayRestartStrategy(attempts=3, delay_seconds=0.0),
        FixedDelayRestartStrategy(attempts=20),
        FailureRateRestartStrategy(max_failures_per_interval=3),
        ExponentialDelayRestartStrategy(),
    ]
)
FAILOVERS = st.builds(
    FailoverSettings,
    restart_strategy=STRATEGIES,
    user_failures=st.sampled_from(USER_FAILURES),
    is_full=st.booleans(),
    unconfirmed_wait=st.sampled_from([UNCONFIRMED_WAIT, UNCONFIRMED_WAIT, None]),
)


@given(job_graph=job_graphs(), data=st.data(), failover=FAILOVERS)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_every_job_ends(job_graph: JobGraph, data: st.DataObject, failover: FailoverSettings) -> None:
    scenario = Scenario(job_graph, data, failover)
    for _ in range(data.draw(st.integers(0, STEPS_MAX))):
        if scenario.job.has_result():
            break
        scenario.step()
    if not scenario.job.has_result():
        scenario.drain()
    scenario.check_end()
