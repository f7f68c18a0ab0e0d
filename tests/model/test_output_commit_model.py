"""Any order of orders, deaths, losses, owners and late answers ends with exactly the accepted files visible.

The owner's core and the TaskManagers' core as they are; movers are made of the steps of a plan on one storage, each of
which may be the last of its process.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from runtime.common.ids import Incarnation
from runtime.common.states import JobStatus
from runtime.gateways.job_master import CommitOutputs
from runtime.gateways.task import APPEND, OVERWRITE, OutputDirectory
from runtime.jobgraph.graph import OperatorKind
from runtime.jobgraph.restart_strategy import FixedDelayRestartStrategy
from runtime.scheduler.core import events as ev
from runtime.scheduler.core.failover.settings import FailoverSettings
from runtime.taskexecutor.core.events import Effect, MoveOutputs, OutputsMoved, StopMove
from runtime.taskexecutor.core.isolation import Isolation
from runtime.taskexecutor.core.moves import Moves
from runtime.taskexecutor.storage.core.output_plan import OutputPlan, Present, Written, make_plan
from tests.kit.control_plane.job_graphs import graph, vertex
from tests.kit.control_plane.job_master_driver import JOB_ID, UNCONFIRMED_WAIT, Fence, JobMasterDriver, location

T = TypeVar("T")

TASK_MANAGERS = 3
FENCED = FailoverSettings(
    restart_strategy=FixedDelayRestartStrategy(attempts=3, delay_seconds=0.0), unconfirmed_wait=UNCONFIRMED_WAIT
)


class Pick(Protocol):
    """Which of them it is."""

    def __call__(self, options: Sequence[T], /) -> T: ...


@dataclass
class Storage:
    """One base: files with their contents, and what a commit has stored beside them."""

    mode: str
    hidden: dict[str, str]
    shown: dict[str, str]
    plan: OutputPlan | None = None
    is_moved: bool = False
    is_done: bool = False

    def step(self) -> bool:
        """The next step of whoever moves. False: nothing is left to do."""
        if self.is_done:
            self.hidden.clear()
            return False
        if self.plan is None:
            written = dict.fromkeys(self.hidden, Written(1))
            self.plan = make_plan("base", self.mode, {".a": written}, Present(dict.fromkeys(self.shown, 1)))
            return True
        missing = [file.name for file in self.plan.files if self.shown.get(file.name) != "new"]
        if missing:
            assert missing[0] in self.hidden, "R28: it was deleted before its copy was there"
            self.shown[missing[0]] = "new"
            return True
        if not self.is_moved:
            self.is_moved = True
            return True
        old = [name for name in self.plan.replaced if name in self.shown]
        if old:
            del self.shown[old[0]]
        elif self.hidden:
            self.hidden.popitem()
        else:
            self.is_done = True
        return True


@dataclass
class TaskManager:
    """One life of a TaskManager: what it was ordered, and whether its mover runs."""

    number: int
    isolation: Isolation = field(default_factory=Isolation)
    is_moving: bool = False
    epoch: int = 0

    def __post_init__(self) -> None:
        self.moves = Moves(self.isolation)

    @property
    def incarnation(self) -> Incarnation:
        return location(self.number).incarnation

    def take(self, effects: list[Effect]) -> None:
        """Begin to move, or stop: then the mover's end is known before anything else."""
        for effect in effects:
            self.is_moving = isinstance(effect, MoveOutputs)
            assert self.is_moving or isinstance(effect, StopMove), effect
            if not self.is_moving:
                self.moves.ended(OutputsMoved(JOB_ID, is_stopped=True))

    def lose_contact(self) -> None:
        """R14: nothing that is exclusive goes on."""
        self.isolation.is_isolated = True
        self.take(self.moves.contact_lost("no contact"))

    def read_prefix(self, fence: Fence | None) -> None:
        """R14: it is contact when the fence that it shows is obeyed."""
        pending = self.isolation.fence(JOB_ID, fence.epoch, fence.revision) if fence is not None else None
        if pending is not None:
            self.take(self.moves.fence(pending))
            self.isolation.note_obeyed(pending)
        if self.isolation.is_isolated:
            self.isolation.is_isolated = False
            self.take(self.moves.contact_regained())


