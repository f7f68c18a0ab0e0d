"""The scheduler's core alone: no loop, no store, no network."""

from __future__ import annotations

import time
import tracemalloc
from collections import deque

from runtime.common.exchange import ExchangeMode
from runtime.common.ids import AllocationId, Incarnation, JobId, PartitionId
from runtime.common.states import ExecutionState
from runtime.executiongraph.core.execution import TaskManagerLocation
from runtime.gateways.job_master import DeployTasks, OfferSlots, SlotOffer, TaskReports
from runtime.gateways.task import (
    PartitionDescriptor,
    PartitionFile,
    PartitionKind,
    TaskDeploymentDescriptor,
    TaskExecutionReport,
    TaskMetrics,
)
from runtime.highavailability.record_codec import encode_record
from runtime.jobgraph.graph import OperatorKind
from runtime.jobgraph.parsing import parse_job_graph
from runtime.jobmaster.core.job_master_core import JobMasterCore
from runtime.scheduler.core import events as ev
from runtime.scheduler.core.effects import Effect, EndRunner, SendMessages, WriteEvents, WriteResult
from runtime.scheduler.core.job_events import encode_events
from tests.benchmarks.measure import Report, Target, percentile
from tests.kit.control_plane.job_graphs import edge, graph, lone, source, vertex

JOB_ID = JobId("1" * 32)
LOCATION = TaskManagerLocation(Incarnation("c" * 32), "tm-1", "127.0.0.1:1")
EPOCH = 7
METRICS = TaskMetrics()


class Cluster:
    """Slots that finish every task at once, a store that is durable at once."""

    def __init__(self, data: bytes, *, reports_per_message: int) -> None:
        self.core = JobMasterCore(JOB_ID, EPOCH, digest="d" * 64, submit_millis=0)
        self.waiting: deque[TaskDeploymentDescriptor] = deque()
        self.todo: deque[ev.Event] = deque()
        self.reports_per_message = reports_per_message
        self.events = 0
        self.letters = 0
        self.data = data

    def at(self) -> ev.Moment:
        return ev.Moment(self.events * 1e-4, self.events)

    def load(self) -> None:
        self.handle(ev.JobGraphLoaded(parse_job_graph(self.data), self.at()))

    def offer(self, slots: int) -> None:
        offers = tuple(SlotOffer(AllocationId(f"{number:032x}"), number) for number in range(slots))
        self.handle(ev.TaskManagerSpoke(LOCATION, OfferSlots(JOB_ID, EPOCH, offers), self.at()))

    def run(self, slots: int) -> None:
        self.load()
        while not self.core.is_over:
            if not self.waiting and not self.todo:
                self.offer(slots)
            if self.waiting:
                count = min(len(self.waiting), self.reports_per_message)
                reports = tuple(report for _ in range(count) for report in finished(self.waiting.popleft()))
                self.handle(ev.TaskManagerSpoke(LOCATION, TaskReports(JOB_ID, EPOCH, reports), self.at()))
            while self.todo:
                self.handle(self.todo.popleft())

    def handle(self, event: ev.Event) -> None:
        self.events += 1
        for effect in self.core.handle(event):
            self.execute(effect)

    def execute(self, effect: Effect) -> None:
        match effect:
            case SendMessages(_, messages):
                self.letters += 1
                for message in messages:
                    if isinstance(message, DeployTasks):
                        self.waiting.extend(message.tasks)
            case WriteEvents(number, events):
                encode_events(events)
                self.todo.append(ev.EventsWritten(number, self.at()))
            case WriteResult(_, archived, summary):
                archived.to_json()
                encode_record(summary)
                self.todo.append(ev.ResultWritten(self.at()))
            case EndRunner():
                self.todo.clear()
            case _:
                pass


