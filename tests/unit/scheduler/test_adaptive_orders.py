"""A job of an AdaptiveScheduler while slots, owners and bounds change in any order (R68, R69)."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from runtime.common.states import ExecutionState, JobStatus
from runtime.gateways.rescales import VertexBounds
from runtime.jobgraph.restart_strategy import FixedDelayRestartStrategy
from runtime.scheduler.core import events as ev
from tests.kit.control_plane.adaptive_driver import SETTINGS, AdaptiveDriver
from tests.kit.control_plane.job_graphs import graph
from tests.kit.control_plane.job_master_driver import THREE_RESTARTS, allocation
from tests.kit.control_plane.streaming_jobs import query

SPLITS = 5
STEPS = 60
VERTEX = query("orders", parallelism=SPLITS, splits=SPLITS)
MANY_RESTARTS = replace(THREE_RESTARTS, restart_strategy=FixedDelayRestartStrategy(attempts=10_000, delay_seconds=0.0))
E = ExecutionState


class Story:
    """A job, and what happens to it."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        settings = replace(SETTINGS, resource_wait=None, submission_stabilization=1.0, cooldown=2.0)
        settings = replace(settings, executing_stabilization=3.0)
        self.job = AdaptiveDriver(graph(VERTEX), adaptive=settings, failover=MANY_RESTARTS)
        self.task_managers: dict[int, tuple[int, ...]] = {}
        self.next = 1
        self.bounds = (1, SPLITS)

    def step(self) -> None:
        """One thing happens, and then it is checked that each query runs at most once."""
        often = [self.comes, self.passes, self.writes] * 2
        happens = self.draw.choice([*often, self.goes, self.stops, self.fails, self.is_bound, self.changes_owner])
        happens()
        self.check()

    def comes(self) -> None:
        number, count = self.next, self.draw.randint(1, 2)
        self.next += count
        self.task_managers[number] = tuple(range(number, number + count))
        self.job.offer(*self.task_managers[number], tm=number)

    def goes(self) -> None:
        if self.task_managers:
            number = self.draw.choice([*self.task_managers])
            del self.task_managers[number]
            self.job.lose_task_manager(number, is_reaped=True)

    def passes(self) -> None:
        self.job.now += self.draw.choice([0.1, 1.0, 5.0])
        self.job.handle(ev.RestartDue(self.job.at()))

    def stops(self) -> None:
        """What was cancelled ends, and what was deployed runs."""
        for attempt_id in self.job.running():
            if attempt_id in self.job.cancelled:
                self.job.report(attempt_id, E.CANCELED)
            elif attempt_id not in self.job.running_millis:
                self.job.report(attempt_id, E.RUNNING)

    def fails(self) -> None:
        if running := self.job.running():
            self.job.report(self.draw.choice(running), E.FAILED)

    def writes(self) -> None:
        self.job.events_durable()

    def is_bound(self) -> None:
        upper = self.draw.randint(1, SPLITS)
        self.job.wants(VertexBounds(VERTEX.id, self.draw.randint(1, upper), upper))

    def changes_owner(self) -> None:
        answered = len(self.job.requirement_answers)
        self.job.change_owner(self.task_managers)
        assert len(self.job.requirement_answers) == answered

    def check(self) -> None:
        numbers = [one.number for attempt in self.job.running() for one in self.job.deployed[attempt].queries]
        assert len(numbers) == len({*numbers}), "two attempts run one query"
        parallelism = {self.job.deployed[attempt].task.parallelism for attempt in self.job.running()}
        assert len(parallelism) <= 1, "attempts of two parallelisms run at once"

    def settles(self) -> None:
        """Nothing happens any more but what has to: all queries run, in as many subtasks as there are slots for."""
        if not self.task_managers:
            self.comes()
        self.job.wants(VertexBounds(VERTEX.id, 1, 3), request_id="last")
        for _ in range(40):
            self.stops()
            self.writes()
            self.offer_again()
            self.passes()
            self.check()
        slots = sum(map(len, self.task_managers.values()))
        shares = self.job.shares()
        assert sorted(number for share in shares for number in share) == list(range(SPLITS))
        assert len(shares) == min(3, slots), (shares, slots)
        assert self.job.core.summary().status is JobStatus.RUNNING
        assert any(one.request_id == "last" and not one.refusal for one in self.job.requirement_answers)

    def offer_again(self) -> None:
        """The ResourceManager gives what the job asks for."""
        wanted = self.job.wanted_slots if self.job.requirements else 0
        for number, slots in self.task_managers.items():
            for slot in slots:
                if allocation(slot) not in self.job.slots and len(self.job.slots) < wanted:
                    self.job.offer(slot, tm=number)


@pytest.mark.parametrize("seed", range(40))
def test_each_query_runs_at_most_once_whatever_happens(seed: int) -> None:
    story = Story(seed)
    for _ in range(STEPS):
        story.step()
    story.settles()