class Scenario:
    """One job that is being committed, its owner, its TaskManagers, its storage."""

    def __init__(self, pick: Pick, mode: str, count: int, old: Iterable[str]) -> None:
        self.pick = pick
        self.accepted = {f"f{number}": "new" for number in range(count)}
        shown = {name: "old" for name in old if mode == OVERWRITE or name != "f0"}
        self.storage = Storage(mode, dict(self.accepted), shown)
        self.expected = {**(shown if mode == APPEND else {}), **self.accepted}
        self.task_managers = {number: TaskManager(number) for number in range(1, TASK_MANAGERS + 1)}
        self.answers: list[tuple[int, int]] = []
        self.taken = 0
        self.job = JobMasterDriver(
            graph(*(vertex(f"v{number}", OperatorKind.SINK) for number in range(TASK_MANAGERS))), failover=FENCED
        )
        for number in self.task_managers:
            self.job.offer(number, tm=number)
        for attempt_id in self.job.running():
            output = OutputDirectory("base", posixpath.join("base", f".attempt-{attempt_id}"), mode)
            self.job.report(attempt_id, outputs=(output,))
            self.job.events_durable()
        self.job.events_durable()

    # --- what happens -------------------------------------------------------------------------------------------------

    def deliver(self) -> None:
        """Orders arrive where somebody lives and hears."""
        orders, self.taken = self.job.commits[self.taken :], len(self.job.commits)
        for incarnation, message in orders:
            found = [one for one in self.task_managers.values() if one.incarnation == incarnation]
            if found and incarnation not in self.job.cut:
                self.take(found[0], message)

    def take(self, one: TaskManager, message: CommitOutputs) -> None:
        if message.epoch < one.epoch or one.isolation.refusal(JOB_ID, message.epoch, message.fence_revision):
            return  # R1, R14
        one.take(one.moves.order(message))

    def move(self) -> None:
        """One step of one mover; its last one is its answer, which may be lost."""
        movers = [one for one in self.task_managers.values() if one.is_moving]
        assert len(movers) <= 1, "R27"
        if not movers:
            return
        one = self.pick(movers)
        if self.storage.step():
            return
        one.is_moving = False
        answer, _ = one.moves.ended(OutputsMoved(JOB_ID))
        if answer is not None:
            self.answers.append((answer.epoch, answer.order))

    def answer(self) -> None:
        """Late, in any order; those of other epochs do not reach this owner."""
        if self.answers:
            epoch, order = self.answers.pop(self.pick(range(len(self.answers))))
            if epoch == self.job.epoch:
                self.job.moved(order)

    def kill(self) -> None:
        """Its guard proves that nothing of it is left; another life begins under another number."""
        number = self.pick(sorted(self.task_managers))
        del self.task_managers[number]
        self.job.lose_task_manager(number, is_reaped=True)
        fresh = max(self.task_managers, default=0) + 10
        self.task_managers[fresh] = TaskManager(fresh)
        if self.job.requirements and self.job.requirements[-1].requirements:
            self.job.offer(1000 + fresh, tm=fresh)

    def go_silent(self) -> None:
        number = self.pick(sorted(self.task_managers))
        self.job.go_silent(number)

    def fence(self) -> None:
        """Fences are written, and everybody reads his own: what it stops is stopped before it is confirmed."""
        self.job.write_fences()
        for one in list(self.task_managers.values()):
            one.read_prefix(self.job.written_fences.get(one.incarnation))
        for incarnation in list(self.job.written_fences):
            self.job.obey_fence(incarnation)

    def wait_out(self) -> None:
        """So long that whoever has not read his fence has no contact, and has stopped by himself."""
        self.job.write_fences()
        for one in self.task_managers.values():
            if one.incarnation in self.job.written_fences:
                one.lose_contact()
        self.job.wait_out_fences()

    def reconnect(self) -> None:
        for number, one in list(self.task_managers.items()):
            if one.incarnation in self.job.cut and one.incarnation not in self.job.written_fences:
                self.job.reconnect(number)

    def change_owner(self, *, has_slots: bool = True) -> None:
        """R6: everyone answers the census, and says whether it moves. The last owner's fences stay until read."""
        self.job.begin_next_owner()
        everyone = [location(number) for number in self.task_managers]
        assert self.job.graph is not None
        self.job.handle(ev.TaskManagersRegistered(frozenset(one.incarnation for one in everyone), self.job.at()))
        self.job.handle(ev.JobRead(self.job.graph, tuple(self.job.durable), self.job.at()))
        for number, one in self.task_managers.items():
            one.epoch = self.job.epoch
            is_moving = one.moves.is_ordered(JOB_ID)
            self.job.counts(number, is_moving=is_moving)
        if has_slots:
            self.offer()

    def offer(self) -> None:
        if self.job.requirements and self.job.requirements[-1].requirements and self.task_managers:
            number = max(self.task_managers)
            self.job.offer(5000 + self.job.epoch * 10 + number, tm=number)

    def cancel(self) -> None:
        self.job.handle(ev.CancelWanted(self.job.at()))

    def run(self, steps: int) -> None:
        """Anything happens, in any order, until the job ends."""
        actions = [
            *[self.deliver] * 4,
            *[self.move] * 8,
            *[self.answer] * 2,
            self.kill,
            self.go_silent,
            self.fence,
            self.wait_out,
            self.reconnect,
            self.change_owner,
            self.cancel,
        ]
        for _ in range(steps):
            if self.job.has_result():
                break
            self.pick(actions)()

    def settle(self) -> None:
        """Nothing goes wrong any more: then the job ends, and exactly what was accepted is visible."""
        for _ in range(200):
            if self.job.has_result():
                break
            self.fence()
            self.reconnect()
            self.offer()
            self.deliver()
            self.move()
            self.answer()
        assert self.job.pending_result is not None, "the job does not end"
        assert self.job.pending_result.status is JobStatus.FINISHED
        assert self.storage.shown == self.expected