def finished(task: TaskDeploymentDescriptor) -> tuple[TaskExecutionReport, TaskExecutionReport]:
    """RUNNING and FINISHED of one attempt, with a file per consumer for every edge."""
    partitions = tuple(
        PartitionDescriptor(
            PartitionId(task.attempt_id, spec.output),
            PartitionKind.PARQUET,
            "exchange/1",
            '{"type":"struct","fields":[]}',
            tuple(PartitionFile(f"part-{i}.parquet", 1000, 10, i) for i in range(spec.consumer_parallelism)),
            b"",
        )
        for spec in task.outputs
    )
    return (
        TaskExecutionReport(task.attempt_id, ExecutionState.RUNNING, 0, None, b"", (), (), METRICS),
        TaskExecutionReport(task.attempt_id, ExecutionState.FINISHED, 0, None, b"null", partitions, (), METRICS),
    )


def seconds(cluster: Cluster, slots: int) -> float:
    """CPU time: nothing in here waits, and the machine may be shared."""
    begin = time.process_time()
    cluster.run(slots)
    return time.process_time() - begin


def no_op(report: Report, jobs: int) -> None:
    data = lone().canonical_json()
    took = []
    for _ in range(jobs):
        cluster = Cluster(data, reports_per_message=1)
        took.append(seconds(cluster, 1) * 1000)
    report.add_distribution("CPU of a no-op job, all of its events", took)


def wide(report: Report, parallelism: int, reports_per_message: int, rounds: int) -> None:
    data = graph(vertex("wide", OperatorKind.FUNCTION, parallelism=parallelism, max_parallelism=parallelism))
    took, letters = list[float](), 0
    for _ in range(rounds):
        cluster = Cluster(data.canonical_json(), reports_per_message=reports_per_message)
        took.append(1000 * seconds(cluster, 2))
        letters = cluster.letters
    name = f"P = {parallelism}, 2 slots, {reports_per_message} per message"
    rate = 1000 * parallelism / percentile(took, 50)
    report.add(f"subtasks per second, {name}, median", rate, "1/s", Target("1000", "5000"))
    report.add_distribution(f"CPU of the job, {name}", took)
    report.add(f"letters per subtask, {name}", letters / parallelism, "")


def shuffle(report: Report, parallelism: int, rounds: int) -> None:
    data = graph(
        source("read", parallelism=parallelism, max_parallelism=parallelism),
        vertex("use", OperatorKind.SINK, parallelism=parallelism, max_parallelism=parallelism),
        edges=(edge("read", "use", ExchangeMode.HASH),),
    )
    took = [1000 * seconds(Cluster(data.canonical_json(), reports_per_message=4), 2) for _ in range(rounds)]
    name = f"hash {parallelism} x {parallelism}"
    report.add(f"subtasks per second, {name}, median", 2000 * parallelism / percentile(took, 50), "1/s")
    report.add_distribution(f"CPU of the job, {name}", took)


def memory(report: Report, jobs: int) -> None:
    data = lone().canonical_json()
    Cluster(data, reports_per_message=1).run(1)
    tracemalloc.start()
    before = tracemalloc.take_snapshot()
    running = []
    for _ in range(jobs):
        cluster = Cluster(data, reports_per_message=1)
        cluster.load()
        cluster.offer(1)
        running.append(cluster)
    after = tracemalloc.take_snapshot()
    tracemalloc.stop()
    grown = sum(line.size_diff for line in after.compare_to(before, "filename"))
    report.add("memory per running job (core and graph)", grown / jobs / 1024, "KB", Target(goal="64"))


def scheduler_core(*, small: bool) -> Report:
    """All figures."""
    report = Report("scheduler core")
    rounds = 2 if small else 5
    no_op(report, 50 if small else 1000)
    for parallelism, per_message in ((500, 1), (500, 4), (10_000, 4)):
        wide(report, parallelism // 10 if small else parallelism, per_message, rounds)
    shuffle(report, 20 if small else 300, rounds)
    memory(report, 20 if small else 500)
    return report
