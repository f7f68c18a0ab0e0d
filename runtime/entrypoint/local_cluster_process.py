"""The main process of a local cluster: JobManager and TaskManager on one loop, joined by a LocalNetwork."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from runtime.aio.scope import Scope
from runtime.aio.watch import Watch
from runtime.entrypoint.job_manager import ClusterEntrypoint
from runtime.entrypoint.process import ProcessContext
from runtime.entrypoint.signals import stop_with_standard_input
from runtime.entrypoint.task_manager_process import TaskManagerProcess
from runtime.rpc.local import LocalNetwork, LocalRpcService
from runtime.taskexecutor.guard.channel import GuardChannel


@dataclass
class _PartContext(ProcessContext):
    """The context of one part, which reports ready to the cluster instead of a file."""

    facts: Watch[Mapping[str, str] | None] = field(default_factory=lambda: Watch(None))

    def ready(self, facts: Mapping[str, str]) -> None:
        """The part serves now."""
        self.facts.set(facts)


class LocalCluster:
    """Implements `ClusterProcess`."""

    def __init__(self, guard: GuardChannel) -> None:
        self._guard = guard

    async def run(self, context: ProcessContext) -> None:
        """Serve until cancelled or until standard input ends."""
        network = LocalNetwork()

        def part() -> _PartContext:
            return _PartContext(
                context.configuration,
                context.layout,
                context.environment,
                make_rpc=lambda settings, clock: LocalRpcService(network, settings, clock),
                reporting=context.reporting,
                tracing=context.tracing,
            )

        job_manager, task_manager = part(), part()
        stop_with_standard_input()
        async with Scope("local-cluster") as scope:
            scope.spawn("job-manager", ClusterEntrypoint().run(job_manager))
            started = await job_manager.facts.wait_until(lambda facts: facts is not None)
            scope.spawn("task-manager", TaskManagerProcess(self._guard, states_end=False).run(task_manager))
            _ = await task_manager.facts.wait_until(lambda facts: facts is not None)
            assert started is not None
            context.ready(started)
            sys.stdout.write(json.dumps(dict(started)) + "\n")
            sys.stdout.flush()