# A failure is told as it is found: shrinking an example of so many draws takes minutes.
@settings(
    max_examples=150,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data())
def test_exactly_the_accepted_files_are_visible(data: st.DataObject) -> None:
    def pick(options: Sequence[T]) -> T:
        return data.draw(st.sampled_from(options))

    old = data.draw(st.sets(st.sampled_from(["f0", "old", "older"]), max_size=3))
    scenario = Scenario(pick, pick([APPEND, OVERWRITE]), data.draw(st.integers(1, 4)), old)
    scenario.run(data.draw(st.integers(5, 60)))
    scenario.settle()


def test_a_mover_that_was_waited_out_goes_on_under_the_next_owner() -> None:
    """It has stopped for want of contact, and says in the census that it moves: it will, when it has contact again."""
    scenario = Scenario(lambda options: options[-1], OVERWRITE, 1, ["old", "older"])
    scenario.deliver()
    scenario.move()
    scenario.go_silent()
    scenario.move()
    scenario.wait_out()
    assert not any(one.is_moving for one in scenario.task_managers.values())
    scenario.change_owner()
    scenario.deliver()
    scenario.settle()


def test_a_last_word_that_no_owner_has_heard_is_asked_for_again() -> None:
    """The next owner finds it in the census: it would wait for a slot, which others may hold for ever."""
    scenario = Scenario(lambda options: options[-1], OVERWRITE, 1, ["old", "older"])
    scenario.deliver()
    while any(one.is_moving for one in scenario.task_managers.values()):
        scenario.move()
    scenario.answers.clear()
    scenario.change_owner(has_slots=False)
    scenario.deliver()
    scenario.move()
    scenario.answer()
    assert scenario.job.pending_result is not None
    scenario.settle()
