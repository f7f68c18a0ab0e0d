"""Which attempt goes into which slot, which offered slots are taken, and which are given back.

Invariants: an attempt is deployed only when every partition it reads is accepted (R10); an idle slot is kept only while
a subtask for it is runnable, or will be as soon as what is FINISHED is durable; the shared description of the job goes
to a TaskManager once, before its first deployment there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from runtime.common.ids import AllocationId, ExecutionAttemptId, Incarnation, PartitionId, VertexId
from runtime.common.states import ExecutionState
from runtime.executiongraph.core.execution import Execution, TaskManagerLocation
from runtime.executiongraph.core.graph import ExecutionGraph, ExecutionJobVertex
from runtime.gateways.job_master import SlotOffer
from runtime.gateways.resource_manager import ResourceRequirement
from runtime.gateways.task import PartitionDescriptor, ResourceProfile, TaskDeploymentDescriptor
from runtime.scheduler.core.events import Moment
from runtime.scheduler.core.slots.blocklist import Blocklist
from runtime.scheduler.core.slots.demand import Demand
from runtime.scheduler.core.slots.deployment import DeploymentFactory
from runtime.scheduler.core.slots.slot_pool import ActiveSlot, SlotKind, SlotPool
from runtime.scheduler.core.takeover.adoption import Adoption
from runtime.scheduler.core.task_managers.fencing import Fences
from runtime.scheduler.core.task_managers.outbox import Outbox

ON_ITS_WAY = frozenset({ExecutionState.DEPLOYING, ExecutionState.INITIALIZING, ExecutionState.RUNNING})
_NEVER_DEPLOYED = frozenset({ExecutionState.CREATED, ExecutionState.SCHEDULED})


class Placement:
    """Slots and subtasks of one job brought together.

    `met`: TaskManagers that have had a slot of the job. `task_managers`: those that have the shared description of the
    job. `absent`: those whose streams have ended; `lost`: those that count as lost; both until their next census.
    `blocked`: those on which tasks were slow (R67).
    """

    __slots__ = (
        "_demand",
        "_deployments",
        "_ending_batches",
        "_fences",
        "_graph",
        "_is_demand_new",
        "_outbox",
        "_released",
        "_touched",
        "absent",
        "blocked",
        "lost",
        "met",
        "pool",
        "task_managers",
    )

    def __init__(self, graph: ExecutionGraph, outbox: Outbox, fences: Fences) -> None:
        self._graph = graph
        self._fences = fences
        self._outbox = outbox
        self._demand = Demand(graph)
        self._deployments = DeploymentFactory(graph)
        self._touched: dict[AllocationId, ActiveSlot] = {}
        self._ending_batches: set[ExecutionAttemptId] = set()
        self._is_demand_new = True
        self.pool = SlotPool()
        self.task_managers: dict[Incarnation, TaskManagerLocation] = {}
        self.met: dict[Incarnation, None] = {}
        self.absent: dict[Incarnation, None] = {}
        self.lost: dict[Incarnation, None] = {}
        self.blocked = Blocklist()
        self._released: dict[Incarnation, list[PartitionId]] = {}

    def is_waiting_for_slots(self, *, keeps_slots: bool) -> bool:
        """True when subtasks wait for slots and none of the job's will be free: it has none, or it `keeps_slots`."""
        return (keeps_slots or self.pool.busy == 0) and self._demand.has_queued

    @property
    def unreachable(self) -> tuple[Incarnation, ...]:
        """TaskManagers whose slots are of no use to the job (R7)."""
        return tuple({**self.lost, **dict.fromkeys(self._fences.closed())})

    def requirements(self, unseen: Mapping[VertexId, int]) -> tuple[ResourceRequirement, ...]:
        """The slots that the job needs now. `unseen`: subtasks that may run on lost TaskManagers need none yet.

        A speculative attempt needs one that is neither where its subtask runs, nor on a blocked TaskManager (R67).
        """
        needed = self._demand.requirements(unseen)
        if not self._demand.speculative:
            return needed
        elsewhere: Counter[tuple[ResourceProfile, tuple[Incarnation, ...]]] = Counter()
        for execution in self._demand.speculative:
            profile = self._demand.kinds[execution.attempt_id.vertex_id].profile
            elsewhere[profile, tuple(sorted({*self._demand.places_of(execution), *self.blocked}))] += 1
        more = (ResourceRequirement(profile, count, without) for (profile, without), count in elsewhere.items())
        return (*needed, *more)

    def speculate(self, execution: Execution, at: Moment) -> None:
        """Start an attempt beside the current one of its subtask, as soon as there is a slot for it (R67)."""
        self._graph.transition(execution, ExecutionState.SCHEDULED, at.millis)
        self._demand.speculate(execution)

    def inputs_accepted(self) -> None:
        """Attempts have been accepted: regions may have become runnable."""
        self._is_demand_new = True

    def wait(self, executions: Sequence[Execution]) -> None:
        """Note attempts that have been reset: each starts as soon as its inputs are durable."""
        self._demand.wait(executions)
        self._is_demand_new = True

    def wish(self, wished: Mapping[VertexId, int]) -> None:
        """Vertices that would take so many slots more than they have subtasks (R68)."""
        self._demand.wished = {vertex_id: count for vertex_id, count in wished.items() if count > 0}

    def replaced(self, vertex: ExecutionJobVertex) -> None:
        """A vertex has other subtasks than before, which wait."""
        self._demand.forget(vertex.id)
        self._deployments.forget(vertex.id)
        self.wait(vertex.executions)

    def usable(self, vertex_id: VertexId) -> int:
        """How many slots the job has in which subtasks of a vertex run, or may."""
        kind = self._demand.kinds[vertex_id]
        return sum(
            slot.kind == kind if not slot.is_idle else slot.fits(kind) and self._is_reachable(slot)
            for slot in self.pool.allocations()
            if not slot.is_closed
        )

    def kind(self, vertex_id: VertexId) -> SlotKind:
        """The slots that subtasks of a vertex take."""
        return self._demand.kinds[vertex_id]

    def cancel(self, executions: Iterable[Execution], at: Moment, *, ends_batches: bool = False) -> None:
        """Stop attempts, wherever they are on their way. Terminal ones and those that are stopping are left alone.

        `ends_batches`: queries that run end between two batches. Without it those that do so end at once.
        """
        queued: list[Execution] = []
        for execution in executions:
            if execution.state in ON_ITS_WAY:
                assert execution.location is not None, execution.attempt_id
                letter = self._outbox.to(execution.location.incarnation)
                is_running = execution.state is ExecutionState.RUNNING
                if ends_batches and is_running:
                    letter.ended.append(execution.attempt_id)
                    self._ending_batches.add(execution.attempt_id)
                else:
                    letter.cancelled.append(execution.attempt_id)
                self._graph.transition(execution, ExecutionState.CANCELING, at.millis)
            elif execution.state in _NEVER_DEPLOYED:
                self._graph.transition(execution, ExecutionState.CANCELED, at.millis)
                queued.append(execution)
            elif not ends_batches and execution.attempt_id in self._ending_batches and execution.location is not None:
                self._ending_batches.discard(execution.attempt_id)
                self._outbox.to(execution.location.incarnation).cancelled.append(execution.attempt_id)
        self._demand.withdraw(queued)

    def offered(self, location: TaskManagerLocation, offers: tuple[SlotOffer, ...]) -> None:
        """Take the slots that there is work for, refuse the others. An offer that is repeated is taken again (R11)."""
        letter = self._outbox.to(location.incarnation)
        open_counts = self._demand.open_counts()
        for slot in self._reachable_idle():
            _take_kind(open_counts, slot)
        for offer in offers:
            slot = ActiveSlot(offer, location)
            if offer.allocation_id in self.pool:
                letter.accepted.append(offer.allocation_id)
            elif (self._is_wanted(slot) and _take_kind(open_counts, slot)) or self._is_elsewhere(slot):
                self.pool.accept(offer, location)
                self.met[location.incarnation] = None
                letter.accepted.append(offer.allocation_id)
            else:
                letter.rejected.append(offer.allocation_id)
        if letter.accepted and self._demand.errand is not None:
            self.know(location)

    def seek(self, vertex: ExecutionJobVertex | None) -> None:
        """Ask for a slot on any TaskManager, as for a subtask of `vertex`; None: the slot is not needed any more."""
        self._demand.errand = vertex

    def know(self, location: TaskManagerLocation) -> None:
        """Send the shared description of the job to a TaskManager, unless it has it."""
        if location.incarnation not in self.task_managers:
            self.task_managers[location.incarnation] = location
            self._outbox.to(location.incarnation).job = self._deployments.job

    def reachable(self) -> list[Incarnation]:
        """TaskManagers that have the shared description, are connected, and are not fenced off."""
        known = (one for one in self.task_managers if one not in self.absent)
        return [incarnation for incarnation in known if not self._fences.is_closed(incarnation)]

    def inherit(self, adoption: Adoption, at: Moment) -> None:
        """Take over the slots of a TaskManager with adopted attempts; stop or acknowledge its other attempts."""
        location = adoption.answer.location
        letter = self._outbox.to(location.incarnation)
        self.met[location.incarnation] = None
        letter.cancelled.extend([*adoption.unwanted, *adoption.stopped])
        letter.acknowledged.extend(adoption.settled)
        if adoption.answer.slots or adoption.answer.attempts:
            self.task_managers[location.incarnation] = location
            letter.job = self._deployments.job
        for offer in adoption.answer.slots:
            slot = self.pool.accept(offer, location)
            for attempt_id in adoption.in_slots.get(offer.allocation_id, ()):
                self.pool.assign(slot, attempt_id, self._demand.kinds[attempt_id.vertex_id], at.monotonic)

    def disconnected(self, incarnation: Incarnation) -> None:
        """The stream has ended: the TaskManager gets no new work, and keeps its slots, until its next census."""
        self.absent[incarnation] = None

    def reconnected(self, location: TaskManagerLocation, *, has_something: bool) -> None:
        """The census of a TaskManager is complete: it gets work again, and the messages that it may have missed."""
        incarnation = location.incarnation
        letter = self._outbox.to(incarnation)
        self.absent.pop(incarnation, None)
        self.lost.pop(incarnation, None)
        self.met[incarnation] = None
        if has_something:
            self.task_managers[incarnation] = location
        if incarnation in self.task_managers:
            letter.job = self._deployments.job
        letter.fence_revision = self._fences.revision(incarnation)
        letter.released.extend(self._released.get(incarnation, ()))

    def descriptor(self, execution: Execution, allocation_id: AllocationId) -> TaskDeploymentDescriptor:
        """The deployment descriptor of an attempt, to send it again."""
        return self._deployments.descriptor(execution, allocation_id)

    def schedule(self, at: Moment) -> str:
        """Start regions whose inputs are durable. Returns why the job must fail, "" if all is well."""
        if not self._is_demand_new:
            return ""
        self._is_demand_new = False
        for vertex, executions in self._demand.take_ready():
            for edge in vertex.inputs:
                if problem := edge.mixed_kinds():
                    return problem
            for execution in executions:
                self._graph.transition(execution, ExecutionState.SCHEDULED, at.millis)
                self._demand.enqueue(execution)
        return ""

    def deploy(self, at: Moment) -> int:
        """Fill idle slots, then let short tasks wait behind running ones. Returns how many were deployed."""
        deployed = 0
        for slot in self._reachable_idle():
            execution = self._demand.next_for(slot) if self._is_wanted(slot) else None
            if execution is None and slot.location.incarnation not in self.blocked:
                execution = self._demand.next_speculative(slot)
            if execution is not None:
                self._deploy(execution, slot, at)
                self._touched[slot.allocation_id] = slot
                deployed += 1
        touched, self._touched = self._touched, {}
        for slot in touched.values():
            if not (self._is_reachable(slot) and self._is_wanted(slot)):
                continue
            while slot.allocation_id in self.pool and not slot.is_idle and self.pool.room(slot) > 0:
                execution = self._demand.next_like(slot)
                if execution is None:
                    break
                self._deploy(execution, slot, at)
                deployed += 1
        return deployed

    def _reachable_idle(self) -> list[ActiveSlot]:
        return [slot for slot in self.pool.idle() if self._is_reachable(slot)]

    def _is_wanted(self, slot: ActiveSlot) -> bool:
        """False for a slot on a blocked TaskManager while the job has slots like it on others."""
        if slot.location.incarnation not in self.blocked:
            return True
        alike = (one for one in self.pool.allocations() if one.profile == slot.profile)
        return all(one.location.incarnation in self.blocked for one in alike)

    def _is_elsewhere(self, slot: ActiveSlot) -> bool:
        """True if a speculative attempt could have the slot that no idle slot serves already."""
        if slot.location.incarnation in self.blocked:
            return False
        open_attempts = [one for one in self._demand.speculative if self._suits(slot, one)]
        idle = [one for one in self._reachable_idle() if any(self._suits(one, attempt) for attempt in open_attempts)]
        return len(open_attempts) > len(idle)

    def _suits(self, slot: ActiveSlot, execution: Execution) -> bool:
        is_other = slot.location.incarnation not in self._demand.places_of(execution)
        return is_other and slot.fits(self._demand.kinds[execution.attempt_id.vertex_id])

    def _is_reachable(self, slot: ActiveSlot) -> bool:
        incarnation = slot.location.incarnation
        return incarnation not in self.absent and not self._fences.is_closed(incarnation)

    def _deploy(self, execution: Execution, slot: ActiveSlot, at: Moment) -> None:
        vertex_id = execution.attempt_id.vertex_id
        self.pool.assign(slot, execution.attempt_id, self._demand.kinds[vertex_id], at.monotonic)
        execution.place(slot.location, slot.allocation_id, slot.index)
        self._graph.transition(execution, ExecutionState.DEPLOYING, at.millis)
        incarnation = slot.location.incarnation
        self.know(slot.location)
        letter = self._outbox.to(incarnation)
        letter.fence_revision = self._fences.revision(incarnation)
        letter.deployed.append(self._deployments.descriptor(execution, slot.allocation_id))

    def ended(self, attempt_id: ExecutionAttemptId, at: Moment) -> None:
        """An attempt is terminal: its slot has room."""
        self._ending_batches.discard(attempt_id)
        is_endless = self._graph.vertices[attempt_id.vertex_id].vertex.stream_sink is not None
        slot = self.pool.ended(attempt_id, at.monotonic, is_endless=is_endless)
        if slot is not None:
            self._touched[slot.allocation_id] = slot

    def acknowledge(self, execution: Execution) -> None:
        """Tell the TaskManager to forget the report of an attempt (R10)."""
        assert execution.location is not None, execution.attempt_id
        if execution.location.incarnation in self.task_managers:
            self._outbox.to(execution.location.incarnation).acknowledged.append(execution.attempt_id)

    def release_idle(self) -> None:
        """Give back idle slots that nothing will run in."""
        for slot in self.pool.spent():
            if slot.location.incarnation not in self.absent:
                self._free(slot)
        idle = self._reachable_idle()
        if not idle:
            return
        anticipated = self._demand.anticipated_counts()
        for slot in idle:
            if not (self._is_wanted(slot) and _take_kind(anticipated, slot)):
                self._free(slot)

    def _free(self, slot: ActiveSlot) -> None:
        self.pool.remove(slot.allocation_id)
        self._outbox.to(slot.location.incarnation).freed.append(slot.allocation_id)

    def release(self, partitions: Iterable[PartitionDescriptor]) -> None:
        """Tell the producers' TaskManagers to delete partitions that no consumer needs any more."""
        for partition in partitions:
            producer = self._graph.execution(partition.partition_id.producer)
            location = producer.location if producer is not None else None
            if location is not None and location.incarnation in self.task_managers:
                self._outbox.to(location.incarnation).released.append(partition.partition_id)
                self._released.setdefault(location.incarnation, []).append(partition.partition_id)

    def stop(self, at: Moment) -> None:
        """Start no attempt any more, and stop those that were started."""
        self._demand.clear()
        self._touched.clear()
        self.cancel(self._graph.attempts(), at)

    def say_goodbye(self, *, keeps_outputs: bool) -> None:
        """The job is over: every slot goes back, and every TaskManager that had one forgets the job."""
        for execution in self._graph.executions():
            if execution.location is not None and not execution.is_accepted:
                self.acknowledge(execution)
        for slot in self.pool.allocations():
            self._outbox.to(slot.location.incarnation).freed.append(slot.allocation_id)
        for incarnation in self.met:
            letter = self._outbox.to(incarnation)
            letter.ends, letter.keeps_outputs = True, keeps_outputs

    def task_manager_lost(self, incarnation: Incarnation) -> list[ExecutionAttemptId]:
        """Forget a TaskManager and its slots until its next census. Returns the attempts that were in them."""
        attempts = self.task_manager_died(incarnation)
        self.lost[incarnation] = None
        return attempts

    def task_manager_died(self, incarnation: Incarnation) -> list[ExecutionAttemptId]:
        """Forget a TaskManager and its slots. Returns the attempts that were in them."""
        self._outbox.drop(incarnation)
        self.task_managers.pop(incarnation, None)
        self.met.pop(incarnation, None)
        self.absent.pop(incarnation, None)
        self.lost.pop(incarnation, None)
        self._released.pop(incarnation, None)
        self.blocked.forget(incarnation)
        allocations = self.pool.of_task_manager(incarnation)
        return [attempt_id for allocation in allocations for attempt_id in self.pool.remove(allocation)]


def _take_kind(counts: dict[SlotKind, int], slot: ActiveSlot) -> bool:
    """Take one subtask that the slot could serve off the counts. False if there is none."""
    for kind, count in counts.items():
        if count > 0 and slot.fits(kind):
            counts[kind] = count - 1
            return True
    return False
